"""The periodic sweep: which task beat sends, that only the leader sweeps, and how a leader is elected by its lease."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor

import pytest
from celery import current_app
from django_celery_beat.models import PeriodicTask

from supervision import tasks
from supervision.models import LeaderLease
from supervision.operations import operator_verbs
from supervision.recovery import leader_lease, supervisor
from supervision.runtime import identity
from supervision.testing import expire, step
from supervision.worker.beat import Scheduler
from supervision.worker.lifecycle import SWEEP_TASK, set_sweep_interval
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture(autouse=True)
def _no_delivery(monkeypatch):
    """Keep the delivery worker's threads from starting: they would outlive these tests, which do not look at deliveries."""
    monkeypatch.setattr(tasks.delivery_worker, "wake", lambda: None)


def timetable():
    """Beat's schedule, read from the rows that the migrations have made."""
    scheduler = Scheduler(app=current_app, lazy=True)
    try:
        return scheduler.all_as_schedule()
    finally:
        scheduler.connection.release()


def test_what_beat_sends_every_five_seconds_recovers_an_expired_step():
    key, *_ = kit.started()
    bystander, *_ = kit.started()
    expire(key)

    entry = timetable()[SWEEP_TASK]
    current_app.tasks[entry.task]()

    assert (entry.schedule.run_every.total_seconds(), entry.options["queue"]) == (5, "supervisor")
    row = step(key, "alpha-step")
    assert (row.process_state, row.failure_count) == ("Pending", 1)
    assert step(bystander, "alpha-step").process_state == "Processing"


def test_beat_looks_as_often_as_it_is_told_from_then_on():
    before = PeriodicTask.objects.get(name=SWEEP_TASK).interval
    try:
        set_sweep_interval(17)

        assert timetable()[SWEEP_TASK].schedule.run_every.total_seconds() == 17
    finally:
        PeriodicTask.objects.filter(name=SWEEP_TASK).update(interval=before)


def test_only_the_leader_sweeps_and_another_follows_when_its_lease_has_run_out(monkeypatch):
    key, *_ = kit.started()
    expire(key)
    with monkeypatch.context() as rival:
        rival.setattr(leader_lease, "me", lambda: "rival")
        assert leader_lease.lead("supervisor") is not None

    tasks.sweep()
    before = kit.states(key)[0], step(key, "alpha-step").failure_count
    kit.fetch("UPDATE supervision_leaderlease SET expires_at = clock_timestamp() - interval '1 ms'")
    tasks.sweep()

    assert before == ("Processing", 0)
    assert (kit.states(key)[0], step(key, "alpha-step").failure_count) == ("Pending", 1)


def test_whatever_a_sweep_decides_it_calls_no_agent():
    unstarted, *_ = kit.claimed()
    expired, *_ = kit.started()
    exhausted, *_ = kit.started("toy-undo")
    kit.fetch(
        "UPDATE supervision_stepstate s SET failure_count = 2 FROM supervision_run r WHERE r.id = s.run_id AND r.key = %s", [exhausted]
    )
    late, *_ = kit.started()
    kit.fetch("UPDATE supervision_run SET complete_by = now() - interval '1 s' WHERE key = %s", [late])
    cancelled = kit.in_error(1)
    operator_verbs.compensate(cancelled, by="operator", reason="hopeless")
    expire(unstarted, expired, exhausted, late)
    toy.reset()

    report = supervisor.sweep_once()

    assert (report.redispatched, report.retried, report.compensating, report.errors) == (1, 1, 1, 1)
    assert (kit.state(late), kit.state(cancelled)) == ("Error", "Compensating")
    called = [request for agent in (toy.ALPHA, toy.BETA, toy.GAMMA) for request in (*agent.performed, *agent.undone)]
    assert called == []


def as_another(monkeypatch, name: str) -> None:
    monkeypatch.setattr(leader_lease, "me", lambda: name)


def test_the_first_to_ask_leads_and_renewing_keeps_the_term(monkeypatch):
    assert leader_lease.lead("supervisor") == 1
    until = LeaderLease.objects.get().expires_at

    assert leader_lease.lead("supervisor") == 1
    assert LeaderLease.objects.get().expires_at > until


def test_nobody_else_leads_while_the_lease_holds(monkeypatch):
    leader_lease.lead("supervisor")
    as_another(monkeypatch, "rival")

    assert leader_lease.lead("supervisor") is None
    assert leader_lease.lead("something else") == 1


def test_another_takes_over_with_a_new_term_when_the_lease_has_run_out(monkeypatch):
    leader_lease.lead("supervisor")
    kit.fetch("UPDATE supervision_leaderlease SET expires_at = clock_timestamp() - interval '1 ms'")
    as_another(monkeypatch, "rival")

    assert leader_lease.lead("supervisor") == 2
    assert LeaderLease.objects.get().holder == "rival"


def test_a_leader_that_resigns_is_followed_at_once(monkeypatch):
    leader_lease.lead("supervisor")
    leader_lease.resign("supervisor")
    as_another(monkeypatch, "rival")

    assert leader_lease.lead("supervisor") == 2


def test_resigning_takes_the_lead_from_nobody_else(monkeypatch):
    leader_lease.lead("supervisor")
    as_another(monkeypatch, "rival")

    leader_lease.resign("supervisor")

    assert leader_lease.lead("supervisor") is None


def test_of_many_who_ask_at_once_one_leads(monkeypatch):
    monkeypatch.setattr(leader_lease, "me", lambda: threading.current_thread().name)

    answers = kit.at_once(*[lambda: leader_lease.lead("supervisor")] * 8)

    assert sorted(answers, key=str) == [1] + [None] * 7


def test_every_incarnation_has_a_name_of_its_own():
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as forked:
        names = [identity.me(), *(forked.submit(identity.me).result() for _ in range(2))]

    assert names[1] == names[2] != names[0] == identity.me()
