"""What a test leaves behind for later tests of the same process: nothing, also after a kill and with several threads."""

from __future__ import annotations

import threading

import pytest
from django.db import connection

from supervision import testing
from supervision.dispatch import scheduler
from supervision.execution import runner
from supervision.execution.call_pool import Gathering
from tests.support import toy


@pytest.fixture(autouse=True)
def _toys(sas):
    toy.reset()


@pytest.mark.parametrize("at", ["agent.after_effect", "agent.after_finish"])
def test_after_the_kill_of_a_slow_call_other_slow_calls_are_reported_as_before(sas, monkeypatch, at):
    moved_on, take = threading.Event(), Gathering.take

    def take_and_tell(gathering, **times):
        try:
            return take(gathering, **times)
        finally:
            if runner.process.cohorts[-1].label == "beta-step":
                moved_on.set()

    monkeypatch.setattr(Gathering, "take", take_and_tell)
    monkeypatch.setattr(runner, "PATIENCE_SECONDS", 0.0)
    sas.fake("beta-step", does=lambda _: {} if moved_on.wait(60) else None)  # it answers after its cohort has moved on
    sas.kill("beta-step", at)
    run = sas.start("toy", {"n": 1})
    sas.advance("10m")
    run.assert_state("Processed")

    assert runner.process.late.unfinished_tasks == 0, "the next test would wait for an answer that never comes"
    moved_on.clear()
    sas.start("toy", {"n": 2}).assert_state("Processed")


def test_two_threads_perform_and_leave_the_scheduler_as_it_was(sas):
    """In the order in which each putting back what it had found would leave the other's stand-in for ever."""
    first, second = sas.submit("toy", {"n": 1}), sas.submit("toy", {"n": 2})
    places = [(place, [claim]) for place, claims in testing.schedule() for claim in claims]
    entered, ended = [threading.Event(), threading.Event()], threading.Event()
    before = scheduler.dispatch

    def perform(number):
        def arrives(label):
            entered[number].set()
            return entered[1].wait(60) and (number == 0 or ended.wait(60))

        assert number == 0 or entered[0].wait(60)
        testing.perform(*places[number], arrives=arrives)
        ended.set()
        connection.close()

    assert testing.at_once(lambda: perform(0), lambda: perform(1)) == [None, None]

    assert scheduler.dispatch is before
    assert [run.state for run in (first, second)] == ["Processed"] * 2
