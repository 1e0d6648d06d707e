"""DBOS: a workflow of four steps on a durable queue in PostgreSQL.

`python -m benchmarks.peers.dbos_orders` is a worker. With `schema` it only makes the tables.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from dbos import DBOS, DBOSClient

from benchmarks import ledger
from benchmarks.peers.work import STEPS, payload, perform

QUEUE = "orders"
THREADS = int(os.environ.get("DBOS_THREADS", "16"))
CONCURRENCY = int(os.environ.get("DBOS_CONCURRENCY", "32"))
POLL_SECONDS = float(os.environ.get("DBOS_POLL", "0.02"))


def main() -> None:
    """Take workflows off the queue until ended."""
    DBOS(
        config={
            "name": "orders",
            "system_database_url": os.environ["DBOS_URL"],
            "log_level": "ERROR",
            "application_version": "1",
            "executor_id": f"worker-{os.getpid()}",
            "enable_otlp": False,
            "sys_db_pool_size": 30,
            "max_executor_threads": THREADS,
        }
    )
    steps = [DBOS.step(name=name)(_step(position)) for position, name in enumerate(STEPS)]

    @DBOS.workflow(name="order")
    def order(facts: dict[str, Any]) -> dict[str, Any]:
        results = [step() for step in steps]
        ledger.order(facts["began"])
        return {"results": results}

    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=CONCURRENCY, polling_interval_sec=POLL_SECONDS, on_conflict="always_update")
    if sys.argv[1:] == ["schema"]:
        DBOS.destroy()
        return
    threading.Event().wait()


def _step(position: int) -> Callable[[], dict[str, Any]]:
    def step() -> dict[str, Any]:
        return perform(position)

    step.__qualname__ = step.__name__ = STEPS[position]
    return step


def connect() -> Callable[[Sequence[float]], None]:
    """One enqueued workflow per order."""
    client = DBOSClient(system_database_url=os.environ["DBOS_URL"])

    def submit(begins: Sequence[float]) -> None:
        for began in begins:
            client.enqueue(
                {"workflow_name": "order", "queue_name": QUEUE, "app_version": "1", "application_name": "orders"}, payload(began)
            )

    return submit


if __name__ == "__main__":
    main()
