"""What a person is told to do when there is no database. An application that can start one says so with `use`."""

from __future__ import annotations

import re

OWN = 'start PostgreSQL, and name it in DATABASES["default"] of the settings'
ANSWERED = (
    "the server runs and refuses this connection: look at user, password and database in the URL, pg_hba.conf,"
    " max_connections and the role's CONNECTION LIMIT"
)
CHANGES = "the server is starting, recovering or stopping: wait until it accepts connections; its log says what it does"
# libpq puts two spaces between the severity and what the server says. Both are in the server's language (lc_messages), and a failed
# connection shows no SQLSTATE. No message of libpq's own looks so.
_ANSWER = re.compile(r"(?:^|: )[^:\n]+:  (\S.*)", re.MULTILINE)
_CHANGES = re.compile("the database system is ")  # starting up, shutting down, in recovery mode, not accepting connections
_said = [OWN]
_direct = ['DATABASES["direct"] in the settings']


def use(advice: str, direct: str) -> None:
    """Let commands, the doctor and the system checks give this advice. direct: what names the server itself, behind a pooler."""
    _said[0], _direct[0] = advice, direct


def direct() -> str:
    """What names the server itself, where the database is behind a pooler."""
    return _direct[0]


def current() -> str:
    """The advice in use."""
    return _said[0]


def answer(said: str) -> str | None:
    """What the server answered, where these words of a failed connection are a server's; None where none has answered."""
    found = _ANSWER.search(said)
    return found[1] if found else None


def changes(said: str) -> bool:
    """Whether the server says that it starts, recovers or stops. One that says so in another language than English is not known."""
    return _CHANGES.search(said) is not None


def after(said: str) -> str | None:
    """The advice where a server has answered with these words; None where none has."""
    return (CHANGES if changes(said) else ANSWERED) if answer(said) else None
