"""This process's name, one per incarnation, so that a restarted worker is never mistaken for its predecessor."""

from __future__ import annotations

import os
import re
import socket
import uuid
from functools import cache

_role, _incarnation = os.environ.get("SAS_ROLE", ""), ""
_ME = re.compile(r"([^@]+)@(.+)-([0-9]+)-[0-9a-f]{8}")
_PROCESS = re.compile(r"(?:[^@]+@)?.+-[0-9]+-[0-9a-f]{8}")


def set_role(role: str) -> None:
    """Set this process's role, which timelines show as part of its name. Call it before the name is first used."""
    global _role
    _role = role
    me.cache_clear()


@cache
def me() -> str:
    """`role@host-pid-random`, new with every start of a process and after every fork."""
    return f"{_role}@{_incarnation}" if _role else _incarnation


def _begin() -> None:
    global _incarnation
    _incarnation = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    me.cache_clear()


_begin()
os.register_at_fork(after_in_child=_begin)


def is_process(actor: str) -> bool:
    """Whether this is the name of one of our processes, as `me` makes them, and not that of a person."""
    return _PROCESS.fullmatch(actor) is not None


def role_and_process(actor: str) -> tuple[str, str]:
    """The role in a process's name, and its name as a Celery worker, `agents-4711@host`. No role: not from `me`."""
    found = _ME.fullmatch(actor)
    return (found[1], f"{found[1]}-{found[3]}@{found[2]}") if found else ("", actor)


def role() -> str:
    """This process's role, such as `agents`; empty before it is known."""
    return _role
