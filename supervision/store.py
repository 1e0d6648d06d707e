"""The verbs of the hot path: the only writer of runs, steps and events, together with `changes` (whole runs at a time).

Every verb takes a list and is one commit. A write names the attempt it belongs to; what it does not find is no longer
ours, and its caller says nothing and stops.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db import connection

from supervision import changes, conf, db, sessions, sql
from supervision.front import Front
from supervision.handles import NOTHING, Done, Gate, Handover, Place, Start, Started, Taken
from supervision.identity import me
from supervision.states import Claim, Direction
from supervision.workflow import ClosedRun, NewRun, Workflow

log = logging.getLogger(__name__)


def budget(step_within: timedelta) -> float:
    """Seconds a step may take: its own, or what SUPERVISION_COMPLETE_WITHIN says for all."""
    override = conf.get().complete_within
    return (override or step_within).total_seconds()


def lease() -> float:
    """Seconds a claim may wait for an agent to start it."""
    settings = conf.get()
    return (settings.complete_within or settings.dispatch_within).total_seconds()


def first_budget(workflow: Workflow) -> float:
    """Seconds the first step of a new run may take: its own, within those of the whole run."""
    return min(budget(workflow.steps[0].complete_within), workflow.complete_within.total_seconds())


def _json(value: Any) -> Any:
    # Django's adapters hand jsonb over as text.
    return json.loads(value) if isinstance(value, str) else value


# Those that began before others may be committed after them.
_CLOSE = 5_000
_CLOSE_IN_TIME = timedelta(seconds=5)
_waiting = Front(0)
_due: Front[Any] = Front("-infinity")
_due_at: dict[tuple[str, ...], Front[Any]] = {}  # at the agents of one resource
_first_due: Front[Any] = Front("-infinity")


def take_submissions(limit: int, *, late: float = 5.0, only: int | None = None) -> list[Taken]:
    """Up to `limit` waiting submissions, locked; call it inside a transaction.

    late: seconds after which a submission that still waits is told to be late. only: the id of the one to take.
    """
    params = {"limit": limit, "late": late, "only": only}
    if only is not None:
        return [Taken(*row) for row in db.fetch(sql.TAKE_SUBMISSIONS, {**params, "since": 0})]
    rows = _waiting.look(lambda since: db.fetch(sql.TAKE_SUBMISSIONS, {**params, "since": since}), lambda rows: rows[-1][0] - _CLOSE)
    return [Taken(*row) for row in rows]


def write_runs(
    workflow: Workflow, taken: Sequence[Taken], new: Sequence[NewRun], starts: Sequence[Start], *, begin: bool = False
) -> dict[str, int]:
    """Write runs, steps and first events of these submissions and mark them consumed; returns run ids by key.

    begin: those that are born have begun as well, and this process performs them.
    """
    rows = db.fetch(
        sql.WRITE_RUNS,
        {
            "submissions": [item.id for item in taken],
            "keys": [item.public_id for item in taken],
            "payloads": [json.dumps(run.payload) for run in new],
            "priorities": [run.priority for run in new],
            "sessions": [run.session_key for run in new],
            "partitions": [run.partition for run in new],
            "replies": [run.reply_to for run in new],
            "waits": [start.put_off - run.priority * sessions.HEAD_START_SECONDS for run, start in zip(new, starts, strict=True)],
            "notifies": [start.notify for start in starts],
            "born": [start.born for start in starts],
            "blocked": [start.blocked for start in starts],
            "workflow": workflow.name,
            "version": workflow.version,
            "complete_within": workflow.complete_within.total_seconds(),
            "names": [step.name for step in workflow.steps],
            "agents": [step.agent for step in workflow.steps],
            "lease": first_budget(workflow) if begin else lease(),
            "begin": begin,
            "me": me(),
        },
    )
    return {key: run_id for run_id, key in rows}


def gate(workflow: Workflow, position: int, *, shut: Sequence[str]) -> Gate:
    """What new runs of this workflow find. shut: agents whose steps are not waited for. Inside a transaction."""
    params = {"wait": False, "agent": workflow.steps[position].agent, "workflow": workflow.name, "shut": list(shut)}
    rows = _first_due.look(lambda since: db.fetch(sql.GATE, {**params, "since": since}), _turns)
    paused, orders, turn = rows[0]
    return Gate(paused, set(orders), turn is not None)


def bind_pauses(keys: Sequence[str]) -> None:
    """Orders paused before they had a run have one now."""
    db.fetch(sql.BIND_PAUSES, {"keys": list(keys)})


def claim(limit: int, *, shut: Sequence[str] = (), only: Sequence[str] | None = None) -> dict[Place, list[Claim]]:
    """Claim up to `limit` due steps for dispatch, exclusively, most urgent first.

    shut: agents for which nothing is claimed. only: the agents for which alone something is.
    """
    params = {"limit": limit, "shut": list(shut), "only": None if only is None else list(only), "me": me(), "lease": lease()}
    front = _due if only is None else _due_at.setdefault(tuple(only), Front("-infinity"))
    rows = front.look(lambda since: db.run(sql.CLAIM, {**params, "since": since}), _turns)
    places: dict[Place, list[Claim]] = {}
    for run_id, attempt, direction, position, workflow, version, _ in rows:
        places.setdefault(Place(workflow, version, direction, position), []).append(Claim(run_id, attempt))
    return places


def _turns(rows: Sequence[tuple[Any, ...]]) -> Any:
    turns = [row[-1] for row in rows if row[-1] is not None]
    return max(turns) - _CLOSE_IN_TIME if turns else None


def any_due(*, shut: Sequence[str]) -> bool:
    """Whether a step is due whose agent is not shut off."""
    params = {"shut": list(shut)}
    return bool(_first_due.look(lambda since: db.run(sql.ANY_DUE, {**params, "since": since}), _turns))


def unseen_seconds() -> float:
    """For how long steps may be due that the last looks did not see, because one at everything takes too long."""
    return max(front.blind_seconds() for front in (_due, _first_due, *_due_at.values()))


def see_everything() -> None:
    """Let the next looks for due steps see everything."""
    for front in (_due, _first_due, *_due_at.values()):
        front.see_everything()


def addressed(place: Place, claims: Sequence[Claim]) -> dict[str, Any]:
    """The parameters that name these claims to a statement."""
    return {
        "runs": [claim.run_id for claim in claims],
        "attempts": [claim.attempt for claim in claims],
        "direction": place.direction,
        "position": place.position,
    }


def start(place: Place, claims: Sequence[Claim]) -> list[Started]:
    """Begin these attempts; what is missing from the answer is stale, cancelled or begun already: drop it silently."""
    within = budget(place.definition.step(place.position).complete_within)
    began = time.monotonic()
    rows = db.run(sql.START, {**addressed(place, claims), "budget": within})
    return [
        Started(
            Claim(run_id, attempt),
            generation,
            idempotency_key,
            _json(checkpoint) or NOTHING,
            key,
            _json(payload),
            perform_key,
            _json(performed),
            _json(performed_checkpoint) or NOTHING,
            began + remaining,
        )
        for (
            run_id,
            attempt,
            generation,
            idempotency_key,
            checkpoint,
            key,
            payload,
            perform_key,
            performed,
            performed_checkpoint,
            remaining,
        ) in rows
    ]


_ROUTE = """
UPDATE supervision_stepstate s SET resource = %(resource)s, resource_version = %(version)s
  FROM unnest(%(runs)s::bigint[], %(attempts)s::int[]) v(run_id, attempt)
 WHERE s.run_id = v.run_id AND s.direction = %(direction)s AND s.position = %(position)s AND s.attempt = v.attempt
   AND s.process_state || '' = 'Processing'
