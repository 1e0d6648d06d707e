"""Takes mail addresses out of texts that are logged or kept: errors of mail servers name their receivers."""

from __future__ import annotations

import re

MASK = "[masked]"
_ADDRESS = re.compile(r"[^\s@<>\"']+@[^\s@<>\"']+\.[^\s@<>\"']+")


def without_addresses(text: str) -> str:
    """The text with a mask in the place of each mail address."""
    return _ADDRESS.sub(MASK, text)
