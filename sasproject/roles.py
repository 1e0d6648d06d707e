"""The roles, and how to tell that each of them works. The Procfile is the only list of roles."""

from __future__ import annotations

import shlex
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The text in a role's log that says that it takes work. The web role is asked over HTTP instead.
READY_LINES = {"scheduler": b" ready.", "agents": b" ready.", "supervisor": b" ready.", "beat": b"beat: Starting"}

# The demo runs the line `agents` twice, so that orders travel between processes as Celery chains.
DEMO_AGENTS = {"agents-order": "agent.stock,agent.payment", "agents-delivery": "agent.shipping,agent.email,agent.child"}


def procfile(root: Path = ROOT) -> dict[str, str]:
    """The command of each role, from the Procfile. root: the source tree whose code they run."""
    roles = {}
    for line in (root / "Procfile").read_text().splitlines():
        name, colon, command = line.partition(":")
        if colon and not line.startswith("#"):
            roles[name.strip()] = f"cd {shlex.quote(str(root))} && {command.strip()}"
    return roles


def http_answers(url: str) -> bool:
    """Whether an HTTP server answers at this address, with any status below 500."""
    try:
        urllib.request.urlopen(url, timeout=2).close()  # noqa: S310 - our own address  # nosemgrep: call-without-a-door
    except urllib.error.HTTPError as answer:
        return answer.code < 500
    except OSError:
        return False
    return True
