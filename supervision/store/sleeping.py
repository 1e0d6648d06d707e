"""Steps that wait for a signal or for a moment: they fall asleep and wake up. A step asleep is Pending, and its turn_at is null.

CLAIM orders by turn_at and so never reads a step that is asleep: any number of them costs the claims nothing. The time asleep
does not count against the run's own time: the run's complete_by moves on by the whole wait when the step falls asleep, and
back by what is left of it when a signal wakes the step.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from supervision import conf
from supervision.errors import AwaitSignal
from supervision.postgres import db
from supervision.store.sessions import HEAD_START_SECONDS

_TURN = f"now() - r.priority * interval '{HEAD_START_SECONDS} s'"


class Sleeper(NamedTuple):
    """A step that SETTLE has just made Pending, and what it waits for."""

    run_id: int
    direction: str
    position: int
    awaits: AwaitSignal


# One lock for each run decides between a signal and a step that falls asleep. Senders share it, from before they write until they
# commit. A step falls asleep only if it gets the lock alone, and looks for signals in a later statement, whose snapshot has all
# that earlier senders committed. It never waits for a sender, whose transaction may be long: it stays due and is called again.
SIGNAL_LOCK = "hashtextextended('supervision signal ' || {key}, 0)"
_TRY_LOCK = f"""
SELECT r.id FROM supervision_run r
 WHERE r.id = ANY (%(runs)s::bigint[]) AND pg_try_advisory_xact_lock({SIGNAL_LOCK.format(key="r.key")})
"""  # noqa: S608 - our own expression
_PUT_OFF = """
UPDATE supervision_stepstate s SET not_before = now() + interval '1 s'
  FROM unnest(%(runs)s::bigint[], %(directions)s::text[], %(positions)s::smallint[]) v(run_id, direction, position)
 WHERE s.run_id = v.run_id AND s.direction = v.direction AND s.position = v.position AND s.process_state || '' = 'Pending'
"""

# A wait that is over already, or whose signal is here, leaves the step due.
_FALL_ASLEEP = """
WITH v AS (
    SELECT * FROM unnest(%(runs)s::bigint[], %(directions)s::text[], %(positions)s::smallint[], %(names)s::text[],
                         %(withins)s::float8[], %(untils)s::timestamptz[], %(looks)s::float8[])
             v(run_id, direction, position, name, within, until, look)),
z AS MATERIALIZED (
    SELECT s.run_id, s.direction, s.position, v.name, r.complete_by IS NOT NULL AND s.direction = 'do' AS extends,
           least(coalesce(v.until, now() + v.within * interval '1 s'), now() + interval '3660 days') AS until,
           now() + v.look * interval '1 s' AS look,
           EXISTS (SELECT FROM supervision_signal g
                    WHERE g.run_key = r.key AND g.name = v.name AND g.taken_by IS NULL) AS here
      FROM v JOIN supervision_run r ON r.id = v.run_id
      JOIN supervision_stepstate s ON s.run_id = v.run_id AND s.direction = v.direction AND s.position = v.position
       AND s.process_state || '' = 'Pending'),
u AS (
    UPDATE supervision_stepstate s
       SET awaits = z.name, awaits_until = z.until, awaits_attempt = s.attempt,
           turn_at = CASE WHEN z.here OR z.until <= now() THEN s.turn_at END,
           not_before = CASE WHEN z.here OR z.until <= now() THEN now() ELSE least(z.until, z.look) END,
           complete_by = CASE WHEN z.here OR z.until <= now() THEN now() ELSE least(z.until, z.look) END
                         + %(pickup)s::float8 * interval '1 s'
      FROM z WHERE s.run_id = z.run_id AND s.direction = z.direction AND s.position = z.position
       AND s.process_state || '' = 'Pending'
    RETURNING s.run_id, z.extends AND s.turn_at IS NULL AS extends, z.until)
