"""The operations of the hot path. Only this module and `run_verbs` (whole runs at a time) write runs, steps and events.

Every operation takes a list and is one commit. A write names the attempt it belongs to. If it does not find the row, this
process has lost the claim, and the caller stops silently.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any

from django.db import connection

from supervision import conf
from supervision.postgres import db, json_safe
from supervision.runtime.identity import me
from supervision.states import Claim, Direction, RunState
from supervision.store import hooks, lost_sql, run_verbs, sessions, step_sql
from supervision.store.claiming import lease
from supervision.store.records import MOST_RESULT_BYTES, NOTHING, Done, Handover, Started, UnfitResult, encode
from supervision.store.runs import branch_rows, branch_sql
from supervision.wakeup import hints
from supervision.workflow import ClosedRun, StepPosition, Workflow, started_by_steps

log = logging.getLogger(__name__)


def budget(step_within: timedelta) -> float:
    """Seconds a step may take: its own limit, or SUPERVISION_COMPLETE_WITHIN, which overrides it for all steps."""
    override = conf.get().complete_within
    return (override or step_within).total_seconds()


def first_budget(workflow: Workflow) -> float:
    """Seconds the first step of a new run may take: its own limit, but at most that of the whole run."""
    return min(budget(workflow.steps[0].complete_within), workflow.complete_within.total_seconds())


def addressed(place: StepPosition, claims: Sequence[Claim]) -> dict[str, Any]:
    """The parameters that identify these claims in a statement."""
    return {
        "runs": [claim.run_id for claim in claims],
        "attempts": [claim.attempt for claim in claims],
        "direction": place.direction,
        "position": place.position,
    }


def start(place: StepPosition, claims: Sequence[Claim]) -> list[Started]:
    """Start these attempts. Claims missing from the result are stale, cancelled or already started: drop them silently."""
    step = place.step
    statement = step_sql.START if place.definition.shape is None else step_sql.START_BRANCH
    began = time.monotonic()
    params = {**addressed(place, claims), "budget": budget(step.complete_within), "step": step.name, "agent": step.agent}

    def with_lost() -> list[tuple[Any, ...]]:
        elapsed = time.monotonic() - began + 1.0
        return db.with_lost(lambda: db.fetch(statement, params), lost_sql.START, {**params, "elapsed": elapsed})

    return [
        Started(
            Claim(run_id, attempt),
            generation,
            own_key,
            checkpoint or NOTHING,
            key,
            payload,
            perform_key,
            performed,
            performed_checkpoint or NOTHING,
            began + remaining,
            awaits,
            wait_left,
        )
        for (
            run_id, attempt, generation, own_key, checkpoint, key, payload,
            perform_key, performed, performed_checkpoint, remaining, awaits, wait_left,
        ) in db.run(statement, params, after_loss=with_lost)
    ]  # fmt: skip


def mistaken(place: StepPosition, claims: Sequence[Claim]) -> list[tuple[Claim, str, str]]:
    """The claims that stand, not started, at another step than this code expects, each with that step and its agent."""
    step = place.step
    rows = db.run(step_sql.MISTAKEN, {**addressed(place, claims), "step": step.name, "agent": step.agent})
    attempts = {claim.run_id: claim for claim in claims}
    return [(attempts[run_id], name, agent) for run_id, name, agent in rows]


_ROUTE = """
UPDATE supervision_stepstate s SET resource = %(resource)s, resource_version = %(version)s
  FROM unnest(%(runs)s::bigint[], %(attempts)s::int[]) v(run_id, attempt)
 WHERE s.run_id = v.run_id AND s.direction = %(direction)s AND s.position = %(position)s AND s.attempt = v.attempt
   AND s.process_state || '' = 'Processing'
"""


def route(place: StepPosition, claims: Sequence[Claim], resource: str, version: int | None) -> None:
    """Record which of several resources these claims' calls go to, before the calls begin."""
    if claims:
        db.run(_ROUTE, {**addressed(place, claims), "resource": resource, "version": version})


