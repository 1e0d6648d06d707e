"""The circuit breaker: one row per remote resource, shared by all workers. Its rules are in `breaker`.

While it is open, its resource's steps wait. That counts no failure, so an outage leads no order to Error, however long it
lasts.

Every process looks at the rows at most every half second (`resources`). Without failures that is the only cost: each
process remembers when its latest calls succeeded, and writes it only when there are failures to compare it with.
"""

from __future__ import annotations

import json
import random
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TypeVar

from supervision.breaker import HALF_OPEN, Breaker, FailedCall, Told
from supervision.governance import resources
from supervision.postgres import db
from supervision.wakeup import hints

T = TypeVar("T")

PROBE_PAUSE_SECONDS = 1.0
MOST_NOTED = 16  # successes that a process remembers of each resource
NOTE_SECONDS = 0.5  # each process writes its successes at most this often
LONGEST_WAIT_SECONDS = 30.0  # then a waiting call asks again: the breaker may have been closed by hand before its cool-down is over
BUSY_WAIT = timedelta(seconds=1)  # the wait of a call that came while all probes were under way


@dataclass(frozen=True)
class Admission:
    """The runs whose calls may be made now. The other runs wait for `wait`; `why` is the reason."""

    runs: Collection[int]
    wait: timedelta = timedelta(0)
    why: str = ""


# A process that changes a breaker locks its row. So processes change it one after the other, and each sees the last change.
_LOCK = """
SELECT extract(epoch FROM clock_timestamp())::float8, breaker_state, failures, breaker_threshold, cool_down_seconds, probe_limit,
       probes, extract(epoch FROM probes_until)::float8, extract(epoch FROM opened_at)::float8,
       extract(epoch FROM retry_at)::float8, extract(epoch FROM last_error_at)::float8, suspects, successes, probing
  FROM supervision_resource WHERE name = %(name)s FOR UPDATE
"""
_SAVE = """
UPDATE supervision_resource
   SET breaker_state = %(state)s, failures = %(failures)s, probes = %(probes)s,
       probes_until = to_timestamp(%(probes_until)s::float8), opened_at = to_timestamp(%(opened_at)s::float8),
       retry_at = to_timestamp(%(retry_at)s::float8), last_error_at = to_timestamp(%(last_error_at)s::float8),
       suspects = %(suspects)s::jsonb, successes = %(successes)s::jsonb, probing = %(probing)s::jsonb
 WHERE name = %(name)s
"""
_EXPLAIN = "UPDATE supervision_resource SET last_error = %(error)s, last_code = %(code)s WHERE name = %(name)s"
_KNOW = "INSERT INTO supervision_resource (name) SELECT unnest(%(names)s::text[]) ON CONFLICT (name) DO NOTHING"
_SERVE = """
INSERT INTO supervision_resource (name) SELECT n FROM unnest(%(names)s::text[]) n
 WHERE NOT EXISTS (SELECT FROM supervision_resource r WHERE r.service = n)
ON CONFLICT (name) DO NOTHING
"""

_tried: dict[str, float] = {}
_ended: dict[str, deque[float]] = {}  # when the latest calls succeeded, as far as not yet written to the row; monotonic
_written: dict[str, float] = {}
_probes: dict[int, str] = {}  # runs that probe a resource in this process, and have no result yet


def forget() -> None:
    """Drop what this process remembers: after a fork, or in a test that has another database."""
    resources.forget()
    for memory in (_tried, _ended, _written, _probes):
        memory.clear()


def ready_for_probe() -> set[str]:
    """The resources that another call may probe."""
    now = time.monotonic()
    return {
        name
        for name, known in resources.look().by_name.items()
        if not known.paused and (known.may_probe or (known.breaker == "open" and known.retry_at <= now))
    }


def worth_probing() -> set[str]:
    """The resources ready for a probe that this process has not probed within the last second."""
    now = time.monotonic()
    return {name for name in ready_for_probe() if now - _tried.get(name, float("-inf")) > PROBE_PAUSE_SECONDS}


def to_probe() -> set[str]:
    """The resources to probe now. Each is returned at most once a second in this process."""
    names = worth_probing()
    _tried.update(dict.fromkeys(names, time.monotonic()))
    return names


def know(names: Sequence[str]) -> None:
    """Make sure that these services have a resource, which operators can edit. One that others serve gets none of its own name."""
    db.run(_SERVE, {"names": list(names)})


# ------------------------------------------------------------------------------------------------ the locked row


def change(name: str, work: Callable[[Breaker], T]) -> T:
    """Let `work` change this resource's breaker while its row is locked. In a caller's transaction the lock lasts to its end."""

    def locked() -> T:
        rows = db.fetch(_LOCK, {"name": name})
        if not rows:
            db.fetch(_KNOW, {"names": [name]})
            rows = db.fetch(_LOCK, {"name": name})
        breaker = Breaker(*rows[0][:-3], *map(list, rows[0][-3:]))  # its fields, in their order
        before = asdict(breaker)
        answer = work(breaker)
        after = asdict(breaker)
        if after != before:
            db.fetch(_SAVE, {**after, **{key: json.dumps(after[key]) for key in ("suspects", "successes", "probing")}, "name": name})
        return answer

    answer = db.transact(locked)
    resources.forget()
    return answer