"""


def route(place: Place, claims: Sequence[Claim], resource: str, version: int | None) -> None:
    """Note which of several resources these claims' calls go to, before they begin."""
    if claims:
        db.run(_ROUTE, {**addressed(place, claims), "resource": resource, "version": version})


def hold(place: Place, claims: Sequence[Claim]) -> set[int]:
    """The runs whose claims still stand, locked until the transaction ends."""
    lock_earlier(place, claims)
    return {row[0] for row in db.fetch(sql.HOLD, addressed(place, claims))}


def lock_earlier(place: Place, claims: Sequence[Claim]) -> None:
    """Before a step is locked from which its whole run may be: lock what comes first, as everybody does."""
    if place.position > 0 or place.direction == Direction.UNDO:
        db.fetch(sql.LOCK_EARLIER, addressed(place, claims))


def save_checkpoints(items: Sequence[tuple[Place, Claim, Mapping[str, Any]]]) -> set[tuple[int, str, int, int]]:
    """Merge checkpoints into their steps; returns those that still were ours, as (run, direction, position, attempt)."""
    rows = db.run(
        sql.CHECKPOINT,
        {
            "runs": [claim.run_id for _, claim, _ in items],
            "directions": [place.direction for place, _, _ in items],
            "positions": [place.position for place, _, _ in items],
            "attempts": [claim.attempt for _, claim, _ in items],
            "data": [json.dumps(data) for _, _, data in items],
        },
    )
    return {(row[0], row[1], row[2], row[3]) for row in rows}