def hold(place: StepPosition, claims: Sequence[Claim]) -> set[int]:
    """The runs whose claims still stand, locked until the transaction ends."""
    *_, held = db.fetch_together(*lock_earlier(place, claims), (step_sql.HOLD, addressed(place, claims)))
    return {row[0] for row in held}


def lock_earlier(place: StepPosition, claims: Sequence[Claim]) -> list[db.Statement]:
    """Locks the run's earlier rows, if there are any. Execute it before locking a step if the whole run may follow.

    All transactions use this order.
    """
    is_first = place.position == 0 and place.direction == Direction.DO
    return [] if is_first else [(step_sql.LOCK_EARLIER, addressed(place, claims))]


class Successor(StrEnum):
    """What FINISH does with the next step of an order."""

    CLAIMED = "claimed"  # by this process, which dispatches it
    STARTED = "started"  # by this process, which performs it at once
    DUE = "due"  # its resource has limits, and the scheduler's claims keep to them


def finish_at(place: StepPosition, successor: Successor = Successor.CLAIMED) -> Callable[[Sequence[Done]], Handover]:
    """The verb that records success at this place. It takes what was done.

    Claims that no longer stand change nothing and are recorded as stray replies.
    """
    if place.direction == Direction.UNDO:
        return partial(finish_undo, place)
    if place.definition.shape is not None:
        return partial(finish_branch, place, successor)
    return partial(finish_last, place) if place.is_last else partial(finish, place, successor)


def finish(place: StepPosition, successor: Successor, done: Sequence[Done]) -> Handover:
    """Record success of steps that others follow. The same commit claims the successors, starts them too, or makes them due."""
    params = {**_done(place, done), **_following(place, successor)}
    began = time.monotonic()
    again = lambda: db.with_lost(lambda: db.fetch(step_sql.FINISH, params), lost_sql.FINISH, params)  # noqa: E731
    rows = db.run(step_sql.FINISH, params, after_loss=again)
    return _handed_over(place, successor, done, rows, began)


def finish_last(place: StepPosition, done: Sequence[Done]) -> Handover:
    """Record success of last steps: their runs become Processed, and the workflow's hook is told in the same commit."""
    params = _done(place, done)
    statement = lambda: db.fetch(step_sql.FINISH_LAST, params)  # noqa: E731
    if place.definition.on_processed is not None:
        rows = _with_hook(place, statement, lost_sql.FINISH_LAST, {item.run_id: item for item, _ in done}, params)
    else:
        rows = db.run(step_sql.FINISH_LAST, params, after_loss=lambda: db.with_lost(statement, lost_sql.FINISH_LAST, params))
    return _closed(place, done, rows)


def finish_branch(place: StepPosition, successor: Successor, done: Sequence[Done]) -> Handover:
    """Record success where the plan branches. The same commit claims the next step of the branch, or ends the run."""
    params, began = {**_done(place, done), **_going_on(place, successor)}, time.monotonic()
    items = {item.run_id: item for item, _ in done}
    statement = lambda: db.fetch(branch_sql.FINISH, params)  # noqa: E731
    with_lost = lambda: db.with_lost(statement, branch_sql.LOST, params)  # noqa: E731
    ends = place.is_last and place.definition.on_processed is not None
    rows = _with_hook(place, statement, branch_sql.LOST, items, params) if ends else db.run(branch_sql.FINISH, params, after_loss=with_lost)
    return _gone_on(place, successor, done, branch_rows.read(rows, items, began))


def _gone_on(place: StepPosition, successor: Successor, done: Sequence[Done], now: branch_rows.Finished) -> Handover:
    """Do the work that follows from FINISH of a branch."""
    stale = _strays(place, done, now.found) if len(now.found) < len(done) else []
    run_verbs.tell_of_ends(RunState.PROCESSED, [item.key for item, _ in done if item.run_id in now.ended])
    _close_undone(now.undone)
    started = now.started if successor == Successor.STARTED else []
    due = any((_release(now.ended), _tell_of_children(place, now.ended), now.due, now.undone))
    return Handover([item.claim for item in now.started], started, stale, due)