def admit(resource: str, runs: Sequence[int]) -> Admission:
    """Decide which of these runs may call the resource now."""
    known = resources.look().by_name.get(resource)
    if known is None or known.closed:
        return Admission(runs)
    wait = known.retry_at - time.monotonic()
    if known.breaker == "open" and wait > 0:
        return Admission((), _spread(min(wait, LONGEST_WAIT_SECONDS)), f"{resource} does not answer: its breaker is open")
    admitted = change(resource, lambda breaker: (breaker.admit(runs), breaker.state))
    if admitted[1] == HALF_OPEN:
        _probes.update(dict.fromkeys(admitted[0], resource))
    return Admission(set(admitted[0]), BUSY_WAIT + _spread(0), f"{resource} is being tried out again: its breaker is half-open")


def no_verdict(runs: Sequence[int]) -> None:
    """These runs' calls were never made, or ended without a result for the breaker: their probes are given back."""
    held: dict[str, list[int]] = {}
    for run in runs if _probes else ():
        if (resource := _probes.pop(run, None)) is not None:
            held.setdefault(resource, []).append(run)
    for resource, given in held.items():
        change(resource, lambda breaker, given=given: breaker.give_back(given))  # type: ignore[misc]


def failed(
    resource: str,
    calls: Sequence[FailedCall],
    error: str = "",
    code: str = "",
    *,
    give_back: Callable[[Sequence[int]], object] | None = None,
) -> Told:
    """Record failed calls. Returns what is to blame for each, and how long calls wait if the breaker is open now.

    give_back: called in the same commit with the runs whose counted failures turn out to belong to an outage.
    """
    noted = _take_noted(resource)

    def work(breaker: Breaker) -> Told:
        if noted:
            breaker.succeeded([time.monotonic() - at for at in noted], just_now=False)
        told = breaker.failed(calls)
        db.fetch(_EXPLAIN, {"name": resource, "error": error[:500], "code": code[:100]})
        if told.give_back and give_back is not None:
            give_back(told.give_back)
        return told

    told = change(resource, work)
    _settled(resource)
    return told


def succeeded(resource: str, ended: Sequence[float]) -> None:
    """Record calls that were answered at these `time.monotonic()` values. Costs no statement while there are no failures."""
    moments = _ended.get(resource)
    if moments is None:
        moments = _ended.setdefault(resource, deque(maxlen=MOST_NOTED))
    moments.extend(ended[-MOST_NOTED:])
    known = resources.look().by_name.get(resource)
    if known is None or not known.watched:
        return
    if known.closed and time.monotonic() - _written.get(resource, float("-inf")) < NOTE_SECONDS:
        return  # `tell` writes them later
    _tell(resource, just_now=True)
    _settled(resource)


def tell() -> None:
    """Write the remembered successes of resources that have failures to compare them with. Called by a timer."""
    waiting = [name for name, moments in list(_ended.items()) if moments]
    if waiting:
        seen = resources.look().by_name
        for name in waiting:
            if name in seen and seen[name].watched:
                _tell(name, just_now=False)


def _tell(resource: str, *, just_now: bool) -> None:
    noted = _take_noted(resource)
    if not noted:
        return
    _written[resource] = time.monotonic()
    closes = change(resource, lambda breaker: breaker.succeeded([time.monotonic() - at for at in noted], just_now=just_now))
    if closes:
        hints.send(hints.SCHEDULE)  # the waiting steps may be claimed


def _take_noted(resource: str) -> list[float]:
    moments, noted = _ended.get(resource), []
    try:
        while moments:
            noted.append(moments.popleft())
    except IndexError:
        pass  # another thread took the rest
    return noted


def _settled(resource: str) -> None:
    """Forget the probes of this process at this resource: their result is known."""
    for run in [run for run, name in list(_probes.items()) if name == resource]:
        _probes.pop(run, None)


def probing(members: Sequence[resources.Known]) -> Mapping[int, str]:
    """The runs that were chosen to probe one of these resources: run -> resource."""
    down = [known.name for known in members if not known.closed]
    if not down:
        return {}
    rows = db.run("SELECT name, probing FROM supervision_resource WHERE name = ANY (%(names)s)", {"names": down})
    return {run: name for name, runs in rows for run in runs}


def close(names: Sequence[str]) -> None:
    """Close these breakers because an operator asked for it."""
    for name in names:
        change(name, Breaker.close)
    forget()


def wait_of(told: Told) -> timedelta | None:
    """How long a call that met an open breaker waits, with jitter; None if the breaker is closed."""
    return None if told.wait is None else _spread(min(told.wait, LONGEST_WAIT_SECONDS))


def _spread(seconds: float) -> timedelta:
    """A wait with jitter, so that waiting calls do not all return at the same moment."""
    return timedelta(seconds=seconds + random.random() * 0.5)  # noqa: S311 - spreads load, protects nothing
