"""From submissions to runs.

`consume_batch` takes waiting rows (others skip them), reads each with its workflow's intake and writes runs, steps,
events and the application's rows in one transaction with `consumed_at`. What cannot be read becomes a dead letter with
its exact bytes, in the same transaction; the rest is unharmed. When a batch cannot be written, its submissions are
taken one by one, so that only the culprit is set aside. When the application can write none of them, all wait.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from django.db import DataError, IntegrityError, InterfaceError, OperationalError, transaction

from supervision import changes, conf, db, deadletters, failpoints, fairness, governance, outbound, resources, sessions, store
from supervision.errors import UnreadableSubmission
from supervision.front import Front
from supervision.handles import NOTHING, Place, Start, Started, Taken
from supervision.models import DeadLetter
from supervision.states import Claim, Direction
from supervision.storable import text
from supervision.workflow import AcceptedRun, NewRun, Workflow, newest

log = logging.getLogger(__name__)


@dataclass
class ConsumeReport:
    """What one batch became. born: claims of first steps that went in already claimed, to be dispatched now.

    begun: first steps that went in started, to be performed by this process now.
    deferred: submissions that were taken and put back, to be taken again at once.
    """

    consumed: int = 0
    dead_letters: int = 0
    deferred: int = 0
    born: dict[Place, list[Claim]] = field(default_factory=dict)
    begun: dict[Place, list[Started]] = field(default_factory=dict)


Performs = Callable[[Place, int], bool]  # whether this process performs so many orders at this place itself, and at once


LATE_SECONDS = 5.0  # a submission that waits for longer may be what keeps its consumers from finishing
MOST_DELIVERIES = 3

_COUNT_DELIVERY = "UPDATE supervision_submission SET deliveries = deliveries + 1 WHERE id = ANY (%(ids)s) AND consumed_at IS NULL"


class _Suspicious(Exception):
    """Among what was taken there are submissions whose delivery has to be counted first; nothing was written."""

    def __init__(self, taken: Sequence[Taken]) -> None:
        super().__init__(f"{len(taken)} submissions are late")
        self.taken = taken


_counted: dict[int, None] = {}  # ids this process has counted: it lives, so they have not killed it
_MOST_COUNTED = 10_000


def consume_batch(limit: int | None = None, *, born: bool = True, performs: Performs | None = None) -> ConsumeReport:
    """Turn up to `limit` waiting submissions into runs or dead letters, in one transaction.

    performs: where it says so, first steps have begun with the commit, and the caller performs them.
    A submission that is late is counted, in a commit of its own, before it is read. One that was counted by another
    process and is still there may have killed it: it is taken by itself, and set aside the fourth time.
    """
    wanted = limit or conf.get().cohort
    try:
        report = db.transact(lambda: _consume(wanted, born=born, performs=performs))
    except _Suspicious as found:
        report = _consume_suspicious(found.taken)
    except (OperationalError, InterfaceError, failpoints.Injected):
        raise
    except Exception as error:
        log.warning("a batch of submissions was refused (%s); taking them one by one", error)
        report = db.transact(lambda: _consume(wanted, born=False, one_by_one=True))
    if report.consumed:
        failpoints.hit("submit.after_commit")
    return report


def _consume_suspicious(taken: Sequence[Taken]) -> ConsumeReport:
    late = [item for item in taken if item.late and item.id not in _counted]
    seen_before = [item.id for item in late if item.deliveries]
    fresh = [item.id for item in late if not item.deliveries]
    if fresh:
        _count(fresh)
        return ConsumeReport(deferred=len(fresh))  # the next batch takes them, all together
    report = ConsumeReport()
    for submission_id in seen_before:
        _count([submission_id])
        one = db.transact(lambda only=submission_id: _consume(1, born=False, one_by_one=True, only=only))  # type: ignore[misc]
        report.consumed += one.consumed
        report.dead_letters += one.dead_letters
    return report


def _count(ids: Sequence[int]) -> None:
    db.run(_COUNT_DELIVERY, {"ids": list(ids)})
    if len(_counted) > _MOST_COUNTED:
        _counted.clear()
    _counted.update(dict.fromkeys(ids))


def _consume(
    limit: int, *, born: bool, one_by_one: bool = False, only: int | None = None, performs: Performs | None = None
) -> ConsumeReport:
    report = ConsumeReport()
    began = time.monotonic()  # before the transaction, whose beginning is the time that its rows count from
    refused: list[tuple[Taken, Exception]] = []
    taken = store.take_submissions(limit, late=LATE_SECONDS, only=only)
    if any(item.late and item.id not in _counted for item in taken):
        raise _Suspicious(taken)
    good: dict[tuple[str, int], tuple[Workflow, list[Taken], list[NewRun]]] = {}
    for item in taken:
        if item.deliveries > MOST_DELIVERIES:
            _set_aside(item, f"taken {item.deliveries} times and never finished: it may stop whoever reads it", report)
            continue
        try:
            workflow = newest(item.workflow)
            run = workflow.intake.read(item.payload)
        except UnreadableSubmission as error:
            _set_aside(item, str(error), report)
        except Exception as error:
            log.exception("the intake could not read submission %s", item.public_id)
            _set_aside(item, deadletters.because(error), report)
        else:
            _, items, runs = good.setdefault((workflow.name, workflow.version), (workflow, [], []))
            items.append(item)
            runs.append(run)
    circle = _Circle(good.values(), report)
    for workflow, items, runs in circle.groups:
        if one_by_one:
            tried = [_try(workflow, item, run, circle, report) for item, run in zip(items, runs, strict=True)]
            refused += [pair for pair in tried if pair is not None]
        else:
            _write(workflow, items, runs, circle, born=born, report=report, performs=performs, began=began)
    unexpected = [error for _, error in refused if not isinstance(error, IntegrityError | DataError)]
    if unexpected and not report.consumed:
        raise unexpected[0]  # nothing at all can be written: that is not the orders' fault, and they wait
    for item, refusal in refused:
        _set_aside(item, deadletters.because(refusal), report)
    if taken:
        failpoints.hit("submit.before_commit")
    return report


Group = tuple[Workflow, list[Taken], list[NewRun]]


class _Circle:
    """What the submissions of one batch need to know of each other and of those before them: sessions, turns, listeners."""

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
        self._put_off = dict(zip((item.id for item, _ in pairs), fairness.delays([item.client for item, _ in pairs]), strict=True))
        listens = outbound.interested([item.client for item, _ in pairs], [run.reply_to for _, run in pairs])
        self._notify = dict(zip((item.id for item, _ in pairs), listens, strict=True))

    def start(self, item: Taken, *, born: bool) -> Start:
        """How this submission's run begins."""
        blocked = item.id in self.blocked
        return Start(born=born and not blocked, blocked=blocked, put_off=self._put_off[item.id], notify=self._notify[item.id])


