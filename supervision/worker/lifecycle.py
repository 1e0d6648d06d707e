"""Signal handlers of our Celery workers. At the start a worker learns its queues and starts its threads; at the end it stops them."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from celery import signals
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from supervision import conf
from supervision.dispatch import partitions, scheduler
from supervision.execution import local_pickup, runner
from supervision.governance import circuit_breaker, response_cache
from supervision.intake import amqp_consumer
from supervision.journal import writer
from supervision.plans import guard
from supervision.postgres import db, pooling
from supervision.recovery import leader_lease
from supervision.runtime import failpoints, identity
from supervision.runtime.periodic import PeriodicLoop
from supervision.telemetry import measures, spans
from supervision.wakeup import notify
from supervision.worker import consumption_check, heartbeats, held_threads

log = logging.getLogger(__name__)

FINISH_SECONDS = 15.0  # of the 30 s a process has between SIGTERM and its end
INTAKE_SECONDS = 5.0  # for the current batch
JOURNAL_SECONDS = 5.0  # for the journal's last flush
SWEEP_TASK = "look for overdue steps"


@signals.celeryd_after_setup.connect
def learn_queues(sender: str, instance: Any, **_: Any) -> None:
    """Remember which queues this worker serves: a cohort goes on in this process if it serves the next agent's queue."""
    heartbeats.touch_file()  # before the worker waits for its database and its broker
    identity.set_role(_role(sender))
    for queue in partitions.of_workers(list(instance.app.amqp.queues.consume_from)):
        instance.app.amqp.queues.select_add(queue)
    runner.process.serve(queue for queue in instance.app.amqp.queues.consume_from if queue.startswith("agent."))
    try:
        failpoints.load()
        spans.start(_role(sender))
    except ImproperlyConfigured as problem:  # Celery would write it to the log, and start the worker all the same
        sys.stderr.write(f"refused: {problem}\n")
        sys.exit(1)


def _role(node: str) -> str:
    """The role in a worker's name: `agents` of `agents-4711@host`."""
    return node.partition("@")[0].rstrip("0123456789").rstrip("-") or "worker"


@signals.celeryd_after_setup.connect
def compare_plans(**_: Any) -> None:
    """End a worker whose plan of a workflow's version differs from the registered one, before it takes work."""
    pooling.refuse_lost_sessions()
    guard.refuse_other_plans()


@signals.worker_ready.connect
def begin_beating(sender: Any, **_: Any) -> None:
    """Start the heartbeats, the watch on canaries, and the threads that this worker's queues need."""
    name = str(getattr(sender, "hostname", "worker"))
    queues = sorted(sender.app.amqp.queues.consume_from)
    watch = consumption_check.keep_watching(queues, sender.controller.concurrency)

    def describe() -> dict[str, Any]:
        circuit_breaker.tell()
        return {"queues": queues, "pid": os.getpid(), "canary": watch.rounds(), "workflows": guard.keep_confirming()}

    heartbeats.keep_beating(_role(name), describe)
    if runner.process.queues:  # also those of one partition alone
        held_threads.keep_watching(runner.process)
    if "supervisor" in queues:
        writer.start()
        response_cache.start()
    if "submissions" in queues:
        amqp_consumer.start(sender.app)
    if (
        work := _on_new_order(queues, begins=_works_here(type(sender.pool)) and local_pickup.applies_to(runner.process.queues))
    ) is not None:
        _listen(work)
    if failpoints.hit("worker.deaf"):
        sender.task_consumer.cancel()


_listener: PeriodicLoop | None = None


def _works_here(pool: type) -> bool:
    """Whether tasks run in this process. It does not see the work of child processes, and would believe that it is idle."""
    return pool.__module__ != "celery.concurrency.prefork"


def _on_new_order(queues: Sequence[str], *, begins: bool) -> Callable[[], object] | None:
    """The function that this worker's listener calls for a new order. begins: the worker schedules orders itself when it is idle."""
    consumes = "submissions" in queues
    if consumes and begins:
        return local_pickup.schedule_or_consume
    return local_pickup.of_scheduler() if consumes else local_pickup.schedule if begins else None


def _listen(work: Callable[[], object]) -> None:
    global _listener
    _listener = notify.listen(work).start()


@signals.task_prerun.connect
def note_received(task: Any, **_: Any) -> None:
    """Tell the canary watch of every message, because it shows that this worker consumes the queue."""
    if consumption_check.watch is not None:
        consumption_check.watch.received(str((task.request.delivery_info or {}).get("routing_key")))


@signals.task_postrun.connect
def note_done(**_: Any) -> None:
    """Tell the canary watch that a thread is free again."""
    if consumption_check.watch is not None:
        consumption_check.watch.done()


@signals.worker_shutting_down.connect
def stop_loops(**_: Any) -> None:
    """SIGTERM: finish the current batch and take no more."""
    scheduler.stopping.set()
    if _listener is not None:
        _listener.ask_to_stop()
    amqp_consumer.stop()


@signals.worker_shutdown.connect
def resign(**_: Any) -> None:
    """Report the calls still under way, and give up the leader lease at once instead of letting it expire."""
    until = time.monotonic() + FINISH_SECONDS
    if _listener is not None:
        _listener.stop(FINISH_SECONDS)
    runner.process.finish_up(max(0.0, until - time.monotonic()))
    amqp_consumer.finish(INTAKE_SECONDS)
    writer.stop(JOURNAL_SECONDS)
    response_cache.stop(0.0)
    try:
        leader_lease.resign("supervisor")
    except Exception as error:
        log.info("could not resign: %s", error)
    measures.at_end()
    spans.stop()


@signals.beat_init.connect
def adopt_interval(**_: Any) -> None:
    """If SUPERVISION_SWEEP_SECONDS is set for this process, it overrides the interval stored in the database."""
    heartbeats.touch_file()  # where Celery's own command started it
    if os.environ.get("SUPERVISION_SWEEP_SECONDS"):
        set_sweep_interval(conf.get().sweep_every.total_seconds())
    heartbeats.keep_beating("beat")
    connection.close()


def set_sweep_interval(seconds: float) -> None:
    """Set the supervisor's sweep interval. Celery beat notices the change by itself."""
    whole = seconds == int(seconds)
    every, period = (int(seconds), "seconds") if whole else (int(seconds * 1_000_000), "microseconds")
    db.transact(lambda: _write_interval(every, period))


def _write_interval(every: int, period: str) -> None:
    db.fetch(
        "INSERT INTO django_celery_beat_intervalschedule (every, period) SELECT %(every)s, %(period)s::varchar WHERE NOT EXISTS"
        " (SELECT FROM django_celery_beat_intervalschedule WHERE every = %(every)s AND period = %(period)s::varchar)",
        {"every": every, "period": period},
    )
    db.fetch(
        "UPDATE django_celery_beat_periodictask SET interval_id = (SELECT min(id) FROM"
        " django_celery_beat_intervalschedule WHERE every = %(every)s AND period = %(period)s) WHERE name = %(name)s",
        {"every": every, "period": period, "name": SWEEP_TASK},
    )
    db.fetch("UPDATE django_celery_beat_periodictasks SET last_update = now()")
