"""From submissions to runs.

`consume_batch` locks waiting submissions (other consumers skip them) and reads each with its workflow's intake. One
transaction writes runs, steps, events and the application's rows, and sets `consumed_at`. A submission that cannot be
read becomes a dead letter with its exact bytes in that transaction; the others are unharmed. If a batch cannot be written,
the consumer writes smaller and smaller parts, to set aside only the one at fault. If none can be written, all wait.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from django.db import DataError, IntegrityError, InterfaceError, OperationalError

from supervision import conf
from supervision.deadletters import dead_letters
from supervision.errors import UnreadableSubmission
from supervision.governance import circuit_breaker, resources
from supervision.intake import fair_queueing, suspicion
from supervision.models import DeadLetter
from supervision.outbox import subscriptions
from supervision.plans import registry
from supervision.postgres import db
from supervision.postgres.json_safe import text
from supervision.postgres.scan_window import Front
from supervision.runtime import failpoints
from supervision.states import Claim, Direction
from supervision.store import epochs, run_verbs, sessions, step_verbs
from supervision.store.records import NOTHING, LockedSubmission, Start, Started, StepPosition
from supervision.workflow import AcceptedRun, NewRun, Workflow, newest

log = logging.getLogger(__name__)


@dataclass
class ConsumeReport:
    """The result of one batch. born: claims of first steps written as already claimed; the caller dispatches them now.

    begun: first steps written as already started; this process performs them now.
    deferred: submissions that were taken and put back; a consumer may take them again at once.
    """

    consumed: int = 0
    dead_letters: int = 0
    deferred: int = 0
    born: dict[StepPosition, list[Claim]] = field(default_factory=dict)
    begun: dict[StepPosition, list[Started]] = field(default_factory=dict)

    def add(self, other: ConsumeReport) -> None:
        """Add the counts of another part. None of its first steps is written as claimed."""
        self.consumed += other.consumed
        self.dead_letters += other.dead_letters
        self.deferred += other.deferred


Performs = Callable[[StepPosition, int], bool]  # whether this process itself performs this many orders of this place, and at once


def consume_batch(limit: int | None = None, *, born: bool = True, performs: Performs | None = None) -> ConsumeReport:
    """Turn up to `limit` waiting submissions into runs or dead letters, in one transaction.

    performs: if it returns true, the commit writes first steps as started, and the caller performs them.
    A submission that another process had locked when it died is left out and read by itself afterwards (`suspicion`).
    Raises the application's error if it can write none of them; then all wait.
    """
    registry.confirm()
    wanted = limit or conf.get().cohort
    batch = _Batch()
    try:
        report = db.transact(lambda: _consume(batch, wanted, born=born, performs=performs))
    except (OperationalError, InterfaceError, failpoints.Injected):
        raise
    except Exception as error:
        log.warning("a batch of submissions was refused (%s); taking it in parts", error)
        report = _in_parts(sorted(batch.clean), error)
    if batch.suspects:
        report.add(_one_by_one(sorted(batch.suspects)))
    if report.consumed:
        failpoints.hit("submit.after_commit")
    return report


@dataclass
class _Batch:
    """The submissions of a batch. clean: ids, which stay clean when this process takes them again after its own rollback."""

    clean: set[int] = field(default_factory=set)
    suspects: set[int] = field(default_factory=set)

    def without_suspects(self, taken: Sequence[LockedSubmission]) -> list[LockedSubmission]:
        """Those of these submissions that may be read together. The suspects among them are noted."""
        found = suspicion.among([item for item in taken if item.id not in self.clean])
        if found:
            suspicion.remember(sorted(found))
            self.suspects |= found
        self.clean |= {item.id for item in taken} - found
        return [item for item in taken if item.id not in found]


def _consume(batch: _Batch, limit: int, *, born: bool, performs: Performs | None = None) -> ConsumeReport:
    began = time.monotonic()  # before the transaction, because the times in its rows count from its beginning
    taken = batch.without_suspects(step_verbs.take_submissions(limit))
    return _turn_into_runs(taken, born=born, performs=performs, began=began)


def _turn_into_runs(
    taken: Sequence[LockedSubmission], *, born: bool, performs: Performs | None = None, began: float = 0.0
) -> ConsumeReport:
    report = ConsumeReport()
    good: dict[tuple[str, int], tuple[Workflow, list[LockedSubmission], list[NewRun]]] = {}
    for item in taken:
        try:
            workflow = newest(item.workflow)
            run = workflow.intake.read(item.payload)
        except UnreadableSubmission as error:
            _set_aside(item, str(error), report)
        except Exception as error:
            log.exception("the intake could not read submission %s", item.public_id)
            _set_aside(item, dead_letters.because(error), report)
        else:
            _, items, runs = good.setdefault((workflow.name, workflow.version), (workflow, [], []))
            items.append(item)
            runs.append(run)
    circle = _Circle(good.values(), report)
    for workflow, items, runs in circle.groups:
        _write(workflow, items, runs, circle, born=born, report=report, performs=performs, began=began)
    if taken:
        failpoints.hit("submit.before_commit")
    return report


def _in_parts(ids: Sequence[int], refusal: Exception) -> ConsumeReport:
    """Write a refused batch in smaller and smaller parts, and set aside each submission that is refused by itself.

    If the application can write none of them, the orders are not at fault: its error is raised, and they wait.
    """
    report = ConsumeReport()
    refused = _halves(ids, refusal, report)
    unexpected = [error for _, error in refused if not isinstance(error, IntegrityError | DataError)]
    if unexpected and not report.consumed:
        raise unexpected[0]
    for submission_id, error in refused:
        log.error("submission %s could not be written", submission_id, exc_info=error)
        report.add(db.transact(partial(_give_up, submission_id, dead_letters.because(error))))
    return report


def _halves(ids: Sequence[int], refusal: Exception, report: ConsumeReport) -> list[tuple[int, Exception]]:
    if len(ids) <= 1:
        return [(submission_id, refusal) for submission_id in ids]
    refused = []
    for part in (ids[: len(ids) // 2], ids[len(ids) // 2 :]):
        try:
            report.add(db.transact(partial(_consume_these, part)))
        except (OperationalError, InterfaceError, failpoints.Injected):
            raise
        except Exception as error:
            refused += _halves(part, error, report)
    return refused


def _one_by_one(suspects: Sequence[int]) -> ConsumeReport:
    """Read each suspect by itself. One that is refused, or that another process has locked, is left to the next batch."""
    report = ConsumeReport()
    for submission_id in suspects:
        with suspicion.alone(submission_id) as reading:
            if reading is None:
                report.deferred += 1
            elif reading.to_blame:
                log.error("submission %s is set aside: %s", submission_id, reading.reason)
                report.add(db.transact(partial(_give_up, submission_id, reading.reason, reading.unfinished)))
            else:
                report.add(_alone(submission_id, reading))
    return report


def _alone(submission_id: int, reading: suspicion.Alone) -> ConsumeReport:
    def work() -> ConsumeReport:
        taken = step_verbs.take_submissions(1, only=[submission_id])
        reading.ended = bool(taken)
        report = _turn_into_runs(taken, born=False)
        reading.ended = bool(taken) and not report.deferred  # one that waits for its session is not written yet
        return report

    try:
        return db.transact(work)
    except (OperationalError, InterfaceError, failpoints.Injected):
        raise
    except Exception as error:
        log.warning("submission %s was refused (%s) but harms no reader", submission_id, error)
        return ConsumeReport(deferred=1)


def _consume_these(ids: Sequence[int]) -> ConsumeReport:
    return _turn_into_runs(step_verbs.take_submissions(len(ids), only=ids), born=False)


def _give_up(submission_id: int, reason: str, deliveries: int = 1) -> ConsumeReport:
    report = ConsumeReport()
    for item in step_verbs.take_submissions(1, only=[submission_id]):
        _set_aside(item, reason, report, deliveries)
    return report


Group = tuple[Workflow, list[LockedSubmission], list[NewRun]]


class _Circle:
    """Facts about a batch that depend on other submissions or clients: sessions, turns, receivers of status messages."""

    def __init__(self, groups: Iterable[Group], report: ConsumeReport) -> None:
        self.groups = list(groups)
        pairs = [(item, run) for _, items, runs in self.groups for item, run in zip(items, runs, strict=True)]
        members = [sessions.Member(item.id, item.client, run.session_key) for item, run in pairs]
        late = sessions.overtaking(members)
        if late:
            report.deferred += len(late)
            self.groups = [_without(group, late) for group in self.groups]
            pairs = [(item, run) for item, run in pairs if item.id not in late]
            members = [member for member in members if member.submission not in late]
        self.blocked = sessions.blocked(members)
        self._put_off = dict(zip((item.id for item, _ in pairs), fair_queueing.delays([item.client for item, _ in pairs]), strict=True))
        listens = subscriptions.interested([item.client for item, _ in pairs], [run.reply_to for _, run in pairs])
        self._notify = dict(zip((item.id for item, _ in pairs), listens, strict=True))

    def start(self, item: LockedSubmission, *, born: bool) -> Start:
        """How this submission's run begins."""
        blocked = item.id in self.blocked
        return Start(born=born and not blocked, blocked=blocked, put_off=self._put_off[item.id], notify=self._notify[item.id])


