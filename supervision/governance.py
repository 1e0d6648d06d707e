"""The circuit breaker: one row per remote resource, shared by all workers.

closed: calls go through. After `breaker_threshold` failures in a row it is open: its steps are postponed, which counts
no failure, so that an outage leads no order to Error however long it lasts. After `cool_down_seconds` it is half-open:
at most `probe_limit` calls go through; one success closes it, one failure opens it again.

Every process looks at the rows at most every half second (`resources`). While all is well that is all it costs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from supervision import db, resources

PROBE_SECONDS = 30.0  # a probe that has not ended by then is given up, and another may go
PROBE_PAUSE_SECONDS = 1.0
BUSY_WAIT = timedelta(seconds=1)  # for whoever came while the probes were out


@dataclass(frozen=True)
class Admission:
    """How many calls may go through now; the others wait so long, for this reason."""

    allowed: int
    wait: timedelta = timedelta(0)
    why: str = ""


# A failure while closed counts; the one that reaches the threshold, and any failure of a probe, opens. Failures of
# calls that were under way when it opened change nothing.
_FAILED = """
UPDATE supervision_resource r
   SET failures = CASE r.breaker_state WHEN 'open' THEN r.failures ELSE r.failures + %(count)s END,
       breaker_state = CASE WHEN r.breaker_state <> 'closed' OR r.failures + %(count)s >= r.breaker_threshold
                            THEN 'open' ELSE 'closed' END,
       opened_at = CASE WHEN r.breaker_state = 'closed' AND r.failures + %(count)s >= r.breaker_threshold
                        THEN now() ELSE r.opened_at END,
       retry_at = CASE WHEN r.breaker_state = 'half-open'
                         OR (r.breaker_state = 'closed' AND r.failures + %(count)s >= r.breaker_threshold)
                       THEN now() + r.cool_down_seconds * interval '1 s' ELSE r.retry_at END,
       probes = 0, last_error = %(error)s, last_error_at = now()
 WHERE name = %(name)s
RETURNING breaker_state, coalesce(extract(epoch FROM retry_at - now()), 0)::float8
"""
_KNOW = "INSERT INTO supervision_resource (name) SELECT unnest(%(names)s::text[]) ON CONFLICT (name) DO NOTHING"

# The row decides how many probes are out, whoever asks; probes whose caller died are given up after a while.
_PROBE = """
WITH old AS (
    SELECT name, CASE WHEN breaker_state = 'half-open' AND probes_until > now() THEN probes ELSE 0 END AS out
      FROM supervision_resource
     WHERE name = %(name)s AND (breaker_state = 'half-open' OR (breaker_state = 'open' AND retry_at <= now()))
       FOR UPDATE)
UPDATE supervision_resource r
   SET breaker_state = 'half-open', probes = old.out + least(%(wanted)s, r.probe_limit - old.out),
       probes_until = now() + %(seconds)s::float8 * interval '1 s'
  FROM old WHERE r.name = old.name AND old.out < r.probe_limit
RETURNING r.probes - old.out
"""

# Success of a call that began before the outage proves nothing: an open breaker is left to its probes.
_SUCCEEDED = """
UPDATE supervision_resource SET breaker_state = 'closed', failures = 0, probes = 0, opened_at = NULL, retry_at = NULL
 WHERE name = %(name)s AND (breaker_state = 'half-open' OR (breaker_state = 'closed' AND failures > 0))
"""

_CLOSE = """
UPDATE supervision_resource SET breaker_state = 'closed', failures = 0, probes = 0, opened_at = NULL, retry_at = NULL
 WHERE name = ANY (%(names)s)
"""

_tried: dict[str, float] = {}


def forget() -> None:
    """Look afresh next time: after a fork, or in a test that has another database."""
    resources.forget()
    _tried.clear()


def is_free(service: str) -> bool:
    """Whether calls of this service need nobody's leave, as far as this process has seen."""
    seen = resources.look()
    return not seen.governed(service) and all(known.closed for known in seen.serving.get(service, ()))


def governed() -> list[str]:
    """The services whose calls are counted or routed, beyond the breaker."""
    seen = resources.look()
    return [service for service in seen.serving if seen.governed(service)]


def shut_agents() -> list[str]:
    """The agents of services none of whose resources takes calls now: not worth claiming steps for, beyond probes."""
    seen = resources.look()
    shut = [service for service, members in seen.serving.items() if not any(known.closed and not known.paused for known in members)]
    return resources.agents_of(shut)


def ready_for_probe() -> set[str]:
    """The resources whose cool-down is over."""
    now = time.monotonic()
    return {
        name
        for name, known in resources.look().by_name.items()
        if not known.paused and (known.breaker == "half-open" or (known.breaker == "open" and known.retry_at <= now))
    }


def to_probe() -> set[str]:
    """The services with a resource that may be tried out now; each at most once a second, whoever asks in this process."""
    now = time.monotonic()
    names = {name for name in ready_for_probe() if now - _tried.get(name, float("-inf")) > PROBE_PAUSE_SECONDS}
    _tried.update(dict.fromkeys(names, now))
    seen = resources.look().by_name
    return {seen[name].service for name in names if name in seen}


def admit(resource: str, wanted: int) -> Admission:
    """How many of `wanted` calls may be made now."""
    known = resources.look().by_name.get(resource)
    if known is None or known.closed:
        return Admission(wanted)
    wait = known.retry_at - time.monotonic()
    if known.breaker == "open" and wait > 0:
        return Admission(0, _spread(wait), f"{resource} does not answer: its breaker is open")
    rows = db.run(_PROBE, {"name": resource, "wanted": wanted, "seconds": PROBE_SECONDS})
    granted = int(rows[0][0]) if rows else 0
    resources.look(afresh=True)
    return Admission(granted, BUSY_WAIT + _spread(0), f"{resource} is being tried out again: its breaker is half-open")


def know(names: Sequence[str]) -> None:
    """See that these resources have a row, which operators can edit."""
    db.run(_KNOW, {"names": list(names)})


def failed(resource: str, count: int, error: str = "") -> timedelta | None:
    """Note failures of the resource; returns how long its calls are to wait when the breaker is open now."""
    facts = {"name": resource, "count": count, "error": error[:500]}
    rows = db.run(_FAILED, facts)
    if not rows:
        know([resource])
        rows = db.run(_FAILED, facts)
    state, wait = rows[0]
    resources.look(afresh=True)
    return _spread(max(wait, 0.0)) if state == "open" else None


def close(names: Sequence[str]) -> None:
    """Close these breakers by an operator's hand."""
    db.run(_CLOSE, {"names": list(names)})
    forget()


def succeeded(resource: str) -> None:
    """Note a success: it closes a half-open breaker and clears the count of failures. Free while all is well."""
    known = resources.look().by_name.get(resource)
    if known is not None and (not known.closed or known.failures):
        db.run(_SUCCEEDED, {"name": resource})
        resources.look(afresh=True)


def _spread(seconds: float) -> timedelta:
    """A wait with jitter, so that those who wait do not all come back in one moment."""
    return timedelta(seconds=seconds + random.random() * 0.5)  # noqa: S311 - spreads load, protects nothing
