"""The one place that says LISTEN: a connection of its own, which hears the notifications of one channel.

PostgreSQL keeps no notification for a connection that is not there. So a listener says after each connect that anything may
have happened: it listens first, and its owner looks then. Several hosts and a check of a silent connection belong here.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Mapping
from typing import Any

import psycopg
from django.db import connection

_KEPT = ("dbname", "user", "password", "host", "port", "sslmode", "sslrootcert", "sslcert", "sslkey", "service")


def connection_params() -> dict[str, Any]:
    """The parameters of a separate connection that only listens."""
    return {name: value for name, value in connection.get_connection_params().items() if name in _KEPT}


class Listener:
    """Hears one channel. One thread uses it; any thread may call `interrupt`."""

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._connection: psycopg.Connection[Any] | None = None
        self._interrupts, self._interrupter = socket.socketpair()
        self._interrupter.setblocking(False)

    def wait(self, seconds: float) -> list[str] | None:
        """The payloads heard within `seconds`; returns after the first ones, or with none after `interrupt`.

        None: it has just connected, so any notification may have been missed. Raises psycopg.Error if the connection is lost
        or cannot be made; the next call connects again.
        """
        try:
            if self._connection is not None:
                return self._hear(self._connection, seconds)
            self._connection = psycopg.connect(autocommit=True, **connection_params())
            self._connection.execute(f"LISTEN {self._channel}")
        except psycopg.Error:
            self.disconnect()
            raise
        return None

    def _hear(self, listening: psycopg.Connection[Any], seconds: float) -> list[str]:
        heard = list(listening.notifies(timeout=0))  # also those that came with the answer to another statement
        if not heard:
            ready, _, _ = select.select([listening.fileno(), self._interrupts.fileno()], [], [], seconds)
            if self._interrupts.fileno() in ready:
                self._interrupts.recv(4096)
            heard = list(listening.notifies(timeout=0))
        return [note.payload for note in heard]

    def execute(self, statement: str, params: Mapping[str, Any]) -> psycopg.Cursor[Any]:
        """Execute a statement on the same connection. Raises psycopg.OperationalError before `wait` has made it."""
        if self._connection is None:
            raise psycopg.OperationalError("the listener is not connected")
        return self._connection.execute(statement, params)

    def interrupt(self) -> None:
        """Let the `wait` under way, or else the next one, return at once."""
        with contextlib.suppress(OSError):  # it is closed, or enough interrupts wait already
            self._interrupter.send(b"!")

    def disconnect(self) -> None:
        """Close the connection; the next `wait` connects again and returns None."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Close everything; the listener cannot be used again."""
        self.disconnect()
        self._interrupts.close()
        self._interrupter.close()
