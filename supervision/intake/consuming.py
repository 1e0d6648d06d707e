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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

from django.db import DataError, IntegrityError, InterfaceError, OperationalError

from supervision import conf
from supervision.deadletters import dead_letters
from supervision.errors import DefinitionError, UnreadableSubmission
from supervision.governance import resources
from supervision.intake import lost_children, suspicion
from supervision.intake.fair_turns import fair_turns
from supervision.models import ChildState, DeadLetter
from supervision.outbox import subscriptions
from supervision.plans import registry
from supervision.postgres import db
from supervision.postgres.json_safe import text
from supervision.runtime import failpoints
from supervision.runtime.application import Intake, check_session
from supervision.states import Claim, Direction
from supervision.store import claiming, epochs, run_verbs, sessions, step_verbs
from supervision.store.bounds.in_flight import in_flight
from supervision.store.records import NOTHING, Gate, LockedSubmission, Start, Started
from supervision.store.runs import new_runs
from supervision.telemetry import measures
from supervision.wakeup import hints
from supervision.workflow import AcceptedRun, NewRun, StepPosition, Workflow, newest, unconfirmed, version_of

log = logging.getLogger(__name__)


@dataclass
class ConsumeReport:
    """The result of one batch. born: claims of first steps written as already claimed; the caller dispatches them now.

    begun: first steps written as already started; this process performs them now.
    deferred: submissions that were taken and put back; a consumer may take them again at once.
    forked: a plan begins with several branches, and a scheduler claims the other ones.
    """

    consumed: int = 0
    dead_letters: int = 0
    deferred: int = 0
    born: dict[StepPosition, list[Claim]] = field(default_factory=dict)
    begun: dict[StepPosition, list[Started]] = field(default_factory=dict)
    forked: bool = False

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
    if unconfirmed():
        registry.confirm()
    wanted = limit or conf.get().cohort
    batch = _Batch()

    def work() -> ConsumeReport:
        began = time.monotonic()  # before the transaction's first statement, because the times in its rows count from there
        taken, foreseen = _usual.take(wanted)
        clean = batch.without_suspects(taken)
        return _turn_into_runs(clean, born=born, performs=performs, began=began, foreseen=foreseen, commit=True)

    try:
        report = db.transact(work)
    except (OperationalError, InterfaceError, failpoints.Injected):
        raise
    except Exception as error:
        log.warning("a batch of submissions was refused (%s); taking it in parts", error)
        report = _in_parts(sorted(batch.clean), error)
    if batch.suspects:
        report.add(_one_by_one(sorted(batch.suspects)))
    if report.consumed:
        measures.CONSUMED.add("run", number=report.consumed)
    if report.dead_letters:
        measures.CONSUMED.add("dead_letter", number=report.dead_letters)
    if report.consumed and failpoints.armed:
        failpoints.hit("submit.after_commit")
    if report.forked:
        hints.send(hints.SCHEDULE)
    return report


@dataclass
class _Batch:
    """The submissions of a batch. clean: ids, which stay clean when this process takes them again after its own rollback."""

    clean: set[int] = field(default_factory=set)
    suspects: set[int] = field(default_factory=set)

    def without_suspects(self, taken: Sequence[LockedSubmission]) -> list[LockedSubmission]:
        """Those of these submissions that may be read together. The suspects among them are noted."""
        doubtful = [item for item in taken if (item.suspected or item.mark) and item.id not in self.clean]
        found = suspicion.among(doubtful) if doubtful else set()
        if found:
            suspicion.remember(sorted(found))
            self.suspects |= found
        self.clean |= {item.id for item in taken} - found
        return [item for item in taken if item.id not in found]


Foreseen = Mapping[StepPosition, Gate]  # gates that were asked for before it was known that they are needed


class _Usual:
    """The workflow of the last batch. The next one asks for its gate before it has read a submission, in the same round trip."""

    def __init__(self) -> None:
        self.workflow: Workflow | None = None

    def take(self, limit: int) -> tuple[list[LockedSubmission], Foreseen]:
        """Up to `limit` waiting submissions, locked, and the gate if there was a last batch."""
        workflow, asked, asked_at = self.workflow, resources.questions(), time.monotonic()
        taken, gate, rows = claiming.take_and_look(limit, workflow, shut=resources.last_seen().apart, also=asked)
        if asked:
            resources.answered(rows[0], rows[1], asked_at)
        self.workflow = None  # until a submission of this batch has been read: often there is none
        return taken, {_first(workflow): gate} if workflow is not None and gate is not None else {}


