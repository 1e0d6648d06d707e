"""The only module that executes LISTEN: a connection of its own receives the notifications of one channel.

PostgreSQL keeps no notification for a connection that is not there. So a listener says after each connect that anything may
have happened: it listens first, and its owner looks then. A connection on which nothing was heard for HEARTBEAT_SECONDS is
asked whether its server still answers and takes writes: otherwise it is closed, and the next one finds the primary.
"""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg
from psycopg.pq import ExecStatus

from supervision.postgres import params

HEARTBEAT_SECONDS = 8.0  # the longest silence; the answer to the heartbeat may take ANSWER_SECONDS
ANSWER_SECONDS = 4.0
_TAKES_WRITES = b"SELECT current_setting('transaction_read_only') = 'off'"


class Listener:
    """Hears one channel. One thread uses it; any thread may call `interrupt`."""

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._connection: psycopg.Connection[Any] | None = None
        self._heard_at = 0.0
        self._interrupts, self._interrupter = socket.socketpair()
        self._interrupter.setblocking(False)

    def wait(self, seconds: float) -> list[str] | None:
        """The payloads heard within `seconds`; returns after the first ones, or with none after `interrupt`.

        None: it has just connected, so any notification may have been missed. Raises psycopg.Error if the connection is lost or
        cannot be made, or leads to a server that takes no writes; the next call connects again.
        """
        try:
            if self._connection is not None:
                return self._hear(self._connection, seconds)
            self._connection = psycopg.connect(autocommit=True, **params.of_own(f"listen {self._channel}"))
            self._connection.execute(f"LISTEN {self._channel}")
            self._heard_at = time.monotonic()
        except psycopg.Error:
            self.disconnect()
            raise
        return None

    def _hear(self, listening: psycopg.Connection[Any], seconds: float) -> list[str]:
        heard = [note.payload for note in listening.notifies(timeout=0)]  # also those that came with another statement's answer
        until = time.monotonic() + seconds
        while not heard:
            left, silence_left = until - time.monotonic(), self._heard_at + HEARTBEAT_SECONDS - time.monotonic()
            ready = _readable((listening.fileno(), self._interrupts.fileno()), min(left, silence_left))
            if self._interrupts.fileno() in ready:
                self._interrupts.recv(4096)
            heard = [note.payload for note in listening.notifies(timeout=0)]
            if not ready and silence_left <= left:
                heard += self._heartbeat(listening)
            if ready or time.monotonic() >= until:
                break
        if heard:
            self._heard_at = time.monotonic()
        return heard

    def _heartbeat(self, listening: psycopg.Connection[Any]) -> list[str]:
        """Ask the server, and wait for its answer no longer than ANSWER_SECONDS; returns the payloads that came with it."""
        server, deadline = listening.pgconn, time.monotonic() + ANSWER_SECONDS
        server.send_query(_TAKES_WRITES)
        server.flush()
        while server.is_busy():
            if not _readable((server.socket,), deadline - time.monotonic()):
                raise psycopg.OperationalError(f"the server has not answered a listener for {ANSWER_SECONDS:g} s")
            server.consume_input()
        takes_writes = False
        while (result := server.get_result()) is not None:
            takes_writes = takes_writes or (result.status == ExecStatus.TUPLES_OK and result.get_value(0, 0) == b"t")
        if not takes_writes:
            raise psycopg.OperationalError("the server takes no writes any more: it is a standby, or read-only")
        self._heard_at = time.monotonic()
        payloads = []
        while (note := server.notifies()) is not None:
            payloads.append(note.extra.decode())
        return payloads

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


def _readable(files: Sequence[int], seconds: float) -> list[int]:
    """Those of these descriptors that have something to read, within so many seconds. They may be larger than `select` takes."""
    waiting = select.poll()
    for one in files:
        waiting.register(one, select.POLLIN)
    return [one for one, _events in waiting.poll(max(0.0, seconds) * 1000)]