def _without(group: Group, left_out: set[int]) -> Group:
    workflow, items, runs = group
    kept = [(item, run) for item, run in zip(items, runs, strict=True) if item.id not in left_out]
    return workflow, [item for item, _ in kept], [run for _, run in kept]


def _write(
    workflow: Workflow,
    items: Sequence[LockedSubmission],
    runs: Sequence[NewRun],
    circle: _Circle,
    *,
    born: bool,
    report: ConsumeReport,
    performs: Performs | None = None,
    began: float = 0.0,
) -> None:
    if not items:
        return
    keys = [item.public_id for item in items]
    gate = step_verbs.gate(workflow, 0, shut=[*circuit_breaker.shut_agents(), *resources.agents_of(circuit_breaker.governed())])
    held = gate.orders.intersection(keys)
    # A cancelled or paused order must not start. If the batch has one, no run in it is born claimed.
    # The same holds for an order from before the database's epoch: services may know of a run that the database lost.
    older = epochs.older([item.id for item in items])
    calm = not gate.paused and not held and not older and not any(item.cancel_requested_at for item in items)
    at_once = born and calm and not gate.others_wait and _is_free(workflow) and room(len(items)) >= len(items)
    starts = [circle.start(item, born=at_once) for item in items]
    first = StepPosition(workflow.name, workflow.version, Direction.DO.value, 0)
    begin = at_once and performs is not None and performs(first, len(items))
    ids = step_verbs.write_runs(workflow, items, runs, starts, begin=begin)
    if older:
        epochs.mark([ids[item.public_id] for item in items if item.id in older])
    if held:
        step_verbs.bind_pauses(sorted(held))
    workflow.intake.write(
        [
            AcceptedRun(
                run_id=ids[item.public_id],
                key=item.public_id,
                client=item.client,
                submitted_at=item.created_at,
                new=run,
            )
            for item, run in zip(items, runs, strict=True)
        ]
    )
    cancelled = {ids[item.public_id]: item for item in items if item.cancel_requested_at}
    if cancelled:
        for locked in run_verbs.lock(sorted(cancelled)):
            item = cancelled[locked.run.pk]
            locked.undo(item.cancelled_by, item.cancel_reason, cancel_requested_at=item.cancel_requested_at)
    report.consumed += len(items)
    children = [(ids[item.public_id], item, run) for item, run, start in zip(items, runs, starts, strict=True) if start.born]
    children.sort(key=lambda child: child[0])
    take_room(len(children))
    if children and begin:
        deadline = began + step_verbs.first_budget(workflow)
        report.begun.setdefault(first, []).extend(_begun(workflow, *child, deadline) for child in children)
    elif children:
        report.born.setdefault(first, []).extend(Claim(run_id, 1) for run_id, _, _ in children)