def finished_before(place: StepPosition, successor: Successor, done: Sequence[Done]) -> Handover:
    """The result of an earlier finish in a transaction, where the answer to the commit was lost."""
    began = time.monotonic()
    if place.direction == Direction.UNDO:
        return Handover([], [], [], wake_scheduler=bool(db.fetch(lost_sql.FINISH_UNDO, _done(place, done))))
    if place.definition.shape is not None:
        rows = db.fetch(branch_sql.LOST, {**_done(place, done), **_going_on(place, successor)})
        found = branch_rows.read(rows, {item.run_id: item for item, _ in done}, began)
        return _gone_on(place, successor, _of_rows(done, rows), found)
    if place.is_last:
        rows = db.fetch(lost_sql.FINISH_LAST, _done(place, done))
        return _closed(place, _of_rows(done, rows), rows)
    rows = db.fetch(lost_sql.FINISH, {**_done(place, done), **_following(place, successor)})
    return _handed_over(place, successor, _of_rows(done, rows), rows, began)


def _of_rows(done: Sequence[Done], rows: Sequence[tuple[Any, ...]]) -> list[Done]:
    ours = {row[0] for row in rows}
    return [(item, result) for item, result in done if item.run_id in ours]


def _as_json(result: Mapping[str, Any]) -> str:
    """A step's result as it is kept. Raises UnfitResult if JSON cannot hold it, ValueError if it is too large."""
    try:
        text = encode(result)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnfitResult(f"a dict that JSON cannot hold ({error})") from None
    if "\\u" in text and not json_safe.takes(result):
        raise UnfitResult("a dict with a NUL character, or half of a surrogate pair, in a text")
    if len(text) > MOST_RESULT_BYTES:
        raise ValueError(f"the result has {len(text):,} bytes of JSON; at most {MOST_RESULT_BYTES:,} are kept")
    return text


def _done(place: StepPosition, done: Sequence[Done]) -> dict[str, Any]:
    return {**addressed(place, [item.claim for item, _ in done]), "results": [_as_json(result) for _, result in done], "me": me()}


def _following(place: StepPosition, successor: Successor) -> dict[str, Any]:
    following, fuse = place.following, successor == Successor.STARTED
    step = following.step
    seconds = budget(step.complete_within) if fuse else lease()
    facts = {"fuse": fuse, "wait": successor == Successor.DUE, "lease": seconds, "step": step.name, "agent": step.agent}
    return {**facts, "workflow": place.workflow, "next": following.position}


def _going_on(place: StepPosition, successor: Successor) -> dict[str, Any]:
    return branch_rows.nothing_follows(place) if place.is_last else _following(place, successor)


def _handed_over(
    place: StepPosition, successor: Successor, done: Sequence[Done], rows: Sequence[tuple[Any, ...]], began: float
) -> Handover:
    """Evaluate the rows of FINISH, and do the work that follows from them."""
    results = {item.claim.run_id: item for item, _ in done}
    started = [
        Started(Claim(run_id, attempt), generation, own, checkpoint or NOTHING, it.key, it.payload, deadline=began + remaining)
        for run_id, attempt, generation, own, checkpoint, remaining, waits in rows
        if waits is False
        for it in (results[run_id],)
    ]
    found = {row[0] for row in rows if row[-1] is None}
    stale = _strays(place, done, found) if len(found) < len(done) else []
    _close_undone(found - {row[0] for row in rows if row[-1] is not None})
    claims = [item.claim for item in started]
    return Handover(claims, started if successor == Successor.STARTED else [], stale, len(started) < len(found))


def _closed(place: StepPosition, done: Sequence[Done], rows: Sequence[tuple[Any, ...]]) -> Handover:
    """Evaluate the rows of FINISH_LAST, and do the work that follows from them."""
    found = {run_id for run_id, closed, _ in rows if not closed}
    ended = {run_id: session for run_id, closed, session in rows if closed}
    stale = _strays(place, done, found) if len(found) < len(done) else []
    run_verbs.tell_of_ends(RunState.PROCESSED, [item.key for item, _ in done if item.run_id in ended])
    _close_undone(found - ended.keys())
    return Handover([], [], stale, wake_scheduler=any((_release(ended), _tell_of_children(place, ended), len(ended) < len(found))))


