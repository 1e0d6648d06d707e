"""Clients that take orders through the database while something else happens there, and note how long each statement took."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import psycopg

from chaos import old_tables

NAME = "drill:load"
LOOK_SECONDS = 0.02
_WAITING = """
SELECT coalesce(max(extract(epoch FROM clock_timestamp() - l.waitstart)), 0)::float8
  FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid WHERE NOT l.granted AND a.application_name = %s
"""


@dataclass
class Load:
    """Orders at a steady rate, by several clients. A statement is one transaction. All times are seconds since the epoch."""

    database_url: str
    rate: float  # orders a second, of all clients together
    clients: int = 2
    took: list[tuple[float, float, str]] = field(default_factory=list)  # when a statement began, how long it took, which it was
    waited: list[tuple[float, float]] = field(default_factory=list)  # when was looked, how long a statement had waited for a lock
    errors: list[str] = field(default_factory=list)
    finished: int = 0

    def start(self) -> None:
        """Start ordering."""
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._order_steadily, daemon=True) for _ in range(self.clients)]
        self._threads.append(threading.Thread(target=self._look_for_waits, daemon=True))
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop ordering; returns when no order is under way."""
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def longest(self, begin: float, end: float) -> tuple[float, str]:
        """Seconds of the longest statement that was under way between these times, also when only a part of it was; and which it was."""
        return max(((seconds, what) for at, seconds, what in list(self.took) if at < end and at + seconds > begin), default=(0.0, ""))

    def longest_wait(self, begin: float, end: float) -> float:
        """Seconds of the longest wait for a lock that was seen between these times."""
        return max((seconds for at, seconds in list(self.waited) if begin <= at <= end), default=0.0)

    def p99(self, begin: float, end: float) -> float:
        """The 99th percentile of the statements that began between these times, in seconds."""
        found = sorted(seconds for at, seconds, _ in list(self.took) if begin <= at <= end)
        return found[min(len(found) - 1, int(len(found) * 0.99))] if found else 0.0

    def _order_steadily(self) -> None:
        with psycopg.connect(self.database_url, autocommit=True, application_name=NAME) as connection:
            due = time.monotonic()
            while not self._stop.is_set():
                try:
                    self._order(connection)
                except psycopg.Error as error:
                    self.errors.append(f"{type(error).__name__}: {str(error).splitlines()[0]}")
                due = max(due + self.clients / self.rate, time.monotonic() - 1)
                self._stop.wait(max(0.0, due - time.monotonic()))

    def _order(self, connection: psycopg.Connection[Any]) -> None:
        """Place one order and take it to its end. An order that does not get on is an error."""
        order = {"key": uuid.uuid4().hex, "me": NAME}
        self._timed(connection, "place", old_tables.PLACE, order)
        ((run,),) = self._timed(connection, "take", old_tables.TAKE, order)
        for position in range(4):
            ((claimed,),) = self._timed(connection, "claim", old_tables.CLAIM, {**order, "run": run})
            if claimed != position:
                self.errors.append(f"step {claimed} was claimed in the place of {position}")
            self._timed(connection, "finish", old_tables.FINISH, {**order, "run": run, "position": position})
        self._timed(connection, "look", old_tables.LOOK, {})
        self.finished += 1

    def _timed(self, connection: psycopg.Connection[Any], what: str, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        at, began = time.time(), time.monotonic()
        try:
            cursor = connection.execute(statement, values)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []
        finally:
            self.took.append((at, time.monotonic() - began, what))

    def _look_for_waits(self) -> None:
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            while not self._stop.wait(LOOK_SECONDS):
                row = connection.execute(_WAITING, [NAME]).fetchone()
                if row and row[0]:
                    self.waited.append((time.time(), row[0]))
