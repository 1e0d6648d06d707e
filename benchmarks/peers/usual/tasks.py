"""Claim with an update, work, complete with an update, publish the next step on commit, acknowledge late.

For a fair comparison `CELERY_DB_REUSE_MAX` keeps the connections that Celery would close around every task. Without it
this program does a third of the orders.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

import django
from celery import Celery
from django.db import transaction
from django.utils import timezone

from benchmarks import ledger
from benchmarks.peers.work import LAST, STEPS, payload, perform

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.peers.usual.settings")
django.setup()

from benchmarks.peers.usual.models import Order, State, Step  # noqa: E402 - models need the applications

app = Celery("usual", broker=os.environ["CELERY_BROKER_URL"])
app.conf.update(task_default_queue="bench_usual", task_ignore_result=True, task_acks_late=True, broker_connection_retry_on_startup=True)
app.add_defaults({"CELERY_DB_REUSE_MAX": 10**9})


@app.task(name="usual.step")
def step(order_id: int, position: int, began: float) -> None:
    """One step of one order."""
    me = f"worker-{os.getpid()}"
    mine = Step.objects.filter(order_id=order_id, position=position, state=State.PENDING).update(
        state=State.PROCESSING, locked_by=me, complete_by=timezone.now() + timedelta(seconds=30)
    )
    if not mine:
        return
    result = perform(position)
    with transaction.atomic():
        Step.objects.filter(order_id=order_id, position=position, state=State.PROCESSING, locked_by=me).update(
            state=State.PROCESSED, locked_by="", complete_by=None, result=result
        )
        if position == LAST:
            Order.objects.filter(pk=order_id).update(state=State.PROCESSED)
        else:
            transaction.on_commit(partial(step.delay, order_id, position + 1, began))
    if position == LAST:
        ledger.order(began)


def connect() -> Callable[[Sequence[float]], None]:
    """One transaction per order, the first step published on commit."""

    def submit(begins: Sequence[float]) -> None:
        for began in begins:
            with transaction.atomic():
                order = Order.objects.create(payload=payload(began))
                Step.objects.bulk_create([Step(order_id=order.pk, position=n) for n in range(len(STEPS))])
                transaction.on_commit(partial(step.delay, order.pk, 0, began))

    return submit


def create_tables() -> None:
    """Create the tables in the database that the environment names."""
    from django.core.management import call_command

    call_command("migrate", run_syncdb=True, verbosity=0)


if __name__ == "__main__":
    create_tables()
