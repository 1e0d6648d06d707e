"""Signals and the other things that happen at the same moment."""

from __future__ import annotations

import threading

import pytest
from django.db import connection, transaction

from supervision import WaitForSignal, testing
from supervision.execution import inputs
from supervision.models import Pause, Run, Signal
from supervision.postgres import db
from supervision.signals.sending import Sent, send_signal
from supervision.store import sleeping
from tests.engine import kit
from tests.support.shop import until
from tests.workflows.conftest import ALPHA, BETA, asleep, paid


@pytest.mark.parametrize("at", ["agent.after_start", "agent.before_call", "agent.after_effect", "agent.after_finish"])
def test_a_process_that_dies_while_it_looks_for_the_signal_loses_no_signal(sas, flow, at):
    flow(ALPHA, paid(), BETA)
    run = sas.start("waiting")
    run.signal("paid", {"n": 1})
    sas.kill("paid", at)
    sas.run()
    sas.advance("10m")

    run.assert_state("Processed")
    assert run.results["paid"]["payload"] == {"n": 1}
    sas.assert_healthy()


def a_session_is_blocked() -> int:
    """Asked on a connection of its own, because a transaction sees one snapshot of the sessions."""
    [count] = testing.at_once(kit.blocked_backends)
    return count


def test_a_sender_waits_until_a_step_has_fallen_asleep_and_wakes_it(sas, flow, monkeypatch):
    flow(paid())
    fetch, sender = db.fetch, []

    def slowly(statement, params=None):
        if statement is sleeping._FALL_ASLEEP:
            sender.append(threading.Thread(target=lambda: (run.signal("paid"), connection.close())))
            sender[0].start()
            until(a_session_is_blocked, what="the sender's wait for the lock")
            assert not Signal.objects.exists()
        return fetch(statement, params)

    run = sas.submit("waiting")
    monkeypatch.setattr(sleeping.db, "fetch", slowly)
    sas.run()
    monkeypatch.setattr(sleeping.db, "fetch", fetch)
    sender[0].join(20)
    sas.run()
    run.assert_state("Processed")


@pytest.mark.parametrize("resubmitted", [False, True])
def test_no_step_falls_asleep_while_a_signal_to_it_is_not_committed(sas, flow, resubmitted):
    flow(paid())
    run = sas.submit("waiting")
    if resubmitted:
        sas.run()
        sas.advance("61m")
        run.assert_state("Error")
    with transaction.atomic():
        run.signal("paid")
        answers = testing.at_once(lambda: run.resubmit() if resubmitted else None)
        assert answers == [None]
        [error] = testing.at_once(sas.run)
        assert error is None
        assert asleep() == 0
    assert Run.objects.get().process_state == "Processing"
    sas.advance("2s")
    run.assert_state("Processed")
    sas.assert_healthy()


def test_a_sender_in_a_long_transaction_holds_up_no_other_step(sas, flow):
    flow(ALPHA, paid(), BETA)
    run, other = sas.submit("waiting"), sas.submit("waiting")
    with transaction.atomic():
        run.signal("paid")
        [error] = testing.at_once(sas.run)
        assert error is None
        assert (run.steps["alpha-step"], other.steps["alpha-step"], other.steps["paid"]) == ("Processed", "Processed", "Pending")
        other.cancel()
        [error] = testing.at_once(run.cancel)
        assert error is None
    sas.run()
    assert (run.state, other.state) == ("Cancelled", "Cancelled")


def test_a_hook_that_writes_the_row_of_a_sender_does_not_meet_it_in_a_deadlock(sas, flow):
    """The sender changes its own row and sends; the run ends meanwhile, and its hook changes the same row."""
    Pause.objects.create(scope="agent", name="no-agent", reason="row", paused_by="sender")
    flow(ALPHA, paid(), on_processed=lambda runs: Pause.objects.filter(name="no-agent").update(reason="hook"))
    run = sas.start("waiting")
    run.signal("paid", key="k")

    def send():
        with transaction.atomic():
            Pause.objects.filter(name="no-agent").update(reason="sender")
            until(a_session_is_blocked, what="the hook's wait for the sender's row")
            return run.signal("paid", key="k")

    answers = testing.at_once(send, sas.run)
    assert answers == [Sent.REPEATED, None]
    run.assert_state("Processed")
    Pause.objects.all().delete()


@pytest.mark.parametrize("meanwhile", ["expired", "recovered", "done"])
def test_a_process_that_stood_still_takes_no_signal_from_a_later_step(sas, flow, meanwhile):
    flow(WaitForSignal("one", signal="paid"), WaitForSignal("two", signal="paid"))
    key, place, stale = kit.started("waiting")
    if meanwhile == "expired":
        kit.expire(key)
    elif meanwhile == "recovered":
        kit.expire_and_sweep(key)
        testing.make_due()
        kit.start_all()
        assert kit.step(key, "one").attempt == 2
    else:
        kit.finish(place, stale)
    send_signal(key, "paid")

    assert inputs.load(place, stale).signals == {}
    assert Signal.objects.get().taken_by is None


def test_of_a_signal_and_the_end_of_the_time_exactly_one_wins(sas, flow):
    flow(paid(), BETA)
    runs = [sas.start("waiting") for _ in range(12)]
    testing.let_pass(3601)

    def send():
        for run in runs:
            run.signal("paid")

    answers = testing.at_once(send, sas.sweep, sas.sweep)
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    sas.run()
    sas.advance("1m")
    for run in runs:
        assert (run.state, run.steps["paid"]) in {("Processed", "Processed"), ("Error", "Error")}
        taken = Signal.objects.get(run_key=run.key).taken_by
        assert (taken == "paid") == (run.state == "Processed")
    sas.assert_healthy()
