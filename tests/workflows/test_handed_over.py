"""Agents that hand their work over: they are called again when a signal has come."""

from __future__ import annotations

from supervision import AwaitSignal, PermanentFailure, TransientFailure, testing
from supervision.models import Alert
from supervision.signals.sending import send_signal
from tests.support import toy
from tests.workflows.conftest import ALPHA, BETA, HOUR, asleep


def test_an_agent_hands_the_work_over_and_is_called_again_with_the_signal(sas, flow, monkeypatch):
    monkeypatch.setattr(toy.ToyAgent, "signals", ("captured",), raising=False)
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


def test_a_signal_that_comes_during_the_call_that_hands_over_is_not_missed(sas, flow, monkeypatch):
    monkeypatch.setattr(toy.ToyAgent, "signals", ("captured",), raising=False)

    def perform(request):
        if request.signal is None:
            send_signal(request.run_key, "captured", {"n": 1})
            raise AwaitSignal("captured", within=HOUR)
        return {}

    toy.ALPHA.on_perform = perform
    flow(ALPHA)
    run = sas.start("waiting")
    run.assert_state("Processed")


def test_an_agent_whose_signal_never_comes_is_called_when_the_time_is_over_and_keeps_the_end_of_its_wait(sas, flow, monkeypatch):
    monkeypatch.setattr(toy.ToyAgent, "signals", ("captured",), raising=False)

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


def test_an_agent_may_wait_for_one_signal_after_another_but_not_twice_for_one(sas, flow, monkeypatch):
    monkeypatch.setattr(toy.ToyAgent, "signals", ("accepted", "captured"), raising=False)
    names = iter(["accepted", "captured", "captured"])

    def perform(request):
        raise AwaitSignal(next(names), within=HOUR)

    toy.ALPHA.on_perform = perform
    flow(ALPHA)
    run = sas.start("waiting")
    run.signal("captured")
    sas.run()
    assert asleep() == 1
    run.signal("accepted")
    sas.run()
    run.assert_state("Error")
    assert (len(toy.ALPHA.performed), Alert.objects.get().code) == (3, "signal_was_taken")


def test_a_signal_that_was_taken_is_given_to_every_attempt(sas, flow, monkeypatch):
    monkeypatch.setattr(toy.ToyAgent, "signals", ("captured",), raising=False)
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
