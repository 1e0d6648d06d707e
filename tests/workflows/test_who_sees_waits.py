"""Who sees that a step waits: people, the audit, the archive, the claims."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.db.models.functions import Now

from supervision import Agent, Step, Timer, WaitForSignal, register_agent, testing
from supervision.audit import liveness
from supervision.errors import DefinitionError, Refused
from supervision.incidents import starvation
from supervision.insight import autoscaling, waiting
from supervision.models import ArchivedRun, Pause, Run, Signal
from supervision.operations import archive
from supervision.plans import registry
from supervision.recovery import held_time
from supervision.store.bounds.reachable_sql import NOTHING_DOWN
from supervision.store.step_sql import ANY_DUE
from tests.workflows.conftest import ALPHA, BETA, HOUR, asleep, paid


def why(run):
    pk = Run.objects.get(key=run.key).pk
    return waiting.why_waiting([pk])[pk]


def test_a_waiting_order_says_for_what_and_until_when(sas, flow):
    flow(paid(label="the customer's payment"), WaitForSignal("confirmed", within=HOUR), Timer("rest", lasts=HOUR))
    run = sas.start("waiting")
    assert why(run).startswith("paid waits for the customer's payment until ")
    run.signal("paid")
    assert why(run).startswith("paid waits for its turn")
    sas.run()
    assert why(run).startswith("confirmed waits for the signal confirmed until ")
    run.signal("confirmed")
    sas.run()
    assert why(run).startswith("rest waits until ")


def test_a_long_wait_is_no_standstill_and_one_that_is_over_is_one(sas, flow):
    flow(WaitForSignal("paid", within=timedelta(days=30)))
    sas.start("waiting")
    testing.let_pass(20 * 86_400)
    with liveness.within(60):
        assert list(liveness.stuck()) == []
        testing.let_pass(11 * 86_400)
        assert [stuck.why for stuck in liveness.stuck()] == ["no worker takes up its step paid"]


@pytest.mark.parametrize(
    ("harm", "invariant"),
    [
        ("UPDATE supervision_stepstate SET awaits = NULL", "a step that is asleep waits for a signal or a moment"),
        ("UPDATE supervision_stepstate SET awaits_until = NULL", "a step that is asleep waits for a signal or a moment"),
        ("INSERT INTO supervision_signal (run_key, name, key) SELECT key, 'paid', 'k' FROM supervision_run", "no step sleeps while"),
        ("INSERT INTO supervision_signal (run_key, name, key) VALUES ('none', 'paid', 'k')", "a signal that was taken belongs"),
        (
            "INSERT INTO supervision_signal (run_key, name, key, taken_by) SELECT key, 'paid', 'k', 'other' FROM supervision_run",
            "a signal that was taken belongs",
        ),
    ],
)
def test_the_audit_names_a_wait_or_a_signal_that_is_wrong(sas, flow, harm, invariant):
    flow(paid())
    sas.start("waiting")
    sas.assert_healthy()
    with connection.cursor() as cursor:
        cursor.execute(harm)
    with pytest.raises(AssertionError, match=invariant):
        sas.assert_healthy()


def test_the_archive_keeps_an_orders_signals(sas, flow):
    flow(paid())
    run = sas.start("waiting")
    run.signal("paid", {"amount": None})
    sas.run()
    list(archive.batches(timedelta(0)))
    assert not Signal.objects.exists()
    [signal] = ArchivedRun.objects.get(key=run.key).body["signals"]
    assert (signal["name"], signal["payload"], signal["taken_by"]) == ("paid", {"amount": None}, "paid")
    with pytest.raises(Refused, match="has ended"):
        run.signal("paid")
    sas.assert_healthy()


def test_a_changed_wait_or_condition_needs_a_new_version(sas, flow):
    before = registry.definition_of(flow(ALPHA, paid()))
    assert registry.first_difference(before, before) == ""
    other = registry.definition_of(flow(ALPHA, paid(signal="settled")))
    assert registry.first_difference(other, before) == "signal of step 2 (paid) is settled in this code and paid in the registered plan"
    conditional = registry.definition_of(flow(Step("alpha-step", agent="alpha", when=lambda facts: True), paid()))
    assert "conditional of step 1 (alpha-step) is yes in this code and no" in registry.first_difference(conditional, before)
    assert "signal" not in before["steps"][0]


def test_claims_read_no_step_that_is_asleep(sas, flow):
    flow(paid())
    for _ in range(300):
        sas.submit("waiting")
    sas.run()
    assert asleep() == 300
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE supervision_stepstate")
        cursor.execute("SET enable_seqscan = off")
        params = {"shut": [], **NOTHING_DOWN, "since": "-infinity", "known": ["waiting 1"]}
        cursor.execute("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + ANY_DUE, params)
        [[plan]] = cursor.fetchall()
        cursor.execute("SET enable_seqscan = on")
    scans = [node for node in nodes(plan[0]["Plan"]) if node.get("Relation Name") == "supervision_stepstate"]
    assert sum(node["Actual Rows"] + node.get("Rows Removed by Filter", 0) for node in scans) == 0, plan


def nodes(plan):
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def test_time_asleep_counts_as_held_once(sas, flow):
    """A pause during the sleep adds nothing: the whole wait was added when the step fell asleep."""
    flow(ALPHA, WaitForSignal("paid", within=timedelta(days=10)), BETA, complete_within=timedelta(hours=3))
    run = sas.start("waiting")
    Pause.objects.create(scope="all", reason="x", paused_by="y", name="")
    testing.let_pass(5 * 86_400)
    Pause.objects.update(lifted_at=Now())
    before = Run.objects.get().complete_by
    held_time.extend([Run.objects.get().pk])
    assert Run.objects.get().complete_by == before
    run.signal("paid")
    held_time.extend([Run.objects.get().pk])
    left = Run.objects.get().complete_by - datetime.now(UTC)
    assert timedelta(hours=2, minutes=58) < left <= timedelta(hours=3, minutes=1)
    sas.run()
    run.assert_state("Processed")


def test_steps_asleep_are_no_work_that_waits(sas, flow):
    flow(paid())
    for _ in range(3):
        sas.submit("waiting")
    sas.run()
    testing.let_pass(7200)  # their time is over, and no supervisor has woken them yet
    assert {load.agent: load.waiting for load in autoscaling.loads()}.get("wait", 0) == 0
    with connection.cursor() as cursor:
        cursor.execute(starvation.COUNT_STARVING, starvation._params())
        assert cursor.fetchall() == []


def test_the_name_of_the_agent_that_waits_is_reserved():
    class Own(Agent):
        name = "wait"

        def perform(self, request):
            return {}

    with pytest.raises(DefinitionError, match="the name 'wait' belongs to the engine's agent"):
        register_agent(Own())
    with pytest.raises(TypeError):
        WaitForSignal("paid", agent="alpha")
