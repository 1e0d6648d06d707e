"""Steps that wait for a signal or for a moment: they fall asleep and wake up. A step asleep is Pending, and its turn_at is null.

CLAIM orders by turn_at and so never reads a step that is asleep: any number of them costs the claims nothing. The time asleep
does not count against the run's own time: the run's complete_by moves on by the whole wait when the step falls asleep, and
back by what is left of it when a signal wakes the step. In a run whose plan branches several steps may be asleep. Then it moves
on and back as the latest end of their waits does, so that what they wait at the same time counts once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
    SELECT s.run_id, s.direction, s.position, v.name, r.complete_by IS NOT NULL AND s.direction = 'do' AS extends, s.after,
           coalesce(v.until, now() + v.within * interval '1 s') AS until,
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
    RETURNING s.run_id, s.position, z.extends AND s.turn_at IS NULL AS extends, z.until, z.after),
r AS (
    UPDATE supervision_run r SET complete_by = r.complete_by + (u.until - now())
      FROM u WHERE r.id = u.run_id AND u.extends AND u.after IS NULL)
SELECT run_id, position, until FROM u WHERE extends AND after IS NOT NULL
"""

# What `complete_by` moves by when steps of runs that branch fall asleep (sign 1) or wake (-1): the latest end of all waits of the run
# with these steps, less the one without them. The runs are locked in a statement before this one, so that it sees what other
# branches committed.
_LOCK_RUNS = "SELECT FROM supervision_run WHERE id = ANY (%(runs)s::bigint[]) ORDER BY id FOR UPDATE"
_CREDIT = """
UPDATE supervision_run r
   SET complete_by = r.complete_by + %(sign)s * (greatest(v.until, o.until, now()) - greatest(o.until, now()))
  FROM (SELECT run_id, array_agg(position) AS positions, max(until) AS until
          FROM unnest(%(runs)s::bigint[], %(positions)s::smallint[], %(untils)s::timestamptz[]) v(run_id, position, until)
         GROUP BY run_id) v
 CROSS JOIN LATERAL (
       SELECT max(s.awaits_until) AS until FROM supervision_stepstate s
        WHERE s.run_id = v.run_id AND s.direction = 'do' AND s.process_state || '' = 'Pending' AND s.turn_at IS NULL
          AND s.not_before IS NOT NULL AND s.position <> ALL (v.positions)) o
 WHERE r.id = v.run_id AND r.complete_by IS NOT NULL
"""


def _credit(rows: Sequence[tuple[int, int, datetime]], sign: int) -> None:
    """Let the time of runs that branch follow these steps, given as (run, position, end of the wait), which fell asleep or woke."""
    if not rows:
        return
    runs = {"runs": [run_id for run_id, _, _ in rows]}
    db.fetch(_LOCK_RUNS, runs)
    untils = [until.isoformat() for _, _, until in rows]
    db.fetch(_CREDIT, {**runs, "positions": [position for _, position, _ in rows], "untils": untils, "sign": sign})