def _release(ended: Mapping[int, str | None]) -> bool:
    """Release the next orders in the sessions of these runs. Returns whether there are any sessions."""
    of_sessions = [run_id for run_id, session in ended.items() if session is not None]
    if of_sessions:
        _afterwards(lambda: sessions.release(of_sessions), "release the next orders of their sessions")
    return bool(of_sessions)


def _tell_of_children(place: StepPosition, ended: Collection[int]) -> bool:
    """Whether these runs may be children: then parents are due, and the database may have started other children."""
    if not ended or place.workflow not in started_by_steps:
        return False
    hints.send(hints.CONSUME)
    return True


def _strays(place: StepPosition, done: Sequence[Done], found: Container[int]) -> list[Claim]:
    """The claims that FINISH did not find. Their answers are recorded as stray replies."""
    stale = [item.claim for item, _ in done if item.run_id not in found]
    record_strays(place, [(claim, "processed", "") for claim in stale])
    return stale


def _close_undone(runs: Collection[int]) -> None:
    """Where a cancel came first, these runs are being undone, or have nothing to undo and end here."""
    if runs:
        _afterwards(lambda: db.transact(lambda: run_verbs.close_undone(sorted(runs))), "close cancelled orders")


def _afterwards(work: Callable[[], object], what: str) -> None:
    """Do work that follows from committed steps. If it fails, the supervisor does it later."""
    try:
        work()
    except Exception:
        if connection.in_atomic_block:
            raise
        log.exception("could not %s; the supervisor will", what)


Rows = list[tuple[Any, ...]]


def _with_hook(
    place: StepPosition, statement: Callable[[], Rows], lost: str, results: Mapping[int, Started], params: Mapping[str, Any]
) -> Rows:
    """Execute the statement and its runs' hook in one commit. If it raises, a second one calls it run by run and defers failed calls."""
    hook = place.definition.on_processed

    def work(trusting: bool) -> Rows:
        rows = statement()
        ended = [results[run_id] for run_id, closed, *_ in rows if closed in (True, RunState.PROCESSED)]
        runs = [ClosedRun(run_id=it.run_id, key=it.key, reason="", payload=it.payload) for it in ended]
        if runs and trusting and hook is not None:
            hooks.trust(place.workflow, place.version, hook, runs)
        elif runs:
            hooks.tell(place.workflow, place.version, RunState.PROCESSED, runs)
        return rows

    def in_one(trusting: bool) -> Rows:
        return db.transact(lambda: work(trusting), after_loss=lambda: db.with_lost(lambda: work(trusting), lost, params))

    try:
        return in_one(trusting=True)
    except hooks.Raised as error:
        log.warning("the hook of %s orders has to be called one by one: %s", len(results), error)
        return in_one(trusting=False)


def finish_undo(place: StepPosition, done: Sequence[Done]) -> Handover:
    """Record that these steps are undone; the next step before each becomes due to be undone."""

    def work() -> set[int]:
        _done(place, done)  # raises before anything is written
        held = hold(place, [item.claim for item, _ in done])
        finished = {item.run_id: result for item, result in done if item.run_id in held}
        for locked in run_verbs.lock(sorted(finished)):
            locked.undo_done(place.position, finished[locked.run.id], me())
        return held

    def after_loss() -> set[int]:
        params = {**addressed(place, [item.claim for item, _ in done]), "me": me()}
        return work() | {row[0] for row in db.fetch(lost_sql.FINISH_UNDO, params)}

    held = db.transact(work, after_loss=after_loss)
    stale = [item.claim for item, _ in done if item.run_id not in held]
    if stale:
        record_strays(place, [(claim, "undone", "") for claim in stale])
    return Handover([], [], stale, wake_scheduler=bool(held))


def record_strays(place: StepPosition, replies: Sequence[tuple[Claim, str, str]]) -> None:
    """Keep answers that came too late as evidence; nothing else happens to their runs."""
    db.run(
        step_sql.RECORD_STRAYS,
        {
            **addressed(place, [claim for claim, _, _ in replies]),
            "outcomes": [outcome for _, outcome, _ in replies],
            "details": [detail[:2000] for _, _, detail in replies],
            "me": me(),
        },
    )