def finish(place: Place, done: Sequence[Done], *, go_on: bool = False, wait: bool = False) -> Handover:
    """Record success; the successors are claimed (and with `go_on` started) in the same commit.

    wait: they become due instead, because their resource has limits that the scheduler's claims keep to. Claims that no
    longer stand change nothing and are recorded as stray replies.
    """
    if place.direction == Direction.UNDO:
        return _finish_undo(place, done)
    results = {item.run_id: item for item, _ in done}
    params = {
        **addressed(place, [item.claim for item, _ in done]),
        "results": [json.dumps(result) for _, result in done],
        "me": me(),
    }
    if place.is_last:
        hook = place.definition.on_processed
        statement = lambda: db.fetch(sql.FINISH_LAST, params)  # noqa: E731
        rows = db.guarded(statement) if hook is None else db.transact(lambda: _with_hook(statement, hook, results))
        found = {run_id for run_id, closed, _ in rows if not closed}
        went_on = {run_id for run_id, closed, _ in rows if closed}
        handed = Handover([], [], [], wake_scheduler=len(went_on) < len(found))
        ended = [run_id for run_id, closed, session in rows if closed and session is not None]
    else:
        following = place.following
        step = following.definition.step(following.position)
        params["lease"] = budget(step.complete_within) if go_on else lease()
        params |= {"fuse": go_on, "wait": wait, "agent": step.agent, "workflow": place.workflow}
        began = time.monotonic()
        rows = db.run(sql.FINISH, params)
        started = [
            Started(
                Claim(run_id, attempt),
                generation,
                key,
                _json(checkpoint) or NOTHING,
                results[run_id].key,
                results[run_id].payload,
                deadline=began + remaining,
            )
            for run_id, attempt, generation, key, checkpoint, remaining, waits in rows
            if waits is False
        ]
        found = {row[0] for row in rows if row[-1] is None}
        went_on = {row[0] for row in rows if row[-1] is not None}
        handed = Handover([item.claim for item in started], started if go_on else [], [], len(started) < len(found))
        ended = []
    if len(found) < len(done):
        handed.stale.extend(item.claim for item, _ in done if item.run_id not in found)
        record_strays(place, [(claim, "processed", "") for claim in handed.stale])
    # Where a cancel came first, these runs are being undone, or have nothing to undo and end here.
    if cancelled := sorted(found - went_on):
        _afterwards(lambda: db.transact(lambda: changes.close_undone(cancelled)), "close cancelled orders")
    if ended:
        _afterwards(lambda: sessions.release(ended), "release the next orders of their sessions")
        return replace(handed, wake_scheduler=True)
    return handed


def _afterwards(work: Callable[[], object], what: str) -> None:
    """What follows from steps that are committed already; where it fails, the supervisor makes up for it."""
    try:
        work()
    except Exception:
        if connection.in_atomic_block:
            raise
        log.exception("could not %s; the supervisor will", what)


def _with_hook(
    statement: Callable[[], list[tuple[Any, ...]]],
    hook: Callable[[Sequence[ClosedRun]], None],
    results: Mapping[int, Started],
) -> list[tuple[Any, ...]]:
    rows = statement()
    closed = [results[run_id] for run_id, is_closed, _ in rows if is_closed]
    if closed:
        hook([ClosedRun(run_id=it.run_id, key=it.key, reason="", payload=it.payload) for it in closed])
    return rows


def _finish_undo(place: Place, done: Sequence[Done]) -> Handover:
    def work() -> set[int]:
        held = hold(place, [item.claim for item, _ in done])
        finished = {item.run_id: result for item, result in done if item.run_id in held}
        for locked in changes.lock(sorted(finished)):
            locked.undo_done(place.position, finished[locked.run.id], me())
        return held

    held = db.transact(work)
    stale = [item.claim for item, _ in done if item.run_id not in held]
    if stale:
        record_strays(place, [(claim, "undone", "") for claim in stale])
    return Handover([], [], stale, wake_scheduler=bool(held))


def record_strays(place: Place, replies: Sequence[tuple[Claim, str, str]]) -> None:
    """Keep answers that came too late as evidence; nothing else happens to their runs."""
    db.run(
        sql.RECORD_STRAYS,
        {
            **addressed(place, [claim for claim, _, _ in replies]),
            "outcomes": [outcome for _, outcome, _ in replies],
            "details": [detail[:2000] for _, _, detail in replies],
            "me": me(),
        },
    )