UPDATE supervision_run r SET complete_by = r.complete_by + (u.until - now()) FROM u WHERE r.id = u.run_id AND u.extends
"""


def fall_asleep(sleepers: Sequence[Sleeper]) -> None:
    """Let these steps wait, in the transaction that has locked them and made them Pending. Call it last."""
    alone = {row[0] for row in db.fetch(_TRY_LOCK, {"runs": [each.run_id for each in sleepers]})}
    if late := [each for each in sleepers if each.run_id not in alone]:
        db.fetch(_PUT_OFF, _places(late))
        sleepers = [each for each in sleepers if each.run_id in alone]
    db.fetch(
        _FALL_ASLEEP,
        {
            **_places(sleepers),
            "names": [each.awaits.name for each in sleepers],
            "withins": [None if each.awaits.within is None else each.awaits.within.total_seconds() for each in sleepers],
            "untils": [_moment(each.awaits.until) for each in sleepers],
            "looks": [None if each.awaits.look_after is None else each.awaits.look_after.total_seconds() for each in sleepers],
            "pickup": conf.get().pickup_within.total_seconds(),
        },
    )


def _places(sleepers: Sequence[Sleeper]) -> dict[str, list[Any]]:
    return {
        "runs": [each.run_id for each in sleepers],
        "directions": [each.direction for each in sleepers],
        "positions": [each.position for each in sleepers],
    }


def _moment(until: datetime | None) -> str | None:
    return None if until is None else until.isoformat()


# The rest of a wait that ends early no longer counts as held. Waits of several branches may end together.
_GIVE_BACK = """r AS (
    UPDATE supervision_run r SET complete_by = r.complete_by - u.rest
      FROM (SELECT run_id, sum(greatest(awaits_until - now(), interval '0')) AS rest FROM u WHERE direction = 'do' GROUP BY run_id) u
     WHERE r.id = u.run_id AND r.complete_by IS NOT NULL)"""

# The steps whose time is over, the longest first. Two supervisors at once share them.
_WAKE_DUE = f"""
WITH c AS MATERIALIZED (
    SELECT s.run_id, s.direction, s.position FROM supervision_stepstate s
     WHERE s.process_state = 'Pending' AND s.turn_at IS NULL AND s.not_before <= now()
     ORDER BY s.not_before LIMIT %(limit)s
       FOR UPDATE OF s SKIP LOCKED),
u AS (
    UPDATE supervision_stepstate s SET turn_at = {_TURN}, complete_by = now() + %(pickup)s::float8 * interval '1 s'
      FROM c JOIN supervision_run r ON r.id = c.run_id
     WHERE s.run_id = c.run_id AND s.direction = c.direction AND s.position = c.position
       AND s.process_state || '' = 'Pending' AND s.turn_at IS NULL
    RETURNING s.run_id, s.direction, s.awaits_until),
{_GIVE_BACK}
SELECT run_id FROM u
"""  # noqa: S608 - our own number


def wake_due(limit: int) -> int:
    """Make up to `limit` steps claimable whose wait is over; returns how many."""
    return len(db.run(_WAKE_DUE, {"limit": limit, "pickup": conf.get().pickup_within.total_seconds()}))


# A run in Error lets none of its steps begin. A step asleep keeps what it waits for, and looks again when the run goes on.
_HOLD_BACK = """
WITH o AS MATERIALIZED (
    SELECT s.position, CASE WHEN s.turn_at IS NULL THEN greatest(s.awaits_until - now(), interval '0') END AS rest
      FROM supervision_stepstate s
     WHERE s.run_id = %(run)s AND s.direction = %(direction)s AND s.process_state || '' = 'Pending' AND s.not_before IS NOT NULL
       AND (%(position)s::smallint IS NULL OR s.position = %(position)s)),
u AS (
    UPDATE supervision_stepstate s SET not_before = NULL, turn_at = NULL, complete_by = NULL
      FROM o WHERE s.run_id = %(run)s AND s.direction = %(direction)s AND s.position = o.position)
UPDATE supervision_run r SET complete_by = r.complete_by - o.rest
  FROM (SELECT sum(rest) AS rest FROM o) o WHERE r.id = %(run)s AND r.direction = 'do' AND o.rest > interval '0'
"""


def hold_back(run_id: int, direction: str, position: int | None = None) -> None:
    """Let no Pending step of this run begin, or not the one at this position, in the transaction that has locked the whole run."""
    db.fetch(_HOLD_BACK, {"run": run_id, "direction": direction, "position": position})


_SHARE = f"SELECT pg_advisory_xact_lock_shared({SIGNAL_LOCK.format(key='k')}) FROM unnest(%(keys)s::text[]) k ORDER BY k"  # noqa: S608

_WAKE = f"""
WITH u AS (
    UPDATE supervision_stepstate s
       SET not_before = now(), turn_at = {_TURN}, complete_by = now() + %(pickup)s::float8 * interval '1 s'
      FROM unnest(%(runs)s::bigint[], %(names)s::text[]) v(run_id, name) JOIN supervision_run r ON r.id = v.run_id
     WHERE s.run_id = v.run_id AND s.awaits = v.name AND s.process_state || '' = 'Pending'
       AND s.turn_at IS NULL AND s.not_before IS NOT NULL
    RETURNING s.run_id, s.direction, s.awaits_until),
{_GIVE_BACK}
SELECT run_id FROM u
"""  # noqa: S608 - our own number


def let_none_fall_asleep(keys: Sequence[str]) -> None:
    """Let no step of the runs with these keys fall asleep until the transaction ends. A sender calls it before it writes a signal."""
    db.fetch(_SHARE, {"keys": sorted(set(keys))})


def wake(signals: Sequence[tuple[int, str]]) -> None:
    """Wake the steps that wait for these signals, given as (run, name), in the sender's transaction."""
    facts = {"runs": [run_id for run_id, _ in signals], "names": [name for _, name in signals]}
    db.fetch(_WAKE, {**facts, "pickup": conf.get().pickup_within.total_seconds()})
