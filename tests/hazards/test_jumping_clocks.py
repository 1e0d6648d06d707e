"""Hazard 9: a schedule is edited between the moment that is due and its start; the clock jumps."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from supervision import testing
from supervision.intake import schedules
from supervision.intake.schedules import Missed, Schedule, register_schedule
from supervision.models import Run, ScheduleProgress, Submission
from tests.workflows.conftest import flow
from tests.workflows.test_schedules import every, keys, since

__all__ = ["every", "flow"]


def deployed(monkeypatch, cron="* * * * *", **fields):
    """Another release starts, in which the schedule of this name is another one."""
    monkeypatch.setattr(schedules, "_schedules", {})
    return register_schedule(Schedule(name="reports", workflow="report", cron=cron, **fields))


def minute(before: int) -> datetime:
    return datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=before)


@pytest.mark.parametrize("missed", [Missed.ALL, Missed.ONCE, Missed.SKIP])
def test_a_time_that_is_due_when_the_schedule_is_edited_starts_by_the_new_one_and_once(sas, every, monkeypatch, missed):
    """The time was due under the old expression and had not started. The new expression decides, from where the old one stood."""
    every(missed=missed)
    since(minutes=3)
    edited = deployed(monkeypatch, cron=f"{minute(1).minute} * * * *", missed=missed, payload={"edited": True})

    answers = testing.at_once(*[schedules.start_due] * 3)

    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    times = [moment for moment in keys() if datetime.fromisoformat(moment) > minute(4)]
    assert times == [moment.isoformat() for moment in (minute(1),)], edited
    assert [json.loads(row.payload) for row in Submission.objects.all()] == [{"edited": True}]
    sas.run()
    assert Run.objects.filter(process_state="Processed").count() == 1
    sas.assert_healthy()


def test_a_supervisor_of_the_old_release_and_one_of_the_new_start_each_time_once(sas, every, monkeypatch):
    old = every(missed=Missed.ALL)
    new = Schedule(name="reports", workflow="report", cron="*/2 * * * *", missed=Missed.ALL)
    for _ in range(5):
        since(minutes=30)
        Submission.objects.all().delete()
        seen = ScheduleProgress.objects.get().done_until
        now = datetime.now(UTC)
        answers = testing.at_once(*[partial(schedules._start, schedule, seen, now) for schedule in (old, new, old, new)])
        assert [answer for answer in answers if isinstance(answer, Exception)] == []
        assert sum(1 for answer in answers if answer) == 1  # one of the four moved the time on
        assert len(keys()) == len(set(keys())) == max(answers)


def test_a_clock_that_jumps_forward_and_back_starts_no_time_twice(sas, every):
    """The database's clock runs two hours ahead for a while, and is then put right."""
    every(missed=Missed.ALL)
    since(minutes=5)
    schedules.start_due()
    before = len(keys())
    progress = ScheduleProgress.objects.get()

    ahead = datetime.now(UTC) + timedelta(hours=2)
    schedules._start(schedules._schedules["reports"], progress.done_until, ahead)
    jumped = keys()
    assert len(jumped) > before
    for _ in range(3):  # the clock is right again
        assert schedules.start_due() == 0
    assert keys() == jumped == sorted(set(jumped))

    progress.refresh_from_db()
    later = progress.done_until + timedelta(minutes=1, seconds=1)
    assert schedules._start(schedules._schedules["reports"], progress.done_until, later) == 1
    assert len(set(keys())) == len(jumped) + 1
    sas.run()
    sas.assert_healthy()


def test_a_clock_that_jumps_over_times_deals_with_them_as_missed(sas, every):
    every(cron="0 * * * *", missed=Missed.ONCE)
    since(hours=5)

    assert schedules.start_due() == 1
    assert schedules.start_due() == 0
    sas.run()
    sas.assert_healthy()
