"""Agents that hand their work over: they are called again when a signal has come."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from supervision import AwaitSignal, PermanentFailure, RetryPolicy, Step, TransientFailure, testing
from supervision.errors import Refused
from supervision.models import Alert, Effect
from supervision.signals.sending import send_signal
from tests.support import toy
from tests.workflows.conftest import ALPHA, BETA, HOUR, asleep, paid


def hears(request):
    """Hands the work over, and hears of its end by a signal."""
    if request.signal is None:
        raise AwaitSignal("captured", within=HOUR)
    return {}


@pytest.fixture
def handing_over(monkeypatch):
    """The toy agents may wait for these signals."""
    monkeypatch.setattr(toy.ToyAgent, "signals", ("accepted", "captured"), raising=False)


def test_an_agent_hands_the_work_over_and_is_called_again_with_the_signal(sas, flow, handing_over):
    seen = []

    def perform(request):
        seen.append((request.idempotency_key, request.signal, request.wait_is_over))
        if request.signal is None:
            raise AwaitSignal("captured", within=HOUR)
        return {"captured": request.signal["amount"]}

    toy.ALPHA.on_perform = perform
    flow(ALPHA, BETA)
    run = sas.start("waiting")
    assert (run.steps["alpha-step"], asleep()) == ("Pending", 1)
    sas.advance("30m")
    run.signal("captured", {"amount": 3})
    sas.run()

    run.assert_state("Processed")
    assert run.results["alpha-step"] == {"captured": 3}
    assert [(signal, over) for _, signal, over in seen] == [(None, False), ({"amount": 3}, False)]
    assert len({key for key, _, _ in seen}) == 1
    assert testing.step(run.key, "alpha-step").failure_count == 0


def test_a_signal_that_comes_during_the_call_that_hands_over_is_not_missed(sas, flow, handing_over):

    def perform(request):
        if request.signal is None:
            send_signal(request.run_key, "captured", {"n": 1})
            raise AwaitSignal("captured", within=HOUR)
        return {}

    toy.ALPHA.on_perform = perform
    flow(ALPHA)
    run = sas.start("waiting")
    run.assert_state("Processed")


def test_an_agent_whose_signal_never_comes_is_called_when_the_time_is_over_and_keeps_the_end_of_its_wait(sas, flow, handing_over):

    def perform(request):
        if request.wait_is_over:
            raise PermanentFailure("never captured")
        if request.attempt == 2:
            raise TransientFailure("busy")
        raise AwaitSignal("captured", within=HOUR)

    toy.ALPHA.on_perform = perform
    flow(ALPHA)
    run = sas.start("waiting")
    sas.advance("61m")
    run.assert_state("Error")


def test_an_agent_may_wait_for_one_signal_after_another_and_each_wait_takes_one(sas, flow, handing_over):
    names = iter(["accepted", "captured", "captured", "captured"])
    seen = []

    def perform(request):
        seen.append(request.signal and request.signal["n"])
        if (name := next(names, None)) is None:
            return {}
        raise AwaitSignal(name, within=HOUR)

    toy.ALPHA.on_perform = perform
    flow(ALPHA)
    run = sas.start("waiting")
    for number, name in enumerate(["captured", "accepted", "captured"]):
        assert asleep() == 1
        run.signal(name, {"n": number})
        sas.run()
    assert (asleep(), seen) == (1, [None, 1, 0, 2])
    run.signal("captured", {"n": 3})
    sas.run()
    run.assert_state("Processed")
    assert seen == [None, 1, 0, 2, 3]


def test_a_resubmitted_step_waits_for_another_signal(sas, flow, handing_over):
    def perform(request):
        if request.signal is None:
            raise AwaitSignal("captured", within=HOUR)
        if request.signal["declined"]:
            raise PermanentFailure("declined")
        return {}

    toy.ALPHA.on_perform = perform
    flow(ALPHA)
    run = sas.start("waiting")
    run.signal("captured", {"declined": True})
    sas.run()
    run.assert_state("Error")
    run.resubmit()
    sas.run()
    assert asleep() == 1
    run.signal("captured", {"declined": False})
    sas.run()
    run.assert_state("Processed")


def test_work_that_was_handed_over_may_be_done_and_is_undone(sas, flow, handing_over):
    def perform(request):
        request.intend("capture", key=request.idempotency_key, service="bank")
        raise AwaitSignal("captured", within=HOUR)

    toy.ALPHA.on_perform = perform
    flow(ALPHA)
    run, other = sas.start("waiting"), sas.start("waiting")
    assert testing.step(run.key, "alpha-step").effect == "unknown"
    assert set(Effect.objects.values_list("outcome", flat=True)) == {"unknown"}
    run.cancel()
    sas.advance("1m")
    run.assert_state("Cancelled")
    assert len(toy.ALPHA.undone) == 1

    key = testing.step(other.key, "alpha-step").idempotency_key
    toy.ALPHA.on_perform = lambda request: {} if request.wait_is_over else 1 / 0
    sas.advance("61m")
    other.assert_state("Processed")
    assert testing.step(other.key, "alpha-step").idempotency_key == key


def test_a_signal_that_came_in_time_is_taken_although_the_time_is_over_when_the_agent_is_called(sas, flow, handing_over):
    def perform(request):
        if request.wait_is_over:
            raise PermanentFailure("never captured")
        if request.signal is None:
            raise AwaitSignal("captured", within=HOUR)
        return {}

    toy.ALPHA.on_perform = perform
    flow(ALPHA)
    run = sas.start("waiting")
    run.signal("captured")
    testing.let_pass(7200)
    sas.run()
    run.assert_state("Processed")


def test_a_key_that_the_service_forgets_during_the_wait_does_not_stop_a_step_that_is_told_the_end(sas, flow, handing_over, monkeypatch):
    monkeypatch.setattr(toy.ALPHA, "key_ttl", HOUR / 2, raising=False)

    toy.ALPHA.on_perform = hears
    flow(ALPHA)
    run = sas.start("waiting")
    sas.advance("50m")
    run.signal("captured")
    sas.run()
    run.assert_state("Processed")


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (lambda: AwaitSignal("undeclared", within=HOUR), "signal_unknown"),
        (lambda: AwaitSignal("captured", within=timedelta.max), "agent_failure"),
        (lambda: AwaitSignal("captured", until="tomorrow"), "agent_failure"),
        (lambda: AwaitSignal("captured", until=datetime(2030, 1, 1)), "agent_failure"),  # noqa: DTZ001
    ],
)
def test_a_wait_that_cannot_end_is_an_error_that_says_why(sas, flow, handing_over, raised, code):
    def perform(request):
        raise raised()

    toy.ALPHA.on_perform = perform
    flow(Step("alpha-step", agent="alpha", retry=RetryPolicy(threshold=1)))
    run = sas.start("waiting")
    run.assert_state("Error")
    assert Alert.objects.get().code == code
    assert testing.step(run.key, "alpha-step").effect == "unknown", "the work may have been handed over"
    key = testing.step(run.key, "alpha-step").idempotency_key
    run.resubmit()
    assert testing.step(run.key, "alpha-step").idempotency_key == key


def test_a_step_that_waits_again_for_what_was_over_ends_in_error_instead_of_waiting_for_ever(sas, flow, handing_over):
    def perform(request):
        raise AwaitSignal("captured", within=HOUR)

    toy.ALPHA.on_perform = perform
    flow(ALPHA)
    run = sas.start("waiting")
    sas.advance("61m")
    run.assert_state("Error")
    assert Alert.objects.get().code == "wait_was_over"
    assert testing.step(run.key, "alpha-step").effect == "unknown"


def test_an_undo_does_not_take_the_signals_of_the_work(sas, flow, handing_over):
    def compensate(request):
        raise AwaitSignal("captured", within=HOUR)

    toy.ALPHA.on_compensate = compensate
    flow(ALPHA, paid())
    run = sas.start("waiting")
    run.cancel()
    sas.run()
    run.assert_state("Error")
    assert Alert.objects.filter(closed_at__isnull=True).get().code == "undo_waits"
    with pytest.raises(Refused, match="being undone"):
        run.signal("captured")


def test_a_service_that_answers_by_handing_over_counts_as_working(sas, flow, handing_over, monkeypatch):
    told = []
    monkeypatch.setattr("supervision.governance.circuit_breaker.succeeded", lambda resource, times: told.append((resource, len(times))))

    def perform(request):
        raise AwaitSignal("captured", within=HOUR)

    toy.ALPHA.on_perform = perform
    flow(ALPHA)
    sas.start("waiting")
    assert told == [("alpha", 1)]


def test_a_signal_that_was_taken_is_given_to_every_attempt(sas, flow, handing_over):
    seen = []

    def perform(request):
        if request.signal is None:
            raise AwaitSignal("captured", within=HOUR)
        seen.append(request.signal)
        if len(seen) == 1:
            raise TransientFailure("busy")
        return {}

    toy.ALPHA.on_perform = perform
    flow(ALPHA)
    run = sas.start("waiting")
    run.signal("captured", {"n": 1})
    sas.advance("1m")
    run.assert_state("Processed")
    assert seen == [{"n": 1}, {"n": 1}]