def _begun(workflow: Workflow, run_id: int, item: LockedSubmission, run: NewRun, deadline: float) -> Started:
    payload = json.loads(json.dumps(run.payload))  # the same types as if read from the row
    key = f"{item.public_id}:{workflow.steps[0].name}:do:1"
    return Started(Claim(run_id, 1), 1, key, NOTHING, item.public_id, payload, deadline=deadline)


def _is_free(workflow: Workflow) -> bool:
    service = workflow.agent(0).resource
    return service is None or circuit_breaker.is_free(service)


def _set_aside(item: LockedSubmission, reason: str, report: ConsumeReport, deliveries: int = 1) -> None:
    DeadLetter.objects.create(
        source="submission",
        body=item.payload.encode(),
        content_type="application/json",
        headers={"client": item.client, "workflow": item.workflow},
        reason=text(reason)[: dead_letters.MOST_REASON],
        deliveries=deliveries,
        public_id=item.public_id,
    )
    db.fetch("UPDATE supervision_submission SET consumed_at = now() WHERE id = %(id)s", {"id": item.id})
    report.dead_letters += 1


_seen: tuple[float, int] = (0.0, 0)  # when `in_flight` was read, and its number plus this process's claims since
_SEEN_SECONDS = 0.25


def room(wanted: int) -> int:
    """How many more steps may be claimed, as far as this process knows.

    The number in flight is read four times a second, and ten times as often if it leaves too little room. It only bounds
    how many messages wait at the broker; correctness does not depend on it. Counting thousands of rows takes milliseconds.
    """
    global _seen
    now, limit = time.monotonic(), conf.get().in_flight
    age = now - _seen[0]
    if age > _SEEN_SECONDS or (_seen[1] + wanted > limit and age > _SEEN_SECONDS / 10):
        _seen = (now, in_flight())
    return limit - _seen[1]


def take_room(count: int) -> None:
    """Note that this process has just claimed this many steps."""
    global _seen
    _seen = (_seen[0], _seen[1] + count)


_IN_FLIGHT = """
SELECT count(*), coalesce((array_agg(run_id))[count(*) / 10 + 1], %(since)s::bigint)
  FROM (SELECT run_id FROM supervision_stepstate
         WHERE process_state = 'Processing' AND run_id >= %(since)s::bigint ORDER BY run_id LIMIT %(n)s) s
"""
_in_flight = Front(0)


def in_flight() -> int:
    """How many steps are claimed, counted up to the limit."""
    params = {"n": conf.get().in_flight}
    rows = _in_flight.look(lambda since: db.fetch(_IN_FLIGHT, {**params, "since": since}), lambda rows: int(rows[0][1]))
    return int(rows[0][0])
