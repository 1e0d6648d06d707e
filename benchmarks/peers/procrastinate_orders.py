"""Procrastinate: four jobs, each of which defers the next. Jobs are rows in PostgreSQL.

`python -m benchmarks.peers.procrastinate_orders schema|worker`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import procrastinate

from benchmarks import ledger
from benchmarks.peers.work import LAST, STEPS, payload, perform_async

CONCURRENCY = int(os.environ.get("PROCRASTINATE_CONCURRENCY", "50"))
QUEUE = "orders"
# libpq's own variables name the database.
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo="", min_size=2, max_size=30))


def _task(position: int) -> Any:
    @app.task(name=STEPS[position], queue=QUEUE)
    async def step(order: dict[str, Any]) -> None:
        await perform_async(position)
        if position == LAST:
            ledger.order(order["began"])
        else:
            await tasks[position + 1].defer_async(order=order)

    return step


tasks = [_task(position) for position in range(len(STEPS))]


def connect() -> Callable[[Sequence[float]], None]:
    """One job per order."""
    patched = app.replace_connector(procrastinate.SyncPsycopgConnector(conninfo=""))
    patched.__enter__().open()

    def submit(begins: Sequence[float]) -> None:
        for began in begins:
            tasks[0].defer(order=payload(began))

    submit.connection = patched  # type: ignore[attr-defined] - for as long as the process lives
    return submit


async def main() -> None:
    """Create the schema, or work until ended."""
    async with app.open_async():
        if sys.argv[1:] == ["schema"]:
            await app.schema_manager.apply_schema_async()
        else:
            await app.run_worker_async(queues=[QUEUE], concurrency=CONCURRENCY, fetch_job_polling_interval=1.0)


if __name__ == "__main__":
    asyncio.run(main())
