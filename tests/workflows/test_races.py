"""Signals and the other things that happen at the same moment."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from supervision import testing
from supervision.dispatch import scheduler
from supervision.models import Signal
from supervision.store import sleeping
from tests.workflows.conftest import ALPHA, BETA, paid


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


def test_a_signal_that_comes_while_the_step_falls_asleep_wakes_it(sas, flow, monkeypatch):
    """Both orders of the race: the sender commits just before the step's row is written, and waits for its lock."""
    flow(paid())
    fall_asleep, sent = sleeping.fall_asleep, []

    def slowly(sleepers):
        # The row is locked here. A sender in another thread waits for it, so it sees the step asleep.
        sent.append(testing.threading.Thread(target=lambda: (run.signal("paid"), connection.close())))
        sent[0].start()
        testing.threading.Event().wait(0.3)
        assert not Signal.objects.exists()
        fall_asleep(sleepers)

    run = sas.submit("waiting")
    monkeypatch.setattr(sleeping, "fall_asleep", slowly)
    sas.run()
    sent[0].join(20)
    monkeypatch.setattr(sleeping, "fall_asleep", fall_asleep)
    sas.run()
    run.assert_state("Processed")


def test_an_order_becomes_no_run_while_a_signal_to_it_is_not_committed(sas, flow):
    flow(paid())
    run = sas.submit("waiting")
    with transaction.atomic():
        run.signal("paid")
        [report] = testing.at_once(scheduler.schedule_once)
        assert report.consumed == 0
    sas.run()
    run.assert_state("Processed")
    assert sas.performed == ["paid"]


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
