"""What schedules tell people: one incident while a schedule cannot start its runs, or after a time that got none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from supervision import testing
from supervision.incidents import lifecycle
from supervision.intake import schedule_health, schedules
from supervision.intake.schedules import Missed, Schedule, register_schedule
from supervision.models import Incident, Notification, ScheduleProgress, Submission
from supervision.recovery import supervisor
from tests.workflows.conftest import ALPHA


@pytest.fixture
def earlier():
    """The moment half an hour before this test. A long run collects its tests hours before the last of them."""
    return datetime.now(UTC) - timedelta(minutes=30)


@pytest.fixture
def nightly(flow, monkeypatch):
    """`nightly(cron)` registers a schedule whose payload function raises what `nightly.error` is; it begins now."""
    monkeypatch.setattr(schedules, "_schedules", {})
    flow(ALPHA, name="report")

    def payload(moment):
        if register.error is not None:
            raise register.error
        return register.payload

    def register(cron="* * * * *", **fields):
        register_schedule(Schedule(name="nightly", workflow="report", cron=cron, payload=payload, **fields))
        schedules.start_due()

    register.error, register.payload = None, {}
    return register


def let_pass(**passed):
    ScheduleProgress.objects.update(done_until=datetime.now(UTC) - timedelta(**passed))


def sweep():
    """One sweep; the titles of the open incidents after it."""
    supervisor.sweep_once()
    return list(Incident.objects.filter(closed_at=None).values_list("title", flat=True))


def told():
    return [row["event"] for row in Notification.objects.filter(kind="incident").order_by("pk").values_list("payload", flat=True)]


def test_a_payload_function_that_raises_is_one_incident_until_the_schedule_works_again(sas, nightly):
    nightly()
    nightly.error = LookupError("no rate of exchange for today")
    let_pass(minutes=1)

    title = "The schedule nightly cannot start its runs: its payload function raised LookupError: no rate of exchange for today"
    assert [sweep() for _ in range(3)] == [[title]] * 3
    assert (Incident.objects.count(), told()) == (1, ["opened"])

    nightly.error = None
    assert sweep() == []
    assert (Incident.objects.count(), told()) == (1, ["opened", "closed"])
    assert Submission.objects.count() in (1, 2)  # a minute may begin meanwhile
    progress = ScheduleProgress.objects.get()
    assert (progress.failing_since, progress.failed_at, progress.last_error, progress.missed) == (None, None, "", None)


def test_a_payload_that_is_no_json_is_told_in_plain_words(sas, nightly, earlier):
    nightly()
    nightly.payload = {"at": earlier}
    let_pass(minutes=1)

    (title,) = sweep()
    assert title == "The schedule nightly cannot start its runs: its payload is no JSON: Object of type datetime is not JSON serializable"


def test_two_supervisors_at_once_tell_once(sas, nightly):
    nightly()
    nightly.error = LookupError("none")
    let_pass(minutes=1)

    answers = testing.at_once(*[supervisor.sweep_once] * 4)

    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    assert (Incident.objects.filter(kind="schedule").count(), told()) == (1, ["opened"])


def test_a_time_that_was_skipped_is_an_incident_until_the_next_run(sas, nightly, earlier):
    nightly(f"{earlier.minute} * * * *", missed=Missed.SKIP)
    let_pass(hours=1)

    title = f"The schedule nightly started no run for {earlier:%Y-%m-%d %H:%M} UTC: no supervisor was there in time"
    assert [sweep() for _ in range(3)] == [[title]] * 3
    assert (Submission.objects.count(), told()) == (0, ["opened"])

    schedules._schedules.clear()
    nightly()
    let_pass(minutes=1)
    assert sweep() == []


def test_a_skipped_time_is_reported_until_it_is_acknowledged_or_for_seven_days(sas, nightly, earlier):
    nightly(f"{earlier.minute} * * * *", missed=Missed.SKIP)
    let_pass(hours=1)
    assert len(sweep()) == 1

    schedules._schedules.clear()
    ScheduleProgress.objects.update(done_until=datetime.now(UTC) - timedelta(days=6, hours=23))
    assert len(sweep()) == 1
    ScheduleProgress.objects.update(done_until=datetime.now(UTC) - timedelta(days=7))
    assert sweep() == []
    ScheduleProgress.objects.update(done_until=datetime.now(UTC) - timedelta(seconds=1))
    assert len(sweep()) == 1
    Incident.objects.update(acknowledged_at=datetime.now(UTC))
    assert sweep() == []


def test_a_schedule_that_fails_until_its_time_is_missed_has_one_incident_that_names_the_error(sas, nightly, earlier):
    nightly(f"{(datetime.now(UTC) - timedelta(minutes=2)).minute} * * * *", missed=Missed.SKIP)
    nightly.error = LookupError("none")
    let_pass(minutes=4)
    assert len(sweep()) == 1
    testing.let_pass(600.0)  # the time is further in the past than a schedule makes up for
    ScheduleProgress.objects.update(done_until=datetime.now(UTC) - timedelta(minutes=59))
    schedules._schedules.clear()
    nightly(f"{earlier.minute} * * * *", missed=Missed.SKIP)

    (title,) = sweep()
    assert title.startswith("The schedule nightly started no run for ")
    assert title.endswith("its payload function raised LookupError: none")
    assert (Incident.objects.count(), told()) == (1, ["opened"])


def test_a_failing_schedule_that_leaves_the_code_is_reported_for_ten_minutes(sas, nightly):
    nightly()
    nightly.error = LookupError("none")
    let_pass(minutes=1)
    assert len(sweep()) == 1

    schedules._schedules.clear()
    testing.let_pass(590.0)
    assert len(sweep()) == 1
    testing.let_pass(15.0)
    assert sweep() == []


def test_a_failure_that_lasts_is_written_once_a_minute_and_its_text_is_bounded(sas, nightly):
    nightly()
    nightly.error = LookupError("\x00" + "x" * 10_000)
    let_pass(minutes=1)
    schedules.start_due()
    first = ScheduleProgress.objects.get()
    schedules.start_due()
    assert ScheduleProgress.objects.get().failed_at == first.failed_at
    assert len(first.last_error) == schedule_health.MOST_CHARACTERS

    testing.let_pass(61.0)
    schedules.start_due()
    second = ScheduleProgress.objects.get()
    assert second.failed_at > first.failed_at
    assert second.failing_since < first.failing_since


def test_a_failure_that_another_supervisor_has_overtaken_is_not_written(sas, nightly):
    nightly()
    seen = ScheduleProgress.objects.get().done_until
    let_pass(minutes=1)
    assert schedules.start_due()

    assert not schedule_health.failed("nightly", seen, LookupError("too late"))
    assert list(schedule_health.ailing()) == []
    assert lifecycle.look() == lifecycle.Look()
