"""Which roles there are and how one sees that each of them works. The Procfile is the only list."""

from __future__ import annotations

import shlex
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What a role's log says when it takes work; the web role is asked instead.
READY_LINES = {"scheduler": b" ready.", "agents": b" ready.", "supervisor": b" ready.", "beat": b"beat: Starting"}


def procfile(root: Path = ROOT) -> dict[str, str]:
    """The roles as the Procfile starts them everywhere else. root: the tree whose code they run."""
    roles = {}
    for line in (root / "Procfile").read_text().splitlines():
        name, colon, command = line.partition(":")
        if colon and not line.startswith("#"):
            roles[name.strip()] = f"cd {shlex.quote(str(root))} && {command.strip()}"
    return roles


def http_answers(url: str) -> bool:
    """Whether something there speaks HTTP; what it says is its own affair."""
    try:
        urllib.request.urlopen(url, timeout=2).close()  # noqa: S310 - our own address
    except urllib.error.HTTPError as answer:
        return answer.code < 500
    except OSError:
        return False
    return True
