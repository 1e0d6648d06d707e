"""Live updates for pages: one thread per web process listens while a page is open, and wakes the visitors concerned.

A trigger on the event table sends a NOTIFY at commit, so the events of all writers are announced. It does so only while a
listener exists, which the `Audience` row says: PostgreSQL commits transactions that send a NOTIFY one after the other
(docs/adr/0013). A lost notification delays a page until its next poll, and never delays an order.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

from supervision.postgres.listener import Listener
from supervision.runtime.periodic import PeriodicLoop

CHANNEL = "supervision_events"
POLL_SECONDS = 5.0  # the longest a page waits when a notification was lost
AUDIENCE_SECONDS = 30.0  # for how long events are still announced to a listener that died
UNDER_WAY_SECONDS = 0.5  # by then, transactions that did not see the audience row yet have committed

_ATTEND = """
INSERT INTO supervision_audience (id, until) VALUES (1, now() + %(seconds)s * interval '1 s')
ON CONFLICT (id) DO UPDATE SET until = greatest(supervision_audience.until, excluded.until)
"""


class _Visitor(NamedTuple):
    """One open page: the event that its coroutine waits for, in that event loop."""

    run_key: str
    news: asyncio.Event
    loop: asyncio.AbstractEventLoop


class _Audience:
    """The visitors of this process, and the thread that listens for them as long as there are any."""

    def __init__(self) -> None:
        self.visitors: dict[int, _Visitor] = {}
        self._lock = threading.Lock()
        self._watching: _Watching | None = None

    def enter(self, visitor: _Visitor) -> None:
        with self._lock:
            self.visitors[id(visitor)] = visitor
            if self._watching is None:
                self._watching = _Watching(self)

    def leave(self, visitor: _Visitor) -> None:
        with self._lock:
            self.visitors.pop(id(visitor), None)
            if self._watching is not None and not self.visitors:
                self._watching.loop.ask_to_stop()
                self._watching = None

    def present(self) -> list[_Visitor]:
        with self._lock:
            return list(self.visitors.values())


class _Watching:
    """The connection that listens, and the loop around it. It starts at once."""

    def __init__(self, audience: _Audience) -> None:
        self._audience = audience
        self._runs: dict[str, int] = {}
        self._attend_at, self._pause = 0.0, UNDER_WAY_SECONDS
        self._listener = Listener(CHANNEL)
        self.loop = PeriodicLoop("live events", 0.0, self._turn, self._listener.close, interrupt=self._listener.interrupt).start()

    def _turn(self) -> None:
        heard = self._listener.wait(max(0.0, min(POLL_SECONDS, self._attend_at - time.monotonic())))
        if heard is None:
            self._attend_at, self._pause = 0.0, UNDER_WAY_SECONDS
        if time.monotonic() >= self._attend_at:
            self._listener.execute(_ATTEND, {"seconds": AUDIENCE_SECONDS})
            self._attend_at, self._pause = time.monotonic() + self._pause, AUDIENCE_SECONDS / 3
            self._wake(None)  # for transactions that announced nothing because they did not see the audience row
        elif heard:
            named = {int(run) for payload in heard if payload != "*" for run in payload.split(",") if run}
            self._learn_runs()
            self._wake(None if "*" in heard else named)

    def _learn_runs(self) -> None:
        """Look up the ids of the visitors' runs: notifications carry ids, which exist once a submission is consumed."""
        wanted = {visitor.run_key for visitor in self._audience.present()}
        self._runs = {key: run for key, run in self._runs.items() if key in wanted}
        if unknown := list(wanted - self._runs.keys()):
            found = self._listener.execute("SELECT key, id FROM supervision_run WHERE key = ANY(%(keys)s)", {"keys": unknown})
            self._runs |= dict(found.fetchall())

    def _wake(self, runs: set[int] | None) -> None:
        for visitor in self._audience.present():
            if runs is None or self._runs.get(visitor.run_key) in runs:
                try:
                    visitor.loop.call_soon_threadsafe(visitor.news.set)
                except RuntimeError:  # its event loop has ended
                    self._audience.leave(visitor)


_audience = _Audience()


async def subscribe(run_key: str) -> AsyncIterator[None]:
    """Yield whenever something of this run may have changed, and at least every few seconds; the caller reads again."""
    visitor = _Visitor(run_key, asyncio.Event(), asyncio.get_running_loop())
    _audience.enter(visitor)
    try:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(visitor.news.wait(), POLL_SECONDS)
            visitor.news.clear()
            yield
    finally:
        _audience.leave(visitor)
