"""The time of a run whose plan branches: what several branches wait at once counts once, and only while they wait."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from supervision import WaitForSignal, parallel, plan, testing
from supervision.insight.waiting import why_waiting
from supervision.intake import consuming
from supervision.models import Resource, StepState
from supervision.operations import operator_verbs, pauses
from supervision.recovery import failures, supervisor
from supervision.signals.sending import NewSignal, send_all
from supervision.store import claiming, step_verbs
from tests.engine import kit
from tests.support import toy
from tests.workflows.conftest import HOUR
from tests.workflows.test_branches import A, B, C, D, step

DAY = 24 * HOUR


def left(key):
    """Hours until the run's complete_by."""
    return float(kit.fetch("SELECT extract(epoch FROM complete_by - now()) / 3600 FROM supervision_run WHERE key = %s", [key])[0][0])


def finish_only(label):
    """One pass of the scheduler, which claims several branches; only this one is performed."""
    [(place, claims)] = [sent for sent in kit.schedule() if sent[0].label == label]
    kit.finish(place, step_verbs.start(place, claims))


def test_a_pause_that_holds_several_branches_takes_its_own_time_and_not_more(sas, flow):
    flow(*plan(parallel(A, B, C), D), complete_within=DAY)
    (key,) = kit.waiting(1, "waiting")
    pauses.pause("all", reason="an inventory", by="ada")
    kit.hours_pass(10)
    pauses.lift("all", by="ada")
    kit.hours_pass(23.9)
    supervisor.sweep_once()
    assert left(key) == pytest.approx(0.1, abs=0.02)


def test_a_join_is_held_by_the_limit_of_its_service_only_from_the_last_branch_on(sas, flow, monkeypatch):
    kit.only_agent_with_a_service(monkeypatch, "alpha")
    Resource.objects.filter(name="the-service").update(capacity=1)
    flow(*plan(parallel(B, C), D), complete_within=DAY)
    (key,) = kit.waiting(1, "waiting")
    finish_only("b")
    testing.expire(key)
    supervisor.sweep_once()
    kit.hours_pass(25)  # no process takes up c, whose agent has no limit
    supervisor.sweep_once()
    assert kit.state(key) == "Error"


def test_a_join_whose_branches_are_done_is_held_by_the_limit_of_its_service(sas, flow, monkeypatch):
    kit.only_agent_with_a_service(monkeypatch, "alpha")
    Resource.objects.filter(name="the-service").update(capacity=1)
    flow(*plan(parallel(B, C), D), complete_within=DAY)
    (key,) = kit.waiting(1, "waiting")
    for place, claims in kit.schedule():
        items = step_verbs.start(place, claims)
        step_verbs.finish_at(place, step_verbs.Successor.DUE)([(item, {}) for item in items])
    kit.hours_pass(25)
    supervisor.sweep_once()
    assert (kit.states(key)[2], kit.state(key)) == ("Pending", "Processing")


def test_a_session_holds_a_branch_only_until_its_run_begins(sas, flow):
    flow(*plan(parallel(A, B), C), intake=toy.INTAKE, complete_within=DAY)
    first, second = (sas.submit("waiting", {"n": n, "session_key": "s"}).key for n in range(2))
    consuming.consume_batch(born=False)
    pauses.pause("agent", "beta", reason="an inventory", by="ada")
    finish_only("a")
    pauses.lift("agent", "beta", by="ada")
    kit.hours_pass(25)  # no process takes up b
    supervisor.sweep_once()
    assert (kit.state(first), kit.state(second)) == ("Error", "Pending")


def test_a_run_whose_time_is_over_stops_at_the_step_that_is_due_and_not_at_a_wait(sas, flow):
    flow(*plan(A, parallel(WaitForSignal("paid", within=HOUR), [B, C]), D), complete_within=HOUR / 2)
    (key,) = kit.waiting(1, "waiting")
    finish_only("a")
    pauses.pause("agent", "beta", reason="an inventory", by="ada")
    testing.expire(key)
    kit.expire_and_sweep()
    kit.again()  # the wait falls asleep
    pk = kit.run_of(key).pk
    assert why_waiting([pk])[pk].startswith("The agent beta is paused by ada")
    pauses.lift("agent", "beta", by="ada")
    assert why_waiting([pk])[pk].startswith("b waits for its turn")
    kit.fetch("UPDATE supervision_run SET complete_by = now() - interval '1 s'")
    supervisor.sweep_once()
    assert dict(StepState.objects.filter(run_id=pk).values_list("name", "process_state"))["b"] == "Error"
    send_all([NewSignal(run=key, name="paid", key="k", payload={})])
    operator_verbs.resubmit(key, by="ada", reason="go on")
    kit.again()
    assert kit.state(key) == "Processed"
    kit.healthy()


def test_a_wide_run_is_held_back_in_a_few_statements(sas, flow):
    flow(*plan(A, parallel(*[step(f"s{n}", "beta") for n in range(100)]), D))
    key, place, items = kit.started("waiting")
    kit.finish(place, items)
    testing.expire(key)
    supervisor.sweep_once()
    [(place, claims)] = claiming.claim(1).items()
    with CaptureQueriesContext(connection) as seen:
        failures.fail(place, [(item.claim, kit.refusal()) for item in step_verbs.start(place, claims)])
    assert len(seen) < 40
    kit.healthy()
