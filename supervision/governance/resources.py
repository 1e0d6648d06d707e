"""This process's recent copy of the remote resources, and the resolver: entity -> partition -> resource.

The rows are read on demand, at most every LOOK_SECONDS. An agent names a *service*. Usually one resource of that name serves
it, without limits: then nothing more happens. Several resources may serve one service (two carrier accounts). A route for
the entity's partition chooses among them; without a route, it is the healthy resource with most free capacity. Steps name the
resource that they were sent to, also where the only one has another name than the service: others may follow.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any
from zlib import crc32

from supervision.agent import agents
from supervision.postgres import db
from supervision.store.bounds.reachable_sql import MOST_BYTES, Unreachable

LOOK_SECONDS = 0.5
PARTITIONS = 64  # logical partitions of entities that name none; a power of two, for `_crc`
ANY_PARTITION = "*"


@dataclass(frozen=True)
class Known:
    """One resource as this process read it. retry_at: a `time.monotonic()` value.

    may_probe: its breaker is half-open and allows another probe. watched: successful calls must be recorded on its row.
    """

    name: str
    service: str
    breaker: str
    failures: int
    retry_at: float
    capacity: int | None
    rate: float | None
    paused: bool
    settings: Mapping[str, Any]
    may_probe: bool = False
    watched: bool = False

    @property
    def closed(self) -> bool:
        """Its breaker lets every call through."""
        return self.breaker == "closed"

    @property
    def limited(self) -> bool:
        """Its calls must be counted or stopped."""
        return self.capacity is not None or self.rate is not None or self.paused


@dataclass(frozen=True)
class Snapshot:
    """All resources and routes at one moment."""

    by_name: Mapping[str, Known] = field(default_factory=dict)
    serving: Mapping[str, tuple[Known, ...]] = field(default_factory=dict)
    routes: Mapping[tuple[str, str], tuple[str, int]] = field(default_factory=dict)
    routed: frozenset[str] = frozenset()  # services with routes, or with other resources than one of their own name

    def governed(self, service: str) -> bool:
        """Whether calls of this service are counted or routed, beyond the breaker."""
        return service in self.routed or any(known.limited for known in self.serving.get(service, ()))

    def free(self, service: str) -> bool:
        """Whether calls of this service need no admission."""
        return not self.governed(service) and all(known.closed for known in self.serving.get(service, ()))

    def shut(self, service: str) -> bool:
        """Whether no resource of this service takes calls now."""
        members = self.serving.get(service, ())
        return bool(members) and not any(known.closed and not known.paused for known in members)

    @cached_property
    def troubled(self) -> bool:
        """Whether a breaker is not closed."""
        return not all(known.closed for known in self.by_name.values())

    def unreachable(self, *, but: Collection[str] = ()) -> Unreachable:
        """What takes no calls now, for `bounds.reachable_sql`: paused resources and those with a breaker that is not closed.

        but: resources that count as taking calls.
        """
        down = {known.name for known in self.by_name.values() if (known.paused or not known.closed) and known.name not in but}
        homes = agents_of([known.service for known in self.by_name.values() if known.name in down and known.name == known.service])
        dark, lit, hashed = set[str](), set[str](), set[str]()
        for (service, partition), (resource, _) in self.routes.items() if down else ():
            names = agents_of([service])
            (dark if resource in down else lit).update(f"{name}/{partition}" for name in names)
            hashed.update(names if partition.isdecimal() else ())  # an order that names no partition may fall into it
        crc = _crc() if dark and hashed else b""
        ways = {"dark": sorted(dark), "lit": sorted(lit), "hashed": sorted(hashed)}
        return {"down": sorted(down), "homes": homes, **ways, "crc": crc}

    @cached_property
    def governed_services(self) -> list[str]:
        """The services whose calls are counted or routed, beyond the breaker."""
        return list(filter(self.governed, self.serving))

    @cached_property
    def shut_agents(self) -> list[str]:
        """The agents of services that are shut. Their steps are claimed for probes only."""
        return agents_of(list(filter(self.shut, self.serving)))

    @cached_property
    def apart(self) -> list[str]:
        """The agents whose steps are not claimed together with the others: those that are shut, and those of governed services."""
        return [*self.shut_agents, *agents_of(self.governed_services)]

    def route(self, service: str, partition: str) -> tuple[str, int] | None:
        """The resource that an operator has chosen for this partition, with the version of that choice."""
        return self.routes.get((service, partition)) or self.routes.get((service, ANY_PARTITION))


# The last column is `watched`: true until enough calls have succeeded after the last failure to judge that failure, but not
# for ever if no more calls come.
_LOOK = """
SELECT name, CASE service WHEN '' THEN name ELSE service END, breaker_state, failures,
       coalesce(extract(epoch FROM retry_at - now()), 0)::float8, capacity, rate_per_second, paused, settings,
       breaker_state = 'half-open' AND (probes < probe_limit OR coalesce(probes_until <= now(), true)),
       breaker_state <> 'closed' OR failures > 0
       OR (last_error_at > now() - interval '10 minutes'
           AND (jsonb_array_length(successes) < least(breaker_threshold, 50)
                OR (successes->>0)::float8 <= extract(epoch FROM last_error_at)))
  FROM supervision_resource ORDER BY name
