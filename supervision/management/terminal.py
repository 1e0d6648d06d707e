"""Text for a terminal: what a customer or a service wrote moves no cursor, hides nothing and answers no question of the terminal."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.core.management.base import OutputWrapper

# Control characters but line ends and tabs, and the characters that turn the direction of the text around them.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def escaped(text: str) -> str:
    """The text with each of these characters as its JSON escape."""
    return _OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class SafeOutput(OutputWrapper):
    """A command's output. A style is added after the text is escaped."""

    @classmethod
    def around(cls, stream: Any) -> SafeOutput:
        """The same stream, escaped."""
        return stream if isinstance(stream, cls) else cls(stream._out, stream.ending)

    def write(self, msg: str = "", style_func: Callable[[str], str] | None = None, ending: str | None = None) -> None:  # type: ignore[override]
        """Write the text, escaped."""
        super().write(escaped(msg), style_func, ending)

    def draw(self, text: str) -> None:
        """Write text of our own that steers the terminal."""
        self._out.write(text)  # type: ignore[attr-defined]
