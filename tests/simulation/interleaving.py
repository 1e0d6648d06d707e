"""Several actors, each with its own connection, run one statement at a time, in an order that a seed decides.

Every statement and every commit of an actor waits at a gate. The stage opens one gate and waits until that actor stands
at its next gate, is done, or waits for another actor's lock. Then it draws the next gate. No two actors run at the same
time, so the same seed gives the same story, and no lock wait needs a timeout to be noticed.
"""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from django.db import connection
from psycopg.errors import DeadlockDetected

from supervision.postgres import cursors, db

PATIENCE_SECONDS = 60
NOT_WORTH_A_GATE = ("DISCARD", "SAVEPOINT", "RELEASE", "SET")


class _GatedCursor(cursors.Cursor):
    gate: Callable[[], None]
    counting: Callable[[], AbstractContextManager[None]]

    def execute(self, query: Any, *args: Any, **options: Any) -> Any:
        if not str(query).startswith(NOT_WORTH_A_GATE):
            self.gate()
        with self.counting():
            return super().execute(query, *args, **options)


class Actor:
    """A thread with a connection that stops at each gate until the stage opens it."""

    def __init__(self, changed: threading.Condition) -> None:
        self.changed = changed
        self.state = "done"
        self.answer: Any = None
        self.pid = 0
        self.deadlocks = 0
        self._playing = False
        self._turn = threading.Event()
        self._work: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._live, daemon=True).start()

    def begin(self, work: Callable[[], Any]) -> None:
        """Start this work, up to its first gate."""
        self.state, self.answer, self.deadlocks = "running", None, 0
        self._work.put(work)

    def go(self) -> None:
        """Open the gate this actor stands at."""
        self.state = "running"
        self._turn.set()

    def end(self) -> None:
        """Close its connection and let the thread end."""
        self._work.put(None)

    def _gate(self) -> None:
        if not self._playing:
            return
        self._become("gated")
        if not self._turn.wait(PATIENCE_SECONDS):
            raise TimeoutError("the stage did not open the gate")
        self._turn.clear()

    def _become(self, state: str) -> None:
        with self.changed:
            self.state = state
            self.changed.notify_all()

    def _live(self) -> None:
        self._prepare()
        while (work := self._work.get()) is not None:
            self._playing = True
            try:
                self._gate()
                self.answer = work()
            except Exception as error:
                self.answer = error
            self._playing = False
            self._become("done")
        connection.close()

    def _prepare(self) -> None:
        connection.ensure_connection()
        raw = connection.connection
        with connection.cursor() as cursor:
            cursor.execute("SET synchronous_commit = off")
            cursor.execute("SET deadlock_timeout = '20ms'")
        self.pid = raw.info.backend_pid
        raw.prepare_threshold = 0
        cursor = cursors._local.cursor = _GatedCursor(raw)
        cursor.gate, cursor.counting = self._gate, self._counting
        commit = connection._commit

        def gated_commit() -> Any:
            self._gate()
            return commit()

        connection._commit = gated_commit  # type: ignore[method-assign]
        connection.execute_wrappers.append(self._statement)

    def _statement(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        if not sql.startswith(NOT_WORTH_A_GATE):
            self._gate()
        with self._counting():
            return execute(sql, params, many, context)

    @contextmanager
    def _counting(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.deadlocks += isinstance(error if isinstance(error, DeadlockDetected) else error.__cause__, DeadlockDetected)
            raise


class Stage:
    """The actors and the choice of the next one to run."""

    def __init__(self, actors: int = 3) -> None:
        cursors.at_once = False  # each statement of a transaction has a gate
        self._changed = threading.Condition()
        self._actors = [Actor(self._changed) for _ in range(actors)]
        self.waits = 0  # how often an actor waited for a lock
        self.played: list[int] = []

    def play(self, works: Sequence[Callable[[], Any]], dice: random.Random) -> list[Any]:
        """Run these functions interleaved, one actor each; returns their results and exceptions."""
        cast = self._actors[: len(works)]
        self.played = []
        for actor, work in zip(cast, works, strict=True):
            actor.begin(work)
        while True:
            self._settle(cast)
            ready = [number for number, actor in enumerate(cast) if actor.state == "gated"]
            if not ready:
                return [actor.answer for actor in cast]
            number = dice.choice(ready)
            self.played.append(number)
            cast[number].go()

    def _settle(self, cast: Sequence[Actor]) -> None:
        """Wait until every actor stands at a gate, is done, or waits for the lock of an actor at a gate."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        while True:
            with self._changed:
                self._changed.wait_for(lambda: all(actor.state != "running" for actor in cast), 0.004)
                running = [actor.pid for actor in cast if actor.state == "running"]
                gated = any(actor.state == "gated" for actor in cast)
            if not running:
                return
            if gated and self._blocked(running):
                self.waits += 1
                return
            assert time.monotonic() < give_up, "the actors are stuck"

    @staticmethod
    def _blocked(pids: Sequence[int]) -> bool:
        rows = db.fetch("SELECT bool_and(cardinality(pg_blocking_pids(p)) > 0) FROM unnest(%(pids)s::int[]) p", {"pids": list(pids)})
        return bool(rows[0][0])

    @property
    def deadlocks(self) -> int:
        """How often PostgreSQL had to end a deadlock in the last story."""
        return sum(actor.deadlocks for actor in self._actors)

    def close(self) -> None:
        """End all actors."""
        cursors.at_once = True
        for actor in self._actors:
            actor.end()


@contextmanager
def stage() -> Iterator[Stage]:
    """A stage with its actors for the length of the block."""
    built = Stage()
    try:
        yield built
    finally:
        built.close()
