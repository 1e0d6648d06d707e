"""Schedules: runs that begin at given times, exactly once for each time.

The supervisor's sweep starts what is due. The row of a schedule names the last time that was dealt with. One guarded statement
moves it on, in the transaction that accepts the submissions. So two supervisors start a run once, and a killed one starts none
or all of its sweep. The submission's key is the schedule's name and the time. A schedule that fails, or skips a time, is an
incident (`schedule_health`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from itertools import islice, takewhile
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from supervision.errors import DefinitionError, UnreadableSubmission
from supervision.intake import schedule_health, submission
from supervision.postgres import db
from supervision.workflow import newest

log = logging.getLogger(__name__)

LATE = timedelta(minutes=5)  # a time that is found later than this was missed: no supervisor was there
EXAMPLE = datetime(2000, 1, 1, tzinfo=UTC)  # a time after which the expression of a new schedule is tried
MOST_AT_ONCE = 100  # missed times of one schedule that one sweep starts; the next sweep goes on


class Missed(StrEnum):
    """What happens to times at which no supervisor was there."""

    SKIP = "skip"  # no run; an incident says so
    ONCE = "once"  # one run for all of them, for the last one
    ALL = "all"  # a run for each


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Starts runs of a workflow at the times of a cron expression of five fields.

    name: its name in the database; another name is another schedule. timezone: the zone in which the expression is read. Where
    the clock is put forward, a time that does not exist runs at once after it; where it is put back, a time that comes twice
    runs once. An expression whose minute or hour begins with `*` follows the hours that pass instead: a time that does not exist
    has no run, and one that comes twice has two. payload: the runs' payload, or a function of the time that returns it.
    A new schedule begins with the first time after it was first seen.
    """

    name: str
    workflow: str
    cron: str
    timezone: str = "UTC"
    payload: Mapping[str, Any] | Callable[[datetime], Mapping[str, Any]] | None = None
    missed: Missed = Missed.ONCE

    def times(self, after: datetime) -> Iterator[datetime]:
        """The times after this moment, in UTC, without end."""
        for moment in CronSim(self.cron, after.astimezone(ZoneInfo(self.timezone))):
            yield moment.astimezone(UTC)

    def last(self, until: datetime) -> datetime:
        """The last time before this moment, in UTC."""
        return next(CronSim(self.cron, until.astimezone(ZoneInfo(self.timezone)), reverse=True)).astimezone(UTC)

    def payload_of(self, moment: datetime) -> Mapping[str, Any]:
        """The payload of the run of this time."""
        return self.payload(moment) if callable(self.payload) else self.payload or {}


_schedules: dict[str, Schedule] = {}


def register_schedule(schedule: Schedule) -> Schedule:
    """Register a schedule, after its workflow. Raises DefinitionError where it cannot run."""
    try:
        newest(schedule.workflow)
        next(schedule.times(EXAMPLE))
    except (UnreadableSubmission, CronSimError, ZoneInfoNotFoundError, StopIteration) as problem:
        raise DefinitionError(f"schedule {schedule.name!r}: {problem or 'its expression names no time'}") from problem
    if _schedules.get(schedule.name, schedule) != schedule:
        raise DefinitionError(f"two schedules are named {schedule.name!r}")
    _schedules[schedule.name] = schedule
    return schedule


_SEEN = """
WITH new AS (
    INSERT INTO supervision_scheduleprogress (name) SELECT unnest(%(names)s::text[])
    ON CONFLICT (name) DO NOTHING RETURNING name, done_until)
SELECT name, done_until, now() FROM supervision_scheduleprogress WHERE name = ANY (%(names)s::text[])
UNION ALL
SELECT name, done_until, now() FROM new
"""
_MOVE_ON = """
UPDATE supervision_scheduleprogress
   SET done_until = %(until)s::timestamptz, failing_since = NULL, failed_at = NULL, last_error = '', missed = %(missed)s::timestamptz
 WHERE name = %(name)s AND done_until = %(seen)s::timestamptz RETURNING name
"""
_SKIP = """
UPDATE supervision_scheduleprogress SET done_until = %(until)s::timestamptz, failed_at = NULL, missed = %(missed)s::timestamptz
 WHERE name = %(name)s AND done_until = %(seen)s::timestamptz RETURNING name
"""


def start_due() -> int:
    """Accept the submissions of all times that are due; returns how many. One schedule that fails does not hold up the others.

    A failure is logged when it begins, and is an incident until the schedule works again.
    """
    if not _schedules:
        return 0
    count = 0
    for name, seen, now in db.run(_SEEN, {"names": sorted(_schedules)}):
        try:
            count += _start(_schedules[name], seen, now)
        except Exception as error:
            if db.passes(error):
                raise
            if schedule_health.failed(name, seen, error):
                log.exception("schedule %s could not start its runs", name)
    return count


def _start(schedule: Schedule, seen: datetime, now: datetime) -> int:
    due = _due(schedule, seen, now)
    if due is None:
        return 0
    missed = _skipped(schedule, seen, now, due)
    facts = {"name": schedule.name, "seen": seen.isoformat(), "until": now.isoformat(), "missed": missed and missed.isoformat()}
    if not due:
        if db.run(_SKIP, facts):
            _say_skipped(schedule, missed)
        return 0
    new = [
        submission.NewSubmission(
            public_id=submission.new_public_id(),
            workflow=schedule.workflow,
            payload=_payload(schedule, moment),
            client=f"schedule:{schedule.name}",
            client_key=moment.isoformat(),
        )
        for moment in due
    ]
    if schedule.missed == Missed.ALL:
        facts["until"] = due[-1].isoformat()
    count = db.transact(lambda: len(submission.accept(new)) if db.fetch(_MOVE_ON, facts) else 0)
    if count:
        _say_skipped(schedule, missed)
    return count


def _say_skipped(schedule: Schedule, missed: datetime | None) -> None:
    if missed is not None:
        log.warning("schedule %s: no run for %s, which was missed", schedule.name, missed.isoformat())


def _payload(schedule: Schedule, moment: datetime) -> str:
    try:
        payload = schedule.payload_of(moment)
    except Exception as error:
        if db.passes(error):
            raise
        raise schedule_health.Unstarted(f"its payload function raised {type(error).__name__}: {error}") from error
    try:
        return json.dumps(payload, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise schedule_health.Unstarted(f"its payload is no JSON: {error}") from error


def _due(schedule: Schedule, seen: datetime, now: datetime) -> list[datetime] | None:
    """The times that get a run, of those after `seen`: none of them if all were missed and are skipped. None if there was no time."""
    if schedule.missed == Missed.ALL:
        return list(islice(takewhile(lambda moment: moment <= now, schedule.times(seen)), MOST_AT_ONCE)) or None
    on_time = list(takewhile(lambda moment: moment <= now, schedule.times(max(seen, now - LATE))))
    last = schedule.last(now)
    if on_time or last <= seen:
        return on_time or None
    return [] if schedule.missed == Missed.SKIP else [last]


def _skipped(schedule: Schedule, seen: datetime, now: datetime, due: list[datetime]) -> datetime | None:
    """The last time after `seen` that gets no run; None if each gets one, or one run for all."""
    if schedule.missed != Missed.SKIP:
        return None
    last = schedule.last(due[0] if due else now)
    return last if last > seen else None
