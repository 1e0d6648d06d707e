"""Slots and rate limiter: never more calls in flight than a resource's capacity, never more per second than its rate.

A slot is a row with a lease. A process that takes slots locks the resource's row, so processes take turns. It counts the
slots in a statement after the lock, because only a later statement's snapshot is newer than the lock. A killed holder's slot
becomes free when its lease has expired, which is when its step's own time is over.

The rate limiter reserves a moment for each request. The moments are so far apart that even with JITTER_SECONDS of delay no
second has more requests than allowed. Nothing is reserved further ahead than HORIZON_SECONDS.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from random import random

from supervision.postgres import db
from supervision.runtime.identity import me

HORIZON_SECONDS = 0.25
JITTER_SECONDS = 0.15  # how unevenly requests may arrive: the sender's delay and the network's
GRACE_SECONDS = 1.0  # a call may outlive its budget by so much before its slot is given away
NO_SLOT_SECONDS = 0.2
LONGEST_WAIT_SECONDS = 30.0  # then a waiting call asks again: an operator may have raised the rate

Holder = tuple[int, str, int, int]  # run, direction, position, attempt


@dataclass(frozen=True)
class Reservations:
    """Which calls may be made, and in how many seconds each. wait, why: how long the other calls wait, and the reason.

    at: the `time.monotonic()` value from which the delays count.
    """

    delays: dict[Holder, float] = field(default_factory=dict)
    wait: timedelta = timedelta(0)
    why: str = ""
    at: float = 0.0


_LOCK = """
SELECT capacity, rate_per_second, paused,
       greatest(coalesce(extract(epoch FROM next_call_at - clock_timestamp()), 0), 0)::float8
  FROM supervision_resource WHERE name = %(name)s FOR UPDATE
"""
_COUNT = """
WITH gone AS (DELETE FROM supervision_slot WHERE resource = %(name)s AND until < clock_timestamp())
SELECT count(*) FROM supervision_slot WHERE resource = %(name)s AND until >= clock_timestamp()
"""
_TAKE = """
INSERT INTO supervision_slot (resource, run_id, direction, position, attempt, holder, taken_at, until)
SELECT %(name)s, run_id, direction, position, attempt, %(me)s, clock_timestamp(), clock_timestamp() + seconds * interval '1 s'
  FROM unnest(%(runs)s::bigint[], %(directions)s::text[], %(positions)s::smallint[], %(attempts)s::int[], %(leases)s::float8[])
         v(run_id, direction, position, attempt, seconds)
ON CONFLICT DO NOTHING
"""
_RESERVE = """
UPDATE supervision_resource SET next_call_at = clock_timestamp() + %(ahead)s::float8 * interval '1 s' WHERE name = %(name)s
"""
_RESERVE_MORE = """
UPDATE supervision_resource r
   SET next_call_at = greatest(next_call_at, clock_timestamp())
                      + %(count)s * (1 / rate_per_second + %(jitter)s::float8 / greatest(rate_per_second, 1)) * interval '1 s'
 WHERE name = %(name)s AND rate_per_second IS NOT NULL
RETURNING greatest(extract(epoch FROM next_call_at - clock_timestamp()), 0)::float8, rate_per_second
"""
# A call keeps its slot only while it is within its own time: in the grace that follows, the slot may be another call's.
_KEEP = """
UPDATE supervision_slot s SET until = greatest(s.until, clock_timestamp() + (v.seconds + %(grace)s::float8) * interval '1 s')
  FROM unnest(%(runs)s::bigint[], %(directions)s::text[], %(positions)s::smallint[], %(attempts)s::int[], %(leases)s::float8[])
         v(run_id, direction, position, attempt, seconds)
 WHERE s.run_id = v.run_id AND s.direction = v.direction AND s.position = v.position AND s.attempt = v.attempt
   AND s.until >= clock_timestamp() + %(grace)s::float8 * interval '1 s'
RETURNING s.run_id, s.direction, s.position, s.attempt
"""
_GIVE_BACK = """
DELETE FROM supervision_slot s
 USING unnest(%(runs)s::bigint[], %(directions)s::text[], %(positions)s::smallint[], %(attempts)s::int[])
         v(run_id, direction, position, attempt)
 WHERE s.run_id = v.run_id AND s.direction = v.direction AND s.position = v.position AND s.attempt = v.attempt
"""

# The use to subtract from the capacity: running calls, claims that are not started, and slots whose holder died all count.
_USE = """
SELECT count(*), count(*) FILTER (WHERE started_at IS NULL) FROM supervision_stepstate
 WHERE process_state = 'Processing' AND agent = ANY (%(agents)s)
"""
_LIMITS = """
SELECT capacity, rate_per_second, greatest(coalesce(extract(epoch FROM next_call_at - now()), 0), 0)::float8,
       (SELECT count(*) FROM supervision_slot s WHERE s.resource = r.name AND s.until > now())
  FROM supervision_resource r WHERE CASE service WHEN '' THEN name ELSE service END = %(service)s
   AND NOT paused AND breaker_state = 'closed'
