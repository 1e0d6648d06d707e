"""Live updates for pages: one LISTEN connection per web process, fanned out to its visitors.

A trigger on the event table sends a NOTIFY at commit, so the events of all writers are announced. It does so only while a
listener exists, which the `Audience` row says: PostgreSQL commits transactions that send a NOTIFY one after the other
(docs/adr/0013). A lost notification delays a page until its next poll, and never delays an order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator

import psycopg

from supervision.postgres import db

log = logging.getLogger(__name__)

CHANNEL = "supervision_events"
POLL_SECONDS = 5.0  # the longest a page waits when a notification was lost
AUDIENCE_SECONDS = 30.0  # for how long events are still announced to a listener that died
UNDER_WAY_SECONDS = 0.5  # by then, transactions that did not see the audience row yet have committed

_ATTEND = """
INSERT INTO supervision_audience (id, until) VALUES (1, now() + %s * interval '1 s')
ON CONFLICT (id) DO UPDATE SET until = greatest(supervision_audience.until, excluded.until)
"""


class _Listener:
    """One connection that listens, and the visitors that wait for events of their runs."""

    def __init__(self) -> None:
        self.visitors: dict[asyncio.Event, str] = {}  # visitor -> key of the run it waits for
        self._runs: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        while self.visitors:
            try:
                await self._listen_once()
            except (psycopg.Error, OSError) as error:
                log.warning("listening for events failed (%s), trying again", error)
                await asyncio.sleep(1.0)

    async def _listen_once(self) -> None:
        async with await psycopg.AsyncConnection.connect(autocommit=True, **db.listening_params()) as listening:
            clock = asyncio.get_running_loop().time
            await listening.execute(f"LISTEN {CHANNEL}")
            attend_at, pause = clock(), UNDER_WAY_SECONDS
            while self.visitors:
                if clock() >= attend_at:
                    await listening.execute(_ATTEND, [AUDIENCE_SECONDS])
                    attend_at, pause = clock() + pause, AUDIENCE_SECONDS / 3
                    self._wake(None)  # for transactions that announced nothing because they did not see the audience row
                # The generator occupies the connection: leave it before executing another statement.
                patience = max(0.0, min(POLL_SECONDS, attend_at - clock()))
                notes = [note async for note in listening.notifies(timeout=patience, stop_after=1)]
                if notes:
                    await self._learn_runs(listening)
                for note in notes:
                    named = None if note.payload == "*" else set(map(int, filter(None, note.payload.split(","))))
                    self._wake(named)

    async def _learn_runs(self, listening: psycopg.AsyncConnection[tuple[int, str]]) -> None:
        """Look up the ids of the visitors' runs: notifications carry ids, which exist once a submission is consumed."""
        wanted = set(self.visitors.values())
        self._runs = {key: run for key, run in self._runs.items() if key in wanted}
        unknown = list(wanted - self._runs.keys())
        if unknown:
            cursor = await listening.execute("SELECT key, id FROM supervision_run WHERE key = ANY(%s)", [unknown])
            self._runs |= dict(await cursor.fetchall())  # type: ignore[arg-type]

    def _wake(self, runs: set[int] | None) -> None:
        for visitor, key in self.visitors.items():
            if runs is None or self._runs.get(key) in runs:
                visitor.set()


_listeners: dict[int, _Listener] = {}


async def subscribe(run_key: str) -> AsyncIterator[None]:
    """Yield whenever something of this run may have changed, and at least every few seconds; the caller reads again."""
    loop = asyncio.get_running_loop()
    listener = _listeners.setdefault(id(loop), _Listener())
    news = asyncio.Event()
    listener.visitors[news] = run_key
    listener.start()
    try:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), POLL_SECONDS)
            news.clear()
            yield
    finally:
        listener.visitors.pop(news, None)
