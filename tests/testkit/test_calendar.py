"""What `sas.advance` does not move: the clock and the calendar, by which schedules and timers find their moments."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from supervision import Facts, Timer, Workflow
from supervision.agent import WAIT, WaitAgent, registered
from supervision.intake import schedules
from supervision.intake.schedules import Missed, Schedule
from supervision.models import Run
from supervision.workflow import _newest, _workflows
from tests.support import toy


@pytest.mark.parametrize(("missed", "runs"), [(Missed.ONCE, 1), (Missed.ALL, 3)])
def test_a_schedule_starts_runs_for_times_before_now_and_none_twice(sas, monkeypatch, missed, runs):
    toy.reset()
    hour = (datetime.now(UTC) + timedelta(hours=12)).hour
    nightly = Schedule(name="nightly", workflow="toy", cron=f"0 {hour} * * *", payload={"n": 1}, missed=missed)
    monkeypatch.setattr(schedules, "_schedules", {"nightly": nightly})
    sas.sweep()
    assert not Run.objects.exists()

    sas.advance("3d")
    assert Run.objects.count() == runs
    sas.advance("1d")
    assert Run.objects.count() == runs


def test_a_timer_that_waits_follows_and_one_that_begins_later_does_not(sas, monkeypatch):
    moment = datetime.now(UTC) + timedelta(days=30)

    def until(facts: Facts) -> datetime:
        return moment

    monkeypatch.setitem(registered, WAIT, WaitAgent())
    workflow = Workflow("dated", (Timer("day", until=until),))
    monkeypatch.setitem(_workflows, ("dated", 1), workflow)
    monkeypatch.setitem(_newest, "dated", workflow)
    before = sas.start("dated")
    sas.advance("29d")
    after = sas.start("dated")
    sas.advance("2d")

    before.assert_state("Processed")
    assert after.steps["day"] == "Pending"
