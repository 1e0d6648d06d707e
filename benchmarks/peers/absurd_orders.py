"""Absurd: a task of four steps, each a checkpoint, in PostgreSQL's own functions.

`python -m benchmarks.peers.absurd_orders` is a worker. With `schema` it only makes the tables and the queue.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from absurd_sdk import Absurd

from benchmarks import ledger
from benchmarks.peers.work import STEPS, payload, perform

QUEUE = "orders"
THREADS = int(os.environ.get("ABSURD_THREADS", "16"))
POLL_SECONDS = 0.02


def main() -> None:
    """Take tasks off the queue until ended."""
    url = os.environ["DBOS_URL"]
    if sys.argv[1:] == ["schema"]:
        tool = Path(sys.executable).with_name("absurdctl")
        subprocess.run([sys.executable, tool, "init", "-d", url], check=True)
        Absurd(url, queue_name=QUEUE).create_queue()
        return
    worker = Absurd(url, queue_name=QUEUE)

    @worker.register_task(name="order")
    def order(facts: dict[str, Any], context: Any) -> dict[str, Any]:
        results = [context.step(name, partial(perform, position)) for position, name in enumerate(STEPS)]
        ledger.order(facts["began"])
        return {"results": results}

    worker.start_worker(concurrency=THREADS, poll_interval=POLL_SECONDS)


def connect() -> Callable[[Sequence[float]], None]:
    """One spawned task per order, on a connection of the thread."""
    mine = threading.local()

    def connected() -> Absurd:
        client = Absurd(os.environ["DBOS_URL"], queue_name=QUEUE)
        client.register_task(name="order")(lambda _facts, _context: None)
        return client

    def submit(begins: Sequence[float]) -> None:
        client = mine.client = getattr(mine, "client", None) or connected()
        for began in begins:
            client.spawn("order", payload(began), queue=QUEUE)

    return submit


if __name__ == "__main__":
    main()