_usual = _Usual()


def _first(workflow: Workflow) -> StepPosition:
    return StepPosition(workflow.name, workflow.version, Direction.DO.value, 0)


def _turn_into_runs(
    taken: Sequence[LockedSubmission],
    *,
    born: bool,
    performs: Performs | None = None,
    began: float = 0.0,
    foreseen: Foreseen = MappingProxyType({}),
    commit: bool = False,
) -> ConsumeReport:
    """Write runs or dead letters for these submissions. Call it inside a transaction. began: a `time.monotonic()` value of its begin.

    commit: nothing else follows in the transaction, so its COMMIT may travel with the last statement.
    """
    report, last = ConsumeReport(), False
    groups = _read(taken, report)
    if any(run.session_key is not None for group in groups for run in group.runs):
        groups = _keep_sessions_in_order(groups, report)
    for group in groups:
        workflow = group.workflow
        first = _first(workflow)
        _usual.workflow = workflow
        _decide_starts(group, foreseen.get(first), born=born)
        begin = group.at_once and performs is not None and performs(first, len(group.items))
        last = commit and len(groups) == 1 and group.is_all_there_is
        if last and failpoints.armed:
            failpoints.hit("submit.before_commit")
        ids = new_runs.write(workflow, group.items, group.runs, group.starts, begin=begin, commit=last)
        written = [
            AcceptedRun(run_id=ids[item.public_id], key=item.public_id, client=item.client, submitted_at=item.created_at, new=run)
            for item, run in zip(group.items, group.runs, strict=True)
        ]
        if not last:
            workflow.intake.write(written)
            _catch_up(group, ids)
        report.consumed += len(written)
        report.forked = report.forked or (workflow.shape is not None and () in workflow.shape.after[1:])
        started = sorted((new for new, start in zip(written, group.starts, strict=True) if start.born), key=lambda new: new.run_id)
        in_flight.add(len(started))
        if started and begin:
            deadline = began + step_verbs.first_budget(workflow)
            report.begun.setdefault(first, []).extend(_begun(workflow, new, deadline) for new in started)
        elif started:
            report.born.setdefault(first, []).extend(Claim(new.run_id, 1) for new in started)
    if taken and not last and failpoints.armed:
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
        taken = claiming.take_submissions(1, only=[submission_id])
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
    return _turn_into_runs(claiming.take_submissions(len(ids), only=ids), born=False)


def _give_up(submission_id: int, reason: str, deliveries: int = 1) -> ConsumeReport:
    report = ConsumeReport()
    for item in claiming.take_submissions(1, only=[submission_id]):
        _set_aside(item, reason, report, deliveries)
    return report


# ------------------------------------------------------------------------------------------- from submission to run


@dataclass
class _Group:
    """The submissions of one version of a workflow, which are written together, with what was read and how their runs start."""

    workflow: Workflow
    items: list[LockedSubmission] = field(default_factory=list)
    runs: list[NewRun] = field(default_factory=list)
    blocked: set[int] = field(default_factory=set)  # those whose session has an unfinished earlier order
    paused: set[str] = field(default_factory=set)  # the public ids of orders that were paused before they had a run
    starts: list[Start] = field(default_factory=list)
    at_once: bool = False  # whether the first steps are written as claimed

    @property
    def is_all_there_is(self) -> bool:
        """Whether its runs are written without rows of the application, and nothing happened to their submissions before."""
        own_rows = getattr(self.workflow.intake.write, "__func__", None) is not Intake.write
        return not (own_rows or self.paused or any(item.before_epoch or item.cancel_requested_at for item in self.items))


def _read(taken: Sequence[LockedSubmission], report: ConsumeReport) -> list[_Group]:
    groups: dict[tuple[str, int], _Group] = {}
    for item in taken:
        try:
            workflow = newest(item.workflow)
            run = workflow.intake.read_submission(item.payload, item.id)
            if run.session_key is not None:
                check_session(run.session_key)
            if run.version is not None:
                workflow = version_of(workflow.name, run.version)
        except (UnreadableSubmission, DefinitionError) as error:
            _set_aside(item, str(error), report)
        except Exception as error:
            log.exception("the intake could not read submission %s", item.public_id)
            _set_aside(item, dead_letters.because(error), report)
        else:
            group = groups.setdefault((workflow.name, workflow.version), _Group(workflow))
            group.items.append(item)
            group.runs.append(run)
    return list(groups.values())


