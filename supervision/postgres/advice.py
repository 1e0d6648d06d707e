"""What a person is told to do when there is no database. An application that can start one says so with `use`."""

from __future__ import annotations

OWN = 'start PostgreSQL, and name it in DATABASES["default"] of the settings'
_said = [OWN]


def use(advice: str) -> None:
    """Let commands, the doctor and the system checks give this advice."""
    _said[0] = advice


def current() -> str:
    """The advice in use."""
    return _said[0]
