"""A process that works on a job is killed at any point: no order is forgotten, none is treated twice, and another process goes on."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest

from supervision.jobs import steering, working
from supervision.models import Job, JobResult, StepEvent
from tests.engine import kit
from tests.engine.test_jobs import own_list
from tests.support.forked import state_of

__all__ = ["own_list"]

pytestmark = pytest.mark.usefixtures("engine", "own_list")
ORDERS = 60


def started(verb: str = "resubmit") -> tuple[Job, list[str]]:
    keys = [kit.in_error(0) for _ in range(ORDERS)]
    return steering.start(verb, {"process_state": "Error"}, by="olga", reason="mended"), keys


def times_named(job: Job) -> Counter[str]:
    """How often each order's history says that its step left Error for this job."""
    named = StepEvent.objects.filter(why__contains=f"(job {job.pk}: ", from_state="Error", position__isnull=False)
    return Counter(named.values_list("run__key", flat=True))


@pytest.mark.parametrize(
    ("point", "treated"), [("job.before_commit=kill9@2", 25), ("job.after_commit=kill9@2", 50), ("verb.before_commit=kill9@30", 25)]
)
def test_a_job_whose_process_is_killed_goes_on_in_another_one(point, treated):
    job, keys = started()
    killed = kit.Process("job", FAILPOINTS=point, ALLOW_FAILPOINTS="1").ready()

    assert killed.begin().code() == -9

    job.refresh_from_db()
    assert (job.state, job.position) == ("running", treated)
    assert JobResult.objects.filter(job=job, outcome="done").count() == treated
    assert sum(times_named(job).values()) == treated
    assert kit.healthy()
    assert working.turn(rest=0.0) is False  # the lease of the dead process still stands
    kit.fetch("UPDATE supervision_job SET leased_until = now()")  # its time passes
    assert kit.Process("job").ready().begin().answer() >= 1

    job.refresh_from_db()
    assert (job.state, job.done, job.failed) == ("done", ORDERS, 0)
    assert times_named(job) == dict.fromkeys(keys, 1)
    assert kit.healthy()
    assert kit.idle_states(keys) == {"Processed"}


def test_a_process_killed_before_a_job_is_committed_leaves_none():
    keys = [kit.in_error(0) for _ in range(3)]
    killed = kit.Process("start_job", FAILPOINTS="job.before_start=kill9", ALLOW_FAILPOINTS="1").ready()

    assert killed.begin().code() == -9

    assert not Job.objects.exists()
    assert not JobResult.objects.exists()
    assert kit.idle_states(keys) == {"Error"}


def test_a_process_that_freezes_in_a_batch_loses_it_and_writes_nothing_when_it_wakes():
    job, keys = started()
    frozen = kit.Process("job_that_freezes", FAILPOINTS="job.before_commit=stop@1", ALLOW_FAILPOINTS="1").ready().begin()
    kit.until(lambda: state_of(frozen.pid) in ("T", "t"), what="the process to freeze")
    kit.until(
        lambda: not kit.fetch("SELECT 1 FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()"),
        what="the server to end the frozen transaction",
    )
    kit.fetch("UPDATE supervision_job SET leased_until = now()")

    while working.turn(rest=0.0):
        pass
    os.kill(frozen.pid, signal.SIGCONT)
    assert frozen.answer() >= 1

    job.refresh_from_db()
    assert (job.state, job.done) == ("done", ORDERS)
    assert times_named(job) == dict.fromkeys(keys, 1)
    assert kit.healthy()


def test_several_processes_at_once_treat_every_order_once():
    job, keys = started("skip")
    processes = [kit.Process("job").ready() for _ in range(3)]

    for process in processes:
        process.begin()
    for process in processes:
        process.answer()

    job.refresh_from_db()
    assert (job.state, job.done) == ("done", ORDERS)
    assert times_named(job) == dict.fromkeys(keys, 1)
    assert kit.healthy()
