"""Waits that end by time: a signal that does not come, and timers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction

from supervision import OnTimeout, Timer, WaitForSignal, parallel, plan, testing
from supervision.errors import DefinitionError
from supervision.models import Alert, Run, Signal, StepState
from tests.support import toy
from tests.workflows.conftest import ALPHA, BETA, HOUR, asleep, paid


@pytest.mark.parametrize(
    ("on_timeout", "state", "step"),
    [
        (OnTimeout.ERROR, "Error", "Error"),
        (OnTimeout.COMPENSATE, "Cancelled", "Error"),
        (OnTimeout.SKIP, "Processed", "Skipped"),
        (OnTimeout.GO_ON, "Processed", "Processed"),
    ],
)
def test_a_wait_without_a_signal_ends_as_its_step_says(sas, flow, on_timeout, state, step):
    flow(ALPHA, paid(on_timeout=on_timeout), BETA)
    run = sas.start("waiting")
    sas.advance("59m")
    assert run.steps["paid"] == "Pending"
    sas.advance("2m")

    run.assert_state(state)
    assert run.steps["paid"] == step
    assert sas.undone == (["alpha-step"] if state == "Cancelled" else [])
    if on_timeout == OnTimeout.GO_ON:
        assert run.results["paid"] == {"came": False}
    sas.assert_healthy()


def test_a_wait_that_has_timed_out_waits_again_when_it_is_resubmitted_and_takes_a_late_signal(sas, flow):
    flow(paid(), BETA)
    run = sas.start("waiting")
    sas.advance("61m")
    run.assert_state("Error")
    run.resubmit()
    sas.run()
    assert asleep() == 1
    sas.advance("59m")
    assert run.steps["paid"] == "Pending", "the whole time again"
    sas.advance("2m")
    run.assert_state("Error")

    run.signal("paid", {"late": True})
    run.assert_state("Error")
    run.resubmit()
    sas.run()
    run.assert_state("Processed")
    assert run.results["paid"]["payload"] == {"late": True}
    sas.assert_healthy()


def test_the_time_of_a_wait_does_not_count_against_the_runs_own_time(sas, flow):
    flow(ALPHA, WaitForSignal("paid", within=timedelta(days=7)), BETA, complete_within=HOUR)
    run = sas.start("waiting")
    before = Run.objects.get(key=run.key)
    assert before.complete_by - before.created_at > timedelta(days=7, minutes=59)
    sas.advance("3d")
    run.assert_state("Processing")
    run.signal("paid")

    left = Run.objects.get(key=run.key).complete_by - datetime.now(UTC)
    assert timedelta(minutes=58) < left <= HOUR, "what is left of the wait is taken back"
    sas.run()
    run.assert_state("Processed")


def test_cancelling_ends_a_wait(sas, flow):
    flow(ALPHA, paid(), BETA)
    run = sas.start("waiting")
    run.cancel()
    sas.advance("2h")
    run.assert_state("Cancelled")
    assert sas.undone == ["alpha-step"]
    assert run.steps["paid"] == "Cancelled"
    sas.assert_healthy()


def test_an_order_that_is_paused_keeps_its_signal_until_it_is_resumed(sas, flow):
    flow(paid())
    run = sas.start("waiting")
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO supervision_pause (scope, name, run_id, reason, paused_by) SELECT 'order', key, id, 'x', 'y' FROM supervision_run"
        )
    run.signal("paid")
    sas.run()
    assert run.steps["paid"] == "Pending"
    with connection.cursor() as cursor:
        cursor.execute("UPDATE supervision_pause SET lifted_at = now()")
    sas.run()
    run.assert_state("Processed")


def test_the_next_order_of_a_session_waits_as_long_as_the_order_before_it(sas, flow):
    session = {"n": 1, "session_key": "s"}
    flow(paid(), intake=toy.INTAKE)
    first, second = (sas.start("waiting", session, session_key="s") for _ in range(2))
    second.signal("paid")
    sas.run()
    assert (first.state, second.state) == ("Processing", "Pending")
    first.signal("paid")
    sas.run()
    assert (first.state, second.state) == ("Processed", "Processed")


def test_a_timer_lets_the_run_go_on_after_its_time(sas, flow):
    flow(ALPHA, Timer("cooling-off", lasts=timedelta(days=14)), BETA, complete_within=HOUR)
    run = sas.start("waiting")
    sas.advance("13d")
    assert run.steps["cooling-off"] == "Pending"
    sas.advance("25h")
    run.assert_state("Processed")
    assert run.results["cooling-off"] == {}


def test_a_timer_waits_until_a_moment_of_the_payload_or_of_a_result(sas, flow):
    moment = datetime.now(UTC) + timedelta(hours=5)
    toy.ALPHA.on_perform = lambda request: {"at": moment.isoformat()}
    until = lambda facts: datetime.fromisoformat(facts.results["alpha-step"]["at"])  # noqa: E731
    flow(ALPHA, Timer("slot", until=until, reads=("alpha-step",)), BETA)
    run = sas.start("waiting")
    sas.advance("4h")
    assert run.steps["slot"] == "Pending"
    sas.advance("61m")
    run.assert_state("Processed")


def test_a_moment_that_is_over_ends_the_wait_at_once(sas, flow):
    flow(Timer("slot", until=lambda facts: datetime(2020, 1, 1, tzinfo=UTC)))
    run = sas.start("waiting")
    run.assert_state("Processed")


def test_a_timer_waits_for_a_moment_that_is_more_than_ten_years_away(sas, flow):
    moment = datetime.now(UTC) + timedelta(days=4_000)
    flow(Timer("slot", until=lambda _facts: moment), BETA)
    run = sas.start("waiting")

    sas.advance("3700d")
    assert run.steps == {"slot": "Pending", "beta-step": "Pending"}

    sas.advance("301d")
    run.assert_state("Processed")
    sas.assert_healthy()


@pytest.mark.parametrize("until", [lambda facts: facts.payload["missing"], lambda facts: datetime(2020, 1, 1)])  # noqa: DTZ001
def test_a_moment_that_cannot_be_found_stops_the_run_and_says_why(sas, flow, until):
    flow(Timer("slot", until=until))
    run = sas.start("waiting")
    run.assert_state("Error")
    assert Alert.objects.get().code == "timer_failed"


# ------------------------------------------------------------------------------------------------------------ reminders


def test_a_wait_reminds_at_its_moments_until_the_signal_comes(sas, flow):
    told = []
    reminding = {"remind_after": (timedelta(minutes=10), timedelta(minutes=30)), "remind": lambda request: told.append(request.run_key)}
    flow(ALPHA, paid(**reminding), BETA, complete_within=timedelta(minutes=5))
    run, other = sas.start("waiting"), sas.start("waiting")
    sas.advance("9m")
    assert told == []
    sas.advance("2m")
    assert sorted(told) == sorted([run.key, other.key])
    run.signal("paid")
    sas.advance("25m")
    run.assert_state("Processed")
    assert told.count(other.key) == 2

    sas.advance("20m")
    assert other.steps["paid"] == "Pending"
    left = Run.objects.get(key=other.key).complete_by - testing.step(other.key, "paid").awaits_until
    assert timedelta(minutes=4, seconds=55) < left <= timedelta(minutes=5), "the wait counts once, however often it is looked at"
    sas.advance("5m")
    other.assert_state("Error")
    assert told.count(other.key) == 2
    sas.assert_healthy()


def test_reminders_that_were_missed_are_made_once(sas, flow):
    told = []
    flow(paid(remind_after=(timedelta(minutes=10), timedelta(minutes=30)), remind=lambda request: told.append(request.run_key)))
    run = sas.start("waiting")
    testing.let_pass(45 * 60)
    sas.advance("1m")
    assert told == [run.key]
    assert run.steps["paid"] == "Pending"


def test_a_reminder_that_a_kill_takes_back_is_made_again(sas, flow):
    reminding = lambda request: Signal.objects.create(run_key=request.run_key, name="reminded", key=str(request.attempt))  # noqa: E731
    flow(paid(remind_after=(timedelta(minutes=10),), remind=reminding), WaitForSignal("reminded"))
    run = sas.start("waiting")
    testing.let_pass(601)
    sas.sweep()
    sas.kill("paid", "agent.after_effect")
    sas.run()
    assert not Signal.objects.exists()
    sas.advance("10m")
    assert Signal.objects.count() == 1
    assert run.steps["paid"] == "Pending"


def test_a_wait_that_another_waits_signal_wakes_does_not_remind_again(sas, flow):
    told = []
    reminding = {"signal": "paid", "remind_after": (timedelta(minutes=10),), "remind": lambda request: told.append(request.step)}
    flow(*plan(parallel(WaitForSignal("one", **reminding), WaitForSignal("other", **reminding)), BETA))
    run = sas.start("waiting")
    sas.advance("11m")
    assert sorted(told) == ["one", "other"]
    run.signal("paid")
    sas.run()
    assert (asleep(), sorted(told)) == (1, ["one", "other"])


def test_a_wait_that_a_sender_keeps_awake_does_not_remind_again(sas, flow):
    told = []
    flow(paid(remind_after=(timedelta(minutes=10),), remind=lambda request: told.append(request.run_key)), WaitForSignal("confirmed"))
    run = sas.start("waiting")
    testing.let_pass(601)
    sas.sweep()
    with transaction.atomic():
        run.signal("confirmed")
        for _ in range(3):
            [count] = testing.at_once(lambda: sas.run() or testing.make_due())
            assert not isinstance(count, Exception)
            assert asleep() == 0, "put off"
    assert told == [run.key]


@pytest.mark.parametrize("effect", ["none", "unknown"])
def test_a_wait_that_is_resubmitted_reminds_anew(sas, flow, effect):
    told = []
    flow(paid(remind_after=(timedelta(minutes=10),), remind=lambda request: told.append(request.run_key)))
    run = sas.start("waiting")
    sas.advance("61m")
    run.assert_state("Error")
    StepState.objects.update(effect=effect)  # a process that died in a look leaves it unknown, and then the key stays
    run.resubmit()
    sas.advance("11m")
    assert told == [run.key, run.key]


def test_a_reminder_has_to_fit_into_its_wait():
    for fields in (
        {"remind_after": (HOUR,), "remind": print},
        {"remind_after": (HOUR / 2, HOUR / 3), "remind": print},
        {"remind_after": (HOUR / 2,)},
        {"remind": print},
    ):
        with pytest.raises(DefinitionError, match="step 'paid': remind_after needs remind, and moments that rise from 0 to within"):
            paid(**fields)