def fall_asleep(sleepers: Sequence[Sleeper]) -> None:
    """Let these steps wait, in the transaction that has locked them and made them Pending. Call it last."""
    alone = {row[0] for row in db.fetch(_TRY_LOCK, {"runs": [each.run_id for each in sleepers]})}
    if late := [each for each in sleepers if each.run_id not in alone]:
        db.fetch(_PUT_OFF, _places(late))
        sleepers = [each for each in sleepers if each.run_id in alone]
    branching = db.fetch(
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
    _credit(branching, 1)


def _places(sleepers: Sequence[Sleeper]) -> dict[str, list[Any]]:
    return {
        "runs": [each.run_id for each in sleepers],
        "directions": [each.direction for each in sleepers],
        "positions": [each.position for each in sleepers],
    }


def _moment(until: datetime | None) -> str | None:
    return None if until is None else until.isoformat()


# The rest of a wait that ends early no longer counts as held. What is returned is for `_credit`: the steps of runs that branch.
_GIVE_BACK = """r AS (
    UPDATE supervision_run r SET complete_by = r.complete_by - greatest(u.awaits_until - now(), interval '0')
      FROM u WHERE r.id = u.run_id AND r.complete_by IS NOT NULL AND u.direction = 'do' AND u.after IS NULL)
SELECT run_id, position, awaits_until, direction = 'do' AND after IS NOT NULL FROM u
"""

# The steps whose time is over, the longest first. Two supervisors at once share them. Their `not_before` becomes the moment up to which
# the time of the run has moved on for the wait: held time counts from there.
_WAKE_DUE = f"""
WITH c AS MATERIALIZED (
    SELECT s.run_id, s.direction, s.position FROM supervision_stepstate s
     WHERE s.process_state = 'Pending' AND s.turn_at IS NULL AND s.not_before <= now()
     ORDER BY s.not_before LIMIT %(limit)s
       FOR UPDATE OF s SKIP LOCKED),
u AS (
    UPDATE supervision_stepstate s
       SET not_before = least(s.awaits_until, now()), turn_at = {_TURN}, complete_by = now() + %(pickup)s::float8 * interval '1 s'
      FROM c JOIN supervision_run r ON r.id = c.run_id
     WHERE s.run_id = c.run_id AND s.direction = c.direction AND s.position = c.position
       AND s.process_state || '' = 'Pending' AND s.turn_at IS NULL
    RETURNING s.run_id, s.direction, s.position, s.awaits_until, s.after),
{_GIVE_BACK}"""  # noqa: S608 - our own number


def wake_due(limit: int) -> int:
    """Make up to `limit` steps claimable whose wait is over; returns how many."""
    params = {"limit": limit, "pickup": conf.get().pickup_within.total_seconds()}
    return db.transact(lambda: woken(db.fetch(_WAKE_DUE, params)))


def woken(rows: Sequence[tuple[Any, ...]]) -> int:
    """Let the time of the runs follow these steps that woke; returns how many there are."""
    _credit([(run_id, position, until) for run_id, position, until, branches in rows if branches], -1)
    return len(rows)


# A run in Error lets none of its steps begin. A step asleep keeps what it waits for, and looks again when the run goes on.
_HOLD_BACK = """
WITH o AS MATERIALIZED (
    SELECT s.position, CASE WHEN s.turn_at IS NULL THEN s.awaits_until END AS until
      FROM supervision_stepstate s
     WHERE s.run_id = %(run)s AND s.direction = %(direction)s AND s.process_state || '' = 'Pending' AND s.not_before IS NOT NULL
       AND (%(position)s::smallint IS NULL OR s.position = %(position)s)),
u AS (
    UPDATE supervision_stepstate s SET not_before = NULL, turn_at = NULL, complete_by = NULL
      FROM o WHERE s.run_id = %(run)s AND s.direction = %(direction)s AND s.position = o.position)
UPDATE supervision_run r SET complete_by = r.complete_by - (greatest(o.until, others.until, now()) - greatest(others.until, now()))
  FROM (SELECT max(until) AS until FROM o) o
 CROSS JOIN (
       SELECT max(s.awaits_until) AS until FROM supervision_stepstate s
        WHERE s.run_id = %(run)s AND s.direction = %(direction)s AND s.process_state || '' = 'Pending' AND s.turn_at IS NULL
          AND s.not_before IS NOT NULL AND s.position <> ALL (ARRAY(SELECT position FROM o))) others
 WHERE r.id = %(run)s AND r.direction = 'do' AND o.until > now()
"""


def hold_back(run_id: int, direction: str, position: int | None = None) -> None:
    """Let no Pending step of this run begin, or not the one at this position, in the transaction that has locked the whole run."""
    db.fetch(_HOLD_BACK, {"run": run_id, "direction": direction, "position": position})


# Until the transaction ends, no step of the runs with these keys falls asleep. A sender executes it before it writes a signal.
AWAKE = f"SELECT pg_advisory_xact_lock_shared({SIGNAL_LOCK.format(key='k')}) FROM unnest(%(keys)s::text[]) k ORDER BY k"  # noqa: S608
# The sender's lock alone: it waits for those who send to one of these runs at this moment.
ALONE = f"SELECT pg_advisory_xact_lock({SIGNAL_LOCK.format(key='k')}) FROM unnest(%(keys)s::text[]) k ORDER BY k"  # noqa: S608

# Of the steps that wait for a signal of this name, those for which one is here.
_WAKE = f"""
WITH u AS (
    UPDATE supervision_stepstate s
       SET not_before = now(), turn_at = {_TURN}, complete_by = now() + %(pickup)s::float8 * interval '1 s'
      FROM unnest(%(runs)s::bigint[], %(names)s::text[]) v(run_id, name) JOIN supervision_run r ON r.id = v.run_id
     WHERE s.run_id = v.run_id AND s.awaits = v.name AND s.process_state || '' = 'Pending'
       AND s.turn_at IS NULL AND s.not_before IS NOT NULL
       AND EXISTS (SELECT FROM supervision_signal g WHERE g.run_key = r.key AND g.name = v.name AND g.taken_by IS NULL)
    RETURNING s.run_id, s.direction, s.position, s.awaits_until, s.after),
{_GIVE_BACK}"""  # noqa: S608 - our own number


def waking(signals: Sequence[tuple[int, str]]) -> db.Statement:
    """What wakes the steps that wait for these signals, given as (run, name), in the sender's transaction. `woken` gets its rows."""
    facts = {"runs": [run_id for run_id, _ in signals], "names": [name for _, name in signals]}
    return _WAKE, {**facts, "pickup": conf.get().pickup_within.total_seconds()}


_ALONE = f"SELECT pg_try_advisory_xact_lock({SIGNAL_LOCK.format(key='%(run)s::text')})"
_UNTAKEN = """
SELECT DISTINCT g.name FROM supervision_signal g
 WHERE g.run_key = %(run)s AND g.name = ANY (%(names)s::text[]) AND g.taken_by IS NULL
"""


def untaken(run: str, names: Collection[str]) -> set[str]:
    """Those of these names of which a signal to the run of this key is here that no step has taken; all while a sender is at work.

    A sender that has not committed yet may send one of them. Until the transaction ends, no other one begins.
    """
    [(alone,)] = db.fetch(_ALONE, {"run": run})
    return {row[0] for row in db.fetch(_UNTAKEN, {"run": run, "names": sorted(names)})} if alone else set(names)


_TAKE_BACK = """
UPDATE supervision_signal g SET taken_by = NULL, taken_at = NULL, taken_attempt = NULL
 WHERE g.run_key = %(run)s AND g.name = ANY (%(names)s::text[]) AND g.taken_by = %(step)s AND g.taken_attempt > %(began)s
"""


def take_back(run: str, step: str, names: Collection[str], began: int) -> None:
    """Let the signals of these names be taken once more that this step took in the wait which it began at this attempt."""
    db.fetch(_TAKE_BACK, {"run": run, "step": step, "names": sorted(names), "began": began})
