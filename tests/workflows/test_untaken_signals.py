"""Signals that tell of an effect and that no step has taken: an undo hears of them, also for a step that has not begun."""

from __future__ import annotations

import threading

import pytest
from django.db import transaction

from supervision import AwaitSignal, PermanentFailure, testing
from supervision.errors import Refused
from supervision.models import Signal
from supervision.operations import pauses, previews
from supervision.signals.sending import Sent
from tests.support import toy
from tests.support.shop import until
from tests.workflows.conftest import ALPHA, BETA, HOUR
from tests.workflows.test_races import a_session_is_blocked


@pytest.fixture
def evidence(monkeypatch):
    """The beta agent may wait for `told` and `asked`; the first one is evidence of an effect."""
    monkeypatch.setattr(toy.BETA, "signals", ("told", "asked"), raising=False)
    monkeypatch.setattr(toy.BETA, "evidence", ("told",), raising=False)


@pytest.fixture
def stopped(sas, flow, evidence):
    """A run in Error before the step of the beta agent."""

    def refuses(request):
        raise PermanentFailure("no")

    toy.ALPHA.on_perform = refuses
    flow(ALPHA, BETA)
    return sas.start("waiting")


def test_an_undo_hears_of_evidence_that_no_step_has_taken(sas, stopped):
    heard = []

    def undo(request):
        heard.append((request.perform_key, request.performed, request.untaken("told"), request.untaken("asked")))
        return {}

    toy.BETA.on_compensate = undo
    for number in (1, 2):
        stopped.signal("told", {"n": number})
    planned = [(one.name, one.direction, one.action) for one in previews.plan(stopped.key, "cancel").steps]
    assert ("beta-step", "undo", "run") in planned

    stopped.cancel()
    sas.run()

    stopped.assert_state("Cancelled")
    assert heard == [(f"{stopped.key}:beta-step:do:1", None, [{"n": 1}, {"n": 2}], [])]
    sas.assert_healthy()


def test_a_signal_that_is_no_evidence_lets_an_untouched_step_end(sas, stopped):
    stopped.signal("asked")
    stopped.cancel()

    stopped.assert_state("Cancelled")
    assert "undo:beta-step" not in stopped.steps


@pytest.mark.parametrize(("name", "again"), [("told", [{"n": 1}]), ("asked", [])])
def test_a_resubmitted_step_hears_once_more_of_evidence_that_it_took_and_of_no_other_signal(sas, flow, evidence, name, again):
    heard = []

    def work(request):
        if request.signal is None:
            raise AwaitSignal(name, within=HOUR)
        heard.append(request.signal)
        if len(heard) == 1:
            raise PermanentFailure("a bug: it notes nothing")
        return {}

    toy.BETA.on_perform = work
    flow(BETA)
    run = sas.start("waiting")
    run.signal(name, {"n": 1})
    sas.run()
    run.assert_state("Error")

    run.resubmit()
    sas.run()

    assert heard == [{"n": 1}, *again]
    run.assert_state("Processed" if again else "Processing")
    sas.assert_healthy()


def test_the_undo_of_a_resubmitted_step_hears_of_evidence_that_it_took_before(sas, flow, evidence):
    heard = []

    def work(request):
        if request.signal is None and not request.wait_is_over:
            raise AwaitSignal("told", within=HOUR)
        raise PermanentFailure("a bug: it notes nothing")

    toy.BETA.on_perform = work
    toy.BETA.on_compensate = lambda request: heard.append(request.untaken("told"))
    flow(BETA)
    run = sas.start("waiting")
    run.signal("told", {"n": 1})
    sas.run()
    pauses.pause("agent", "beta", reason="a bug", by="olga")
    run.resubmit()
    run.cancel()
    pauses.lift("agent", "beta", by="olga")
    sas.run()

    run.assert_state("Cancelled")
    assert heard == [[{"n": 1}]]


def test_an_undo_hears_of_evidence_whose_sender_commits_after_the_cancellation(sas, stopped):
    heard = []
    toy.BETA.on_compensate = lambda request: heard.append(request.untaken("told"))
    with transaction.atomic():
        assert stopped.signal("told", {"n": 1}) == Sent.ACCEPTED
        [error] = testing.at_once(stopped.cancel)
        assert error is None
    sas.run()

    stopped.assert_state("Cancelled")
    assert heard == [[{"n": 1}]]
    sas.assert_healthy()


def test_a_sender_that_begins_during_a_cancellation_is_told_that_the_run_has_ended(sas, stopped):
    begun = threading.Event()

    def cancel():
        with transaction.atomic():
            stopped.cancel()
            begun.set()
            until(a_session_is_blocked, what="the sender's wait for the lock")

    def send():
        begun.wait(20)
        return stopped.signal("told")

    [error, answer] = testing.at_once(cancel, send)

    assert error is None
    assert isinstance(answer, Refused)
    assert (answer.code, Signal.objects.count()) == ("signal_ended", 0)


def test_an_undo_hears_of_evidence_that_came_for_a_step_that_was_skipped(sas, flow, evidence):
    heard = []

    def refuses(request):
        raise PermanentFailure("no")

    toy.ALPHA.on_perform = toy.BETA.on_perform = refuses
    toy.BETA.on_compensate = lambda request: heard.append(request.untaken("told"))
    flow(BETA, ALPHA)
    run = sas.start("waiting")
    run.signal("told", {"n": 1})
    run.skip()
    sas.run()
    assert run.steps == {"beta-step": "Skipped", "alpha-step": "Error"}
    run.cancel()
    sas.run()

    run.assert_state("Cancelled")
    assert heard == [[{"n": 1}]]
    sas.assert_healthy()