def _without(group: Group, left_out: set[int]) -> Group:
    workflow, items, runs = group
    kept = [(item, run) for item, run in zip(items, runs, strict=True) if item.id not in left_out]
    return workflow, [item for item, _ in kept], [run for _, run in kept]


def _try(workflow: Workflow, item: Taken, run: NewRun, circle: _Circle, report: ConsumeReport) -> tuple[Taken, Exception] | None:
    """Write one run by itself; what refused it, if something did."""
    try:
        with transaction.atomic():
            _write(workflow, [item], [run], circle, born=False, report=report)
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:
        log.exception("submission %s could not be written", item.public_id)
        return item, error
    return None


def _write(
    workflow: Workflow,
    items: Sequence[Taken],
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
    gate = store.gate(workflow, 0, shut=[*governance.shut_agents(), *resources.agents_of(governance.governed())])
    held = gate.orders.intersection(keys)
    # A cancelled order must not start, and no paused one: then nobody in this batch is born claimed.
    calm = not gate.paused and not held and not any(item.cancel_requested_at for item in items)
    at_once = born and calm and not gate.others_wait and _is_free(workflow) and room(len(items)) >= len(items)
    starts = [circle.start(item, born=at_once) for item in items]
    first = Place(workflow.name, workflow.version, Direction.DO.value, 0)
    begin = at_once and performs is not None and performs(first, len(items))
    ids = store.write_runs(workflow, items, runs, starts, begin=begin)
    if held:
        store.bind_pauses(sorted(held))
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
        for locked in changes.lock(sorted(cancelled)):
            item = cancelled[locked.run.pk]
            locked.undo(item.cancelled_by, item.cancel_reason, cancel_requested_at=item.cancel_requested_at)
    report.consumed += len(items)
    children = [(ids[item.public_id], item, run) for item, run, start in zip(items, runs, starts, strict=True) if start.born]
    children.sort(key=lambda child: child[0])
    take_room(len(children))
    if children and begin:
        deadline = began + store.first_budget(workflow)
        report.begun.setdefault(first, []).extend(_begun(workflow, *child, deadline) for child in children)
    elif children:
        report.born.setdefault(first, []).extend(Claim(run_id, 1) for run_id, _, _ in children)


def _begun(workflow: Workflow, run_id: int, item: Taken, run: NewRun, deadline: float) -> Started:
    payload = json.loads(json.dumps(run.payload))  # as it is read from the row
    key = f"{item.public_id}:{workflow.steps[0].name}:do:1"
    return Started(Claim(run_id, 1), 1, key, NOTHING, item.public_id, payload, deadline=deadline)


def _is_free(workflow: Workflow) -> bool:
    service = workflow.agent(0).resource
    return service is None or governance.is_free(service)


def _set_aside(item: Taken, reason: str, report: ConsumeReport) -> None:
    DeadLetter.objects.create(
        source="submission",
        body=item.payload.encode(),
        content_type="application/json",
        headers={"client": item.client, "workflow": item.workflow},
        reason=text(reason)[: deadletters.MOST_REASON],
        deliveries=max(item.deliveries, 1),
        public_id=item.public_id,
    )
    db.fetch("UPDATE supervision_submission SET consumed_at = now() WHERE id = %(id)s", {"id": item.id})
    report.dead_letters += 1


_seen: tuple[float, int] = (0.0, 0)  # when in_flight was read, and what it said, with what was claimed here since
_SEEN_SECONDS = 0.25


def room(wanted: int) -> int:
    """How many more steps may be claimed, as far as this process knows.

    The number in flight is read four times a second, ten times as often where it leaves too little room: it bounds how
    much waits at the broker, nothing rests on it, and counting thousands takes milliseconds.
    """
    global _seen
    now, limit = time.monotonic(), conf.get().in_flight
    age = now - _seen[0]
    if age > _SEEN_SECONDS or (_seen[1] + wanted > limit and age > _SEEN_SECONDS / 10):
        _seen = (now, in_flight())
    return limit - _seen[1]


def take_room(count: int) -> None:
    """So many have just been claimed here."""
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
