"""A plain Celery chain of four tasks. Only the broker keeps state: there are no rows of steps to recover from."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from celery import Celery, chain

from benchmarks import ledger
from benchmarks.peers.work import LAST, STEPS, payload, perform

app = Celery("chain", broker=os.environ["CELERY_BROKER_URL"])
app.conf.update(task_default_queue="bench_chain", task_ignore_result=True, broker_connection_retry_on_startup=True)


def _task(position: int) -> Any:
    @app.task(name=f"chain.{STEPS[position]}")
    def step(order: dict[str, Any]) -> dict[str, Any]:
        result = perform(position)
        if position == LAST:
            ledger.order(order["began"])
        return {**order, STEPS[position]: result}

    return step


tasks = [_task(position) for position in range(len(STEPS))]


def connect() -> Callable[[Sequence[float]], None]:
    """One message per order; the tasks pass it on."""

    def submit(begins: Sequence[float]) -> None:
        for began in begins:
            chain(tasks[0].s(payload(began)), *(task.s() for task in tasks[1:])).apply_async()

    return submit