"""
_ROUTES = "SELECT service, partition, resource, version FROM supervision_resourceroute"

_lock = threading.Lock()
_looked_at = float("-inf")
_seen = Snapshot()


def look() -> Snapshot:
    """The resources, as of at most LOOK_SECONDS ago."""
    global _looked_at, _seen
    now = time.monotonic()
    if now - _looked_at > LOOK_SECONDS:
        with _lock:
            if now - _looked_at > LOOK_SECONDS:
                _looked_at = now
                _seen = _read(now)
    return _seen


def questions() -> list[db.Statement]:
    """The statements that read the rows, if they are old. A caller sends them with others, and gives the rows to `answered`."""
    return [(_LOOK, None), (_ROUTES, None)] if time.monotonic() - _looked_at > LOOK_SECONDS else []


def last_seen() -> Snapshot:
    """The resources as this process read them last, however long ago that was."""
    return _seen


def answered(resources: db.Rows, routes: db.Rows, asked_at: float) -> None:
    """Note the rows that `questions` asked for at this `time.monotonic()` value."""
    global _looked_at, _seen
    with _lock:
        if asked_at > _looked_at:
            _looked_at, _seen = asked_at, _as_snapshot(resources, routes, asked_at)


def _read(now: float) -> Snapshot:
    return _as_snapshot(db.run(_LOOK), db.run(_ROUTES), now)


def _as_snapshot(resources: db.Rows, routed: db.Rows, now: float) -> Snapshot:
    by_name = {}
    serving: dict[str, tuple[Known, ...]] = {}
    for name, service, breaker, failures, wait, capacity, rate, paused, settings, may_probe, watched in resources:
        known = Known(name, service, breaker, failures, now + wait, capacity, rate, paused, settings, may_probe, bool(watched))
        by_name[name] = known
        serving[service] = (*serving.get(service, ()), known)
    routes = {(service, partition): (resource, version) for service, partition, resource, version in routed}
    others = {service for service, members in serving.items() if any(known.name != service for known in members)}
    return Snapshot(by_name, serving, routes, frozenset(others | {service for service, _ in routes}))


def forget() -> None:
    """Read the rows again at the next look: after a change, after a fork, or in a test that has another database."""
    global _looked_at
    _looked_at = float("-inf")


def agents_of(services: Sequence[str]) -> list[str]:
    """The agents that call these services."""
    return [agent.name for agent in agents() if agent.resource in services]


def partition_of(entity: str, *, count: int = PARTITIONS) -> str:
    """The logical partition of an entity that names none: the static rule, the same in every process and version."""
    return str(crc32(entity.encode()) % count)


@lru_cache(maxsize=1)
def _crc() -> bytes:
    """What each byte of a key adds to the number of its partition, by its distance from the key's end and its value."""
    ends = [bytes(distance) for distance in range(MOST_BYTES)]
    return bytes((crc32(bytes([value]) + end) ^ crc32(end)) % PARTITIONS for end in ends for value in range(256))
