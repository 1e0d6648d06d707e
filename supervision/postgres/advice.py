"""What a person is told to do when there is no database. An application that can start one says so with `use`."""

from __future__ import annotations

OWN = 'start PostgreSQL, and name it in DATABASES["default"] of the settings'
ANSWERED = (
    "the server runs and refuses this connection: look at user, password and database in the URL, pg_hba.conf,"
    " max_connections and the role's CONNECTION LIMIT"
)
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


def after(said: str) -> str | None:
    """The advice where these words of a failed connection are a server's; None where none has answered."""
    return ANSWERED if "FATAL:" in said else None