"""
_IN_FLIGHT = """
SELECT resource, count(*) FROM supervision_slot WHERE resource = ANY (%(names)s) AND until > now() GROUP BY resource
"""


def gap(rate: float) -> float:
    """Seconds between two calls at this rate, with room for uneven arrival."""
    return 1 / rate + JITTER_SECONDS / max(rate, 1.0)


def within_horizon(rate: float, wait: float) -> int:
    """How many calls may be reserved now when the next is possible in `wait` seconds."""
    return 0 if wait > HORIZON_SECONDS else 1 + int((HORIZON_SECONDS - wait) / gap(rate))


def take(name: str, wanted: Sequence[Holder], *, lease_seconds: float) -> Reservations:
    """Take slots and moments for as many of these calls as the resource allows now, in order."""
    return db.transact(lambda: _take(name, wanted, lease_seconds))


def _take(name: str, wanted: Sequence[Holder], lease: float) -> Reservations:
    rows = db.fetch(_LOCK, {"name": name})
    at = time.monotonic()  # not after the commit: a slow commit would move these moments among those of the next caller
    if not rows:
        return Reservations(dict.fromkeys(wanted, 0.0), at=at)
    capacity, rate, paused, ahead = rows[0]
    if paused:
        return Reservations({}, _spread(1.0), f"{name} is paused")
    room, why, wait = len(wanted), "", timedelta(0)
    in_use = db.fetch(_COUNT, {"name": name})[0][0]
    if capacity is not None and capacity - in_use < room:
        room, wait = max(0, capacity - in_use), _spread(NO_SLOT_SECONDS)
        why = f"no free slot at {name}: {in_use + room} of {capacity} calls are under way"
    if rate is not None and (now := within_horizon(rate, ahead)) < room:
        room, wait = now, _spread(min(ahead + now * gap(rate), LONGEST_WAIT_SECONDS))
        why = f"{name} takes {rate:g} calls a second"
    granted = wanted[:room]
    delays = [ahead + n * gap(rate) if rate is not None else 0.0 for n in range(room)]
    if granted:
        runs, directions, positions, attempts = zip(*granted, strict=True)
        leases = [delay + lease + GRACE_SECONDS for delay in delays]
        facts = {"runs": list(runs), "directions": list(directions), "positions": list(positions), "attempts": list(attempts)}
        db.fetch(_TAKE, {**facts, "leases": leases, "name": name, "me": me()})
        if rate is not None:
            db.fetch(_RESERVE, {"name": name, "ahead": ahead + room * gap(rate)})
    return Reservations(dict(zip(granted, delays, strict=True)), wait, why, at)


def reserve(name: str, count: int) -> list[float]:
    """Moments for so many more requests of calls that are under way, as `time.monotonic()` values."""
    params = {"name": name, "count": count, "jitter": JITTER_SECONDS}
    rows, at = db.transact(lambda: (db.fetch(_RESERVE_MORE, params), time.monotonic()))
    if not rows:
        return [at] * count
    end, rate = rows[0]
    return [at + max(0.0, end - (count - n) * gap(rate)) for n in range(count)]


def keep(wanted: Mapping[Holder, float]) -> set[Holder]:
    """Extend the slots of these calls, which are under way, to so many seconds from now. Returns those that still have their slot."""
    runs, directions, positions, attempts = zip(*wanted, strict=True)
    facts = {"runs": list(runs), "directions": list(directions), "positions": list(positions), "attempts": list(attempts)}
    return {(row[0], row[1], row[2], row[3]) for row in db.run(_KEEP, {**facts, "leases": list(wanted.values()), "grace": GRACE_SECONDS})}


def give_back(holders: Sequence[Holder]) -> None:
    """Free the slots of these calls, which are over."""
    runs, directions, positions, attempts = zip(*holders, strict=True)
    facts = {"runs": list(runs), "directions": list(directions), "positions": list(positions), "attempts": list(attempts)}
    db.run(_GIVE_BACK, facts)


def claimable(service: str, agents: Sequence[str], most: int) -> tuple[int, bool]:
    """How many more steps may be claimed for this service, up to `most`; and whether only time can make room (its rate).

    Resources without a capacity, or without a rate, do not bound the claims of their service unless another one of it does: then they
    count as one more batch, because it is not known yet which of them each step will go to.
    """
    running, unstarted = db.run(_USE, {"agents": list(agents)})[0]
    limits = db.run(_LIMITS, {"service": service})
    if not limits:
        return 0, False
    by_slots = soon = most
    if any(capacity is not None for capacity, *_ in limits):
        total = sum(most if capacity is None else capacity for capacity, *_ in limits)
        by_slots = total - max(running, sum(in_slots for *_, in_slots in limits) + unstarted)
    if timed := any(rate is not None for _, rate, *_ in limits):
        soon = sum(most if rate is None else within_horizon(rate, wait) for _, rate, wait, _ in limits) - unstarted
    return max(min(by_slots, soon, most), 0), timed and by_slots > 0


def in_flight(names: Sequence[str]) -> dict[str, int]:
    """How many slots of these resources are taken."""
    return dict(db.run(_IN_FLIGHT, {"names": list(names)}))  # type: ignore[arg-type]


def _spread(seconds: float) -> timedelta:
    """A wait with jitter, so that waiting steps do not all come back at once."""
    return timedelta(seconds=seconds + random() * 0.1)  # noqa: S311 - spreads load, protects nothing
