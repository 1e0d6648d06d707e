"""Schedules: each time starts one run, with any number of supervisors, when one dies, and after an absence."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from django.db import connection

from supervision import testing
from supervision.errors import DefinitionError
from supervision.intake import schedule_health, schedules
from supervision.intake.schedules import Missed, Schedule, register_schedule
from supervision.models import Run, ScheduleProgress, Submission
from tests.workflows.conftest import ALPHA, paid


@pytest.fixture
def every(flow, monkeypatch):
    """Registers a schedule for the test; its workflow has one step."""
    monkeypatch.setattr(schedules, "_schedules", {})
    flow(ALPHA, name="report")

    def register(cron="* * * * *", **fields):
        made = register_schedule(Schedule(name="reports", workflow="report", cron=cron, **fields))
        schedules.start_due()
        return made

    return register


def since(**passed):
    """Let the schedule have been dealt with until so long ago."""
    ScheduleProgress.objects.update(done_until=datetime.now(UTC) - timedelta(**passed))


def keys():
    return sorted(Submission.objects.values_list("client_key", flat=True))


def test_a_new_schedule_starts_nothing_for_the_past_and_one_run_for_each_time(sas, every):
    now = datetime.now(UTC)
    minutes = ",".join(str((now - timedelta(minutes=n)).minute) for n in (1, 2))
    every(f"{minutes} * * * *", payload=lambda moment: {"for": moment.isoformat()})
    assert Submission.objects.count() == 0
    since(minutes=4)
    sas.sweep()
    sas.sweep()
    sas.run()

    assert [datetime.fromisoformat(key).second for key in keys()] == [0, 0]
    assert Run.objects.filter(process_state="Processed").count() == 2
    assert [json.loads(row.payload) for row in Submission.objects.order_by("client_key")] == [{"for": key} for key in keys()]
    assert set(Submission.objects.values_list("client", flat=True)) == {"schedule:reports"}
    sas.assert_healthy()


def test_many_supervisors_at_once_start_each_time_once(sas, every):
    every(missed=Missed.ALL)
    for _ in range(5):
        since(minutes=30)
        Submission.objects.all().delete()
        answers = testing.at_once(*[schedules.start_due] * 4)
        assert [answer for answer in answers if isinstance(answer, Exception)] == []
        assert sum(answers) == len(keys()) == len(set(keys()))
        assert len(keys()) in (30, 31)  # a minute may begin meanwhile


def test_a_supervisor_that_dies_in_the_middle_starts_all_or_none(sas, every, monkeypatch):
    every()
    since(minutes=2)
    accept = schedules.submission.accept

    def dies(new):
        accept(new)
        raise KeyboardInterrupt

    monkeypatch.setattr(schedules.submission, "accept", dies)
    with pytest.raises(KeyboardInterrupt):
        schedules.start_due()
    assert keys() == []
    monkeypatch.setattr(schedules.submission, "accept", accept)
    assert schedules.start_due() in (2, 3)  # a minute may begin meanwhile


@pytest.mark.parametrize(("missed", "count"), [(Missed.SKIP, 0), (Missed.ONCE, 1), (Missed.ALL, 24)])
def test_times_that_no_supervisor_saw_are_dealt_with_as_the_schedule_says(sas, every, missed, count):
    moment = datetime.now(UTC) - timedelta(minutes=30)
    every(f"{moment.minute} * * * *", missed=missed)
    since(hours=24)
    schedules.start_due()
    schedules.start_due()
    assert len(keys()) == count
    if count:
        assert keys()[-1] == moment.replace(second=0, microsecond=0).isoformat()
    assert ScheduleProgress.objects.get().done_until > datetime.now(UTC) - timedelta(hours=1)


def test_skipped_times_are_told_even_if_the_supervisor_is_back_in_time_for_the_last(sas, every):
    last = datetime.now(UTC) - timedelta(minutes=1)
    every(f"{last.minute} * * * *", missed=Missed.SKIP)
    since(hours=24)

    assert schedules.start_due() == 1

    skipped = last.replace(second=0, microsecond=0) - timedelta(hours=1)
    assert ScheduleProgress.objects.get().missed == skipped
    assert [cause.title for cause in schedule_health.ailing()] == [
        f"The schedule reports started no run for {skipped:%Y-%m-%d %H:%M} UTC: no supervisor was there in time"
    ]
    since(minutes=30)
    schedules.start_due()
    assert ScheduleProgress.objects.get().missed is None


def test_a_long_absence_of_a_schedule_that_wants_all_is_made_up_for_sweep_by_sweep(sas, every):
    every(missed=Missed.ALL)
    since(minutes=250)
    counts = [schedules.start_due() for _ in range(3)]
    assert counts[:2] == [100, 100]
    assert counts[2] in (50, 51)  # a minute may begin meanwhile


def test_a_clock_that_was_ahead_starts_no_time_twice(sas, every):
    every()
    ScheduleProgress.objects.update(done_until=datetime.now(UTC) + timedelta(hours=1))
    assert schedules.start_due() == 0
    assert keys() == []


def test_a_schedule_that_is_edited_goes_on_from_the_time_that_was_dealt_with(sas, every, monkeypatch):
    every("0 0 1 1 *")
    monkeypatch.setattr(schedules, "_schedules", {})
    since(minutes=1)
    made = Schedule(name="reports", workflow="report", cron="* * * * *")
    register_schedule(made)
    assert schedules.start_due() in (1, 2)  # a minute may begin meanwhile


def test_one_schedule_that_fails_does_not_hold_up_the_others(sas, every):
    every(payload=lambda moment: 1 / 0)
    register_schedule(Schedule(name="healthy", workflow="report", cron="* * * * *"))
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO supervision_scheduleprogress (name) VALUES ('healthy')")
    since(minutes=1)
    assert schedules.start_due() in (1, 2)  # a minute may begin meanwhile
    assert set(Submission.objects.values_list("client", flat=True)) == {"schedule:healthy"}


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("2026-03-28T12:00:00+01:00", ["2026-03-29T01:00:00", "2026-03-30T00:30:00"]),  # 02:30 does not exist
        ("2026-10-24T12:00:00+02:00", ["2026-10-25T00:30:00", "2026-10-26T01:30:00"]),  # 02:30 comes twice
    ],
)
def test_a_day_of_23_or_25_hours_has_one_time_at_half_past_two(after, expected):
    schedule = Schedule(name="n", workflow="w", cron="30 2 * * *", timezone="Europe/Berlin")
    times = [moment.replace(tzinfo=None).isoformat() for moment in islice(schedule.times(datetime.fromisoformat(after)), 2)]
    assert times == expected


@pytest.mark.parametrize(("day", "runs"), [("2026-03-29", 0), ("2026-10-25", 4)])
def test_an_expression_that_begins_with_a_star_follows_the_hours_that_pass(day, runs):
    schedule = Schedule(name="n", workflow="w", cron="*/30 2 * * *", timezone="Europe/Berlin")
    first = datetime.fromisoformat(f"{day}T00:00:00").replace(tzinfo=ZoneInfo("Europe/Berlin"))
    times = [moment.astimezone(first.tzinfo) for moment in islice(schedule.times(first), 6)]
    assert len([moment for moment in times if moment.date() == first.date()]) == runs


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"cron": "61 * * * *"}, "schedule 'reports': Bad minute"),
        ({"cron": "* * *"}, "schedule 'reports': Wrong number of fields"),
        ({"timezone": "Europe/Berlino"}, "schedule 'reports': .*Europe/Berlino"),
        ({"workflow": "reprot"}, "schedule 'reports': no workflow named 'reprot' is registered, did you mean 'report'"),
        ({"cron": "0 0 30 2 *"}, "schedule 'reports': "),
    ],
)
def test_a_schedule_that_cannot_run_is_refused_with_what_is_wrong(every, fields, told):
    with pytest.raises(DefinitionError, match=told):
        register_schedule(Schedule(**{"name": "reports", "workflow": "report", "cron": "* * * * *", **fields}))


def test_two_schedules_of_one_name_are_refused(every):
    every()
    with pytest.raises(DefinitionError, match="two schedules are named 'reports'"):
        every("0 * * * *")


def test_a_scheduled_run_may_wait(sas, every, flow):
    flow(paid(), name="report")
    every()
    since(minutes=1)
    sas.sweep()
    sas.run()
    assert Run.objects.get().process_state == "Processing"
