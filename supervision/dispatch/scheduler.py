"""The scheduler: turns waiting submissions and due steps into Celery chains of agent tasks.

It knows the order of the steps, but not what they do. A chain carries a cohort: one order at low load, up to COHORT orders
under load. The chain is only the fast path: work whose message is lost is found again in the rows.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from celery import chain, signature

from supervision import conf
from supervision.dispatch import partitions
from supervision.governance import admission, circuit_breaker, probes, resources
from supervision.intake import consuming
from supervision.runtime import failpoints
from supervision.states import Claim, Direction
from supervision.store import claiming
from supervision.store.bounds.in_flight import in_flight
from supervision.telemetry import measures
from supervision.wakeup import hints
from supervision.workflow import StepPosition

log = logging.getLogger(__name__)

PERFORM = "supervision.perform"
Dispatch = Callable[[StepPosition, Sequence[Claim]], None]


@dataclass
class ScheduleReport:
    """The counts of one pass: submissions consumed, dead letters, steps claimed, chains sent."""

    consumed: int = 0
    dead_letters: int = 0
    claimed: int = 0
    dispatched: int = 0


def dispatch(place: StepPosition, claims: Sequence[Claim]) -> None:
    """Send a chain of the remaining steps for these claims. Raises nothing: a claim whose message is lost expires.

    A claim of a run whose workflow this process's code does not know expires, too. The other claims are still sent.
    """
    try:
        onward = tuple(_hops_after(place))
        agent = place.agent
        parts = partitions.spread(agent, claims) if agent.name in conf.get().partitions else {agent.queue: claims}
        for queue, part in parts.items():
            told = f"({len(part)} orders, {place})"  # for logs; Celery's default would print every claim
            _chain(place, ((place.position, queue), *onward)).apply_async(([list(claim) for claim in part],), argsrepr=told)
    except Exception as error:
        measures.UNSENT.add("chain")
        log.warning("could not dispatch %d claims of %s: %s", len(claims), place, error)


def _hops_after(place: StepPosition) -> Iterator[tuple[int, str]]:
    """The later links, each a position and its queue, up to the first partitioned agent or the end of the branch.

    One queue does not take that agent's whole cohort, so the steps from there on are dispatched separately.
    """
    while place.direction == Direction.DO and not place.is_last:
        place = place.following
        agent = place.agent
        if agent.name in conf.get().partitions:
            return
        yield place.position, agent.queue


@lru_cache(maxsize=1024)
def _chain(place: StepPosition, hops: tuple[tuple[int, str], ...]) -> Any:
    """One link per hop: the steps from this place on. A link's first argument is its claims: it gets them from the one before it.

    The chain is built once for all its cohorts. Celery copies the links when it sends them (ADR 25). It would describe every
    claim for its own logs, so each link brings a description (`argsrepr`).
    """
    options = {"ignore_result": True, "retry": False, "argsrepr": f"({place.workflow} {place.version})"}
    return chain(*(signature(PERFORM, args=tuple(place._replace(position=at)), queue=queue, **options) for at, queue in hops))


def hand_out(places: Mapping[StepPosition, Sequence[Claim]], send: Dispatch = dispatch) -> int:
    """Dispatch claims in cohorts; returns how many chains went out."""
    sent = 0
    for place, claims in places.items():
        size = conf.get().cohort
        for first in range(0, len(claims), size):
            if failpoints.armed and failpoints.hit("scheduler.mid_dispatch", [place.label]):
                continue
            send(place, claims[first : first + size])
            sent += 1
    return sent


def claim_once(send: Dispatch = dispatch) -> tuple[int, int]:
    """Claim one batch of due steps within the in-flight limit, and dispatch it; returns (claimed, dispatched)."""
    limit, cohort = conf.get().in_flight, conf.get().cohort
    room = in_flight.room(cohort)
    if room < max(1, min(cohort, limit // 8)):
        return 0, 0  # the in-flight limit is nearly reached: wait until there is room for a larger batch
    seen = resources.look()
    most = min(room, cohort)
    places = claiming.claim(most, shut=seen.apart)
    for resource in sorted(circuit_breaker.to_probe()) if seen.troubled else ():
        _gather(places, probes.claim(resource))
    for service in seen.governed_services:
        if within := admission.claimable(service, most)[0]:
            _gather(places, claiming.claim(within, only=resources.agents_of([service]), down=seen.unreachable()))
    claimed = sum(map(len, places.values()))
    in_flight.add(claimed)
    if not claimed or (failpoints.armed and failpoints.hit("scheduler.after_claim", [place.label for place in places])):
        return claimed, 0
    return claimed, hand_out(places, send)


def _gather(places: dict[StepPosition, list[Claim]], more: Mapping[StepPosition, Sequence[Claim]]) -> None:
    for place, claims in more.items():
        places.setdefault(place, []).extend(claims)


def schedule_once(send: Dispatch = dispatch) -> ScheduleReport:
    """Consume waiting submissions and claim due steps, in one pass, as far as there is room."""
    report = ScheduleReport()
    while True:
        batch = consuming.consume_batch()
        report.consumed += batch.consumed
        report.dead_letters += batch.dead_letters
        report.claimed += sum(map(len, batch.born.values()))
        report.dispatched += hand_out(batch.born, send)
        count = batch.consumed + batch.dead_letters
        if count < conf.get().cohort and not (batch.deferred and count):
            break  # what is still deferred waits for another consumer
    while True:
        claimed, sent = claim_once(send)
        report.claimed += claimed
        report.dispatched += sent
        if claimed < conf.get().cohort:
            return report


# ------------------------------------------------------------------------------ the two loops behind the hints


stopping = threading.Event()  # set when this worker is told to end: the loops leave the remaining work to other workers


class _OneAtATime:
    """Lets one thread of a process work, and tells it when other threads ask for the same work. So hints cause no parallel work."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._again = threading.Event()

    def pause(self, seconds: float) -> None:
        """Wait, but end the wait when another thread asks for the work."""
        self._again.wait(seconds)

    def is_running(self) -> bool:
        """Whether a thread is at work."""
        return self._lock.locked()

    def run(self, turn: Callable[[], bool]) -> None:
        """Call `turn` until it has nothing left and no other thread has asked meanwhile."""
        self._again.set()
        while self._again.is_set() and not stopping.is_set() and self._lock.acquire(blocking=False):
            try:
                self._again.clear()
                while (turn() or self._again.is_set()) and not stopping.is_set():
                    self._again.clear()
            finally:
                self._lock.release()


