"""The engine's Celery tasks. Messages carry ids; the engine checks them against the rows."""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any

from celery import Task, shared_task

from supervision.deadletters import bounds, dead_letters, ending  # noqa: F401 - ending registers itself
from supervision.dispatch import scheduler
from supervision.errors import DefinitionError, Refused
from supervision.execution import handback, runner
from supervision.history import ends as chain_ends
from supervision.jobs import working
from supervision.ledger import reconciliation
from supervision.operations.ending import nightly
from supervision.outbox import delivery_worker
from supervision.plans import registry
from supervision.recovery import held_time, leader_lease, supervisor, upkeep
from supervision.requestlog import tidying as request_log
from supervision.runtime import periodic
from supervision.states import Claim, Direction
from supervision.wakeup import hints
from supervision.worker import consumption_check, heartbeats, lifecycle, records
from supervision.workflow import StepPosition

log = logging.getLogger(__name__)


@shared_task(name="supervision.consume", ignore_result=True, reads=staticmethod(bounds.nothing))
def consume() -> None:
    """A hint: submissions are waiting."""
    scheduler.consume()


@shared_task(name="supervision.schedule", ignore_result=True, reads=staticmethod(bounds.nothing))
def schedule() -> None:
    """A hint: steps are due."""
    scheduler.claim_due()


def _cohort(claims: Any, *place: Any) -> tuple[StepPosition, list[Claim]]:
    """The place and claims in a message to `perform`. Raises TypeError, ValueError, IndexError or DefinitionError if it is malformed.

    A message about a version that only other processes know is not malformed.
    """
    bounds.place(*place)
    here = StepPosition(*place)
    cohort = [Claim(*claim) for claim in bounds.claims(claims)]
    try:
        here.definition.step(here.position)
    except DefinitionError:
        if not registry.registered(here.workflow, here.version):
            raise
        here = here._replace(direction=Direction(here.direction).value, position=int(here.position))
    return here, cohort


# `reads`: a malformed message is found before it is acknowledged, and kept byte for byte (`deadletters.validation`).
# `resultrepr_maxsize`: Celery describes each result for its log, and would walk all claims of a cohort.
@shared_task(name="supervision.perform", bind=True, ignore_result=True, resultrepr_maxsize=16, reads=staticmethod(_cohort))
def perform(self: Task, claims: Any, *place: Any) -> list[Claim] | None:
    """One link of a chain: a cohort at one step. Returns the next link's claims; ends the chain when none are left."""
    links = self.request.chain or []
    self.request.chain = None
    try:
        here, cohort = _cohort(claims, *place)
    except (TypeError, ValueError, IndexError, DefinitionError) as error:
        dead_letters.keep_task(self.request, [claims, *place], f"{type(error).__name__}: {error}")
        return None
    if not here.is_known:
        handback.unknown(here, cohort)
        return None
    onward = runner.run(here, cohort)
    if onward is None:
        return None
    there, successors = onward
    while links and tuple(links[-1]["args"]) != tuple(there):
        links.pop()  # done here already
    if not links:
        scheduler.dispatch(there, successors)
        return None
    self.request.chain = links
    return successors


@shared_task(name="supervision.sweep", ignore_result=True, reads=staticmethod(bounds.nothing))
def sweep() -> None:
    """The leader sweeps. Another supervisor recovers versions that the leader does not know. Both send canaries and wake the deliveries.

    Each part runs, also where one before it raises. Celery logs the first error, which is raised at the end.
    """
    periodic.call_each([_recover, working.relay, consumption_check.send_round, delivery_worker.wake])


def _recover() -> None:
    if leader_lease.lead("supervisor") is not None:
        periodic.call_each([_lead, upkeep.turn])
    else:
        supervisor.sweep_for_the_leader()


def _lead() -> None:
    report = supervisor.sweep_once()
    heartbeats.beat("supervisor-sweep", asdict(report), name="the sweep")
    if report.overdue:
        log.info("swept: %s", report)


@shared_task(name="supervision.canary", ignore_result=True, reads=staticmethod(bounds.canary))
def receive_canary(queue: str, number: int, hops: int = 0) -> None:
    """A canary: the process that receives it consumes this queue."""
    consumption_check.heard(queue, number, hops)


@shared_task(name="supervision.archive", ignore_result=True, reads=staticmethod(bounds.nothing))
def archive_finished() -> None:
    """Every night: orders that ended long ago leave the hot tables, some seconds at a time while there are more."""
    if nightly.turn():
        hints.publish(hints.ARCHIVE)


@shared_task(name="supervision.jobs", ignore_result=True, reads=staticmethod(bounds.nothing))
def work_on_jobs() -> None:
    """A hint: a bulk job waits. Works on it for some seconds, and sends the next hint while there is more to do."""
    if working.turn():
        hints.publish(hints.JOBS)


@shared_task(name="supervision.reconcile", ignore_result=True, reads=staticmethod(bounds.nothing))
def reconcile() -> None:
    """Every night: compare our books with the services' own lists. A difference or a failed comparison becomes an incident."""
    for service in reconciliation.services():
        try:
            shown = reconciliation.compare(service)
        except (reconciliation.CannotCompare, Refused) as problem:
            log.warning("not reconciled with %s: %s", service, problem)
        else:
            log.info("reconciled with %s: %s findings", service, shown)


@shared_task(name="supervision.deliver", ignore_result=True, reads=staticmethod(bounds.nothing))
def deliver() -> None:
    """A hint: messages are waiting to be delivered."""
    delivery_worker.wake()


__all__ = [
    "archive_finished",
    "chain_ends",
    "consume",
    "deliver",
    "held_time",
    "lifecycle",
    "perform",
    "receive_canary",
    "reconcile",
    "records",
    "request_log",
    "schedule",
    "sweep",
    "work_on_jobs",
]