def _keep_sessions_in_order(groups: list[_Group], report: ConsumeReport) -> list[_Group]:
    """The groups without the submissions that must wait because an earlier one of their session waits. Notes which are blocked."""
    of = _leave_sessions_above(groups)
    pairs = [(item, run) for group in groups for item, run in zip(group.items, group.runs, strict=True)]
    members = [sessions.Member(item.id, item.client, run.session_key, of.get(item.public_id)) for item, run in pairs]
    late = sessions.overtaking(members)
    report.deferred += len(late)
    blocked = sessions.blocked([member for member in members if member.submission not in late])
    kept = []
    for group in groups:
        chosen = [(item, run) for item, run in zip(group.items, group.runs, strict=True) if item.id not in late]
        if chosen:
            items, runs = zip(*chosen, strict=True)
            kept.append(_Group(group.workflow, list(items), list(runs), blocked))
    return kept


def _leave_sessions_above(groups: Sequence[_Group]) -> Mapping[str, str]:
    """Take the child runs out of a session that a run above has which waits for them. Returns whose sessions they have, by key."""
    pairs = [(item.public_id, run.session_key) for group in groups for item, run in zip(group.items, group.runs, strict=True)]
    children = {key: session for key, session in pairs if session is not None and key.endswith(":child")}
    of = sessions.clients_above(list(children)) if children else {}
    inside = sessions.held_above(children, of) if children else set()
    for group in groups if inside else ():
        here = [item.public_id in inside for item in group.items]
        group.runs = [replace(run, session_key=None) if leaves else run for run, leaves in zip(group.runs, here, strict=True)]
    return of


def _decide_starts(group: _Group, gate: Gate | None, *, born: bool) -> None:
    """Decide how the runs start. They are claimed at once only if no older step waits for the first agent and it may be called.

    A cancelled or paused order must not start. If the group has one, no run in it is born claimed. The same holds for an order from
    before the database's epoch: services may know of a run that the database lost.
    """
    clients = [item.client for item in group.items]
    service, seen = group.workflow.agent(0).resource, resources.look()
    gate = gate or claiming.gate(group.workflow, 0, shut=seen.apart)
    group.paused = gate.orders.intersection(item.public_id for item in group.items)
    calm = not (gate.paused or group.paused or any(item.before_epoch or item.cancel_requested_at for item in group.items))
    free = calm and not gate.others_wait and (service is None or seen.free(service))
    group.at_once = born and free and in_flight.room(len(clients)) >= len(clients)
    listens = [False] * len(clients)
    if not subscriptions.WITHOUT_RECEIVERS.issuperset(clients) or any(run.reply_to is not None for run in group.runs):
        listens = subscriptions.interested(clients, [run.reply_to for run in group.runs])
    group.starts = [
        Start(born=group.at_once and item.id not in group.blocked, blocked=item.id in group.blocked, put_off=delay, notify=listen)
        for item, delay, listen in zip(group.items, fair_turns.delays(clients), listens, strict=True)
    ]


def _catch_up(group: _Group, ids: Mapping[str, int]) -> None:
    """Do to the new runs what happened to their submissions before: a new epoch, a pause, a cancellation."""
    if older := [ids[item.public_id] for item in group.items if item.before_epoch]:
        epochs.mark(older)
    if group.paused:
        new_runs.bind_pauses(sorted(group.paused))
    if cancelled := {ids[item.public_id]: item for item in group.items if item.cancel_requested_at}:
        for locked in run_verbs.lock(sorted(cancelled)):
            item = cancelled[locked.run.pk]
            locked.undo(item.cancelled_by, item.cancel_reason, cancel_requested_at=item.cancel_requested_at)


def _begun(workflow: Workflow, new: AcceptedRun, deadline: float) -> Started:
    payload = json.loads(json.dumps(new.new.payload))  # the same types as if read from the row
    key = f"{new.key}:{workflow.steps[0].name}:do:1"
    return Started(Claim(new.run_id, 1), 1, key, NOTHING, new.key, payload, deadline=deadline)


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
    lost_children.end(item.public_id, ChildState.UNDOING)
    report.dead_letters += 1