_consuming = _OneAtATime()
_claiming = _OneAtATime()
_SATURATED_SECONDS = 0.02  # for every thousand steps of the in-flight limit, within bounds: counting them costs time, too


def consume() -> bool:
    """Consume waiting submissions: at once at low load. Under load a short pause lets the next batch grow.

    Returns whether there were any; also true while another thread of this process consumes.
    """
    counts: list[int] = []
    _consuming.run(lambda: _consume_turn(counts.append))
    return not counts or any(counts)


def is_consuming() -> bool:
    """Whether a thread of this process is consuming submissions."""
    return _consuming.is_running()


def _consume_turn(note: Callable[[int], None]) -> bool:
    batch = consuming.consume_batch()
    hand_out(batch.born)
    count = batch.consumed + batch.dead_letters
    note(count)
    if batch.consumed and not batch.born:
        hints.send(hints.SCHEDULE)
    full = count >= conf.get().cohort
    if batch.deferred and not count:
        time.sleep(conf.get().hold_off_seconds)
        return True
    if count > 1 and not full:
        time.sleep(conf.get().hold_off_seconds)
        return True
    return full


def claim_due() -> None:
    """Claim and dispatch due steps until none is left; waits for room while as many as allowed are in flight."""
    _claiming.run(_claim_turn)


def _claim_turn() -> bool:
    claimed, _ = claim_once()
    if claimed:
        return True
    if due():
        _claiming.pause(_SATURATED_SECONDS * min(max(conf.get().in_flight / 1000, 1), 4))
        return True
    if unseen := claiming.unseen_seconds():
        _claiming.pause(unseen)
        claiming.see_everything()
        return True
    return False


def due() -> bool:
    """Whether a step is due that may be claimed: now, as soon as its resource's rate allows, or as a probe of its resource."""
    seen = resources.look()
    full = [service for service in seen.governed_services if not any(admission.claimable(service, 1))]
    probed = circuit_breaker.worth_probing()
    tried = resources.agents_of([seen.by_name[name].service for name in probed if name in seen.by_name])
    shut = {*seen.shut_agents, *resources.agents_of(full)} - set(tried)
    return claiming.any_due(shut=sorted(shut), down=seen.unreachable(but=probed))
