"""What may be worked on now: takes waiting submissions and claims due steps. `searching` says where it looks for them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from supervision import conf
from supervision.postgres import db
from supervision.runtime.identity import me
from supervision.states import Claim
from supervision.store import step_sql
from supervision.store.bounds import searching
from supervision.store.bounds.in_flight import in_flight
from supervision.store.bounds.reachable_sql import NOTHING_DOWN, Unreachable
from supervision.store.bounds.searching import OVERLAP, OVERLAP_IDS, SearchStart
from supervision.store.records import Gate, LockedSubmission
from supervision.telemetry import measures
from supervision.workflow import StepPosition, Workflow, known_labels, known_names


def forget() -> None:
    """Reset what this process remembers of every queue, because the tables are no longer the same."""
    in_flight.forget()
    searching.forget()


_waiting = SearchStart(0)
_due: SearchStart[Any] = SearchStart("-infinity")
_due_at: dict[tuple[str, ...], SearchStart[Any]] = {}  # by the agents of one service
_first_due: SearchStart[Any] = SearchStart("-infinity")


# -------------------------------------------------------------------------------------------- waiting submissions


def take_submissions(limit: int, *, only: Sequence[int] | None = None) -> list[LockedSubmission]:
    """Up to `limit` waiting submissions, oldest first, locked; call it inside a transaction. only: the ids of those to take."""
    params, began = _taking(limit, only), time.monotonic()
    return _taken(db.fetch(step_sql.TAKE_SUBMISSIONS, params), None if only is not None else began)


def take_and_look(
    limit: int, workflow: Workflow | None, *, shut: Sequence[str], also: Sequence[db.Statement] = ()
) -> tuple[list[LockedSubmission], Gate | None, list[db.Rows]]:
    """Like `take_submissions`, and in the same round trip everything else that consuming them asks for. Call it inside a transaction.

    That is the gate of this workflow's first step, if there is one, the number of steps in flight, if it is old, and `also`: the
    rows of these statements are the last part of the result.
    """
    began = time.monotonic()
    asked: list[db.Statement] = [*also, (step_sql.TAKE_SUBMISSIONS, _taking(limit, None, began))]
    if counts := in_flight.is_old():
        asked.append(in_flight.question(began))
    if workflow is not None:
        asked.append((step_sql.GATE, _at_gate(workflow, 0, shut, began)))
    rows = db.fetch_together(*asked)
    if counts:
        in_flight.answered(rows[len(also) + 1], began)
    return _taken(rows[len(also)], began), None if workflow is None else _gate(rows[-1], began), rows[: len(also)]


def _taking(limit: int, only: Sequence[int] | None, began: float = 0.0) -> dict[str, Any]:
    if only is not None:
        return {"limit": len(only), "only": list(only), "since": min(only, default=0), "names": known_names()}
    return {"limit": limit, "only": None, "since": _waiting.of_search(began or time.monotonic()), "names": known_names()}


def _taken(rows: Sequence[tuple[Any, ...]], began: float | None) -> list[LockedSubmission]:
    if began is not None:
        _waiting.ended(began, rows[-1][0] - OVERLAP_IDS if rows else None)
    return [LockedSubmission(*row) for row in rows]


def gate(workflow: Workflow, position: int, *, shut: Sequence[str]) -> Gate:
    """What delays the claims of new runs: pauses, older due steps. shut: agents whose steps do not count. Inside a transaction."""
    began = time.monotonic()
    return _gate(db.fetch(step_sql.GATE, _at_gate(workflow, position, shut, began)), began)


def _at_gate(workflow: Workflow, position: int, shut: Sequence[str], began: float) -> dict[str, Any]:
    step = workflow.steps[position]
    params = {"wait": False, "agent": step.agent, "workflow": workflow.name, "shut": list(shut), "known": known_labels()}
    return {**params, "since": _first_due.of_search(began)}


def _gate(rows: Sequence[tuple[Any, ...]], began: float) -> Gate:
    paused, orders, turn = rows[0]
    _first_due.ended(began, None if turn is None else turn - OVERLAP)
    return Gate(paused, set(orders), turn is not None)


# ------------------------------------------------------------------------------------------------------ due steps


def claim(
    limit: int, *, shut: Sequence[str] = (), only: Sequence[str] | None = None, down: Unreachable = NOTHING_DOWN
) -> dict[StepPosition, list[Claim]]:
    """Claim up to `limit` due steps for dispatch, exclusively, most urgent first.

    shut: agents whose steps are not claimed. only: claim the steps of these agents and no others. down: what takes no calls now; a
    step that can go nowhere else is not claimed.
    """
    search = _due if only is None else _due_at.setdefault(tuple(only), SearchStart("-infinity"))
    began = time.monotonic()
    params = {
        "limit": limit,
        "shut": list(shut),
        "only": None if only is None else list(only),
        **down,
        "since": search.of_search(began),
        "known": known_labels(),
        "me": me(),
        "lease": lease(),
    }
    rows = db.run(step_sql.CLAIM_REACHABLE if down["down"] else step_sql.CLAIM, params)
    turns = [row[-1] for row in rows if row[-1] is not None]
    search.ended(began, max(turns) - OVERLAP if turns else None)
    return _by_place(rows)


def claim_probes(
    limit: int, resource: str, agents: Sequence[str], *, home: str | None, down: Unreachable
) -> dict[StepPosition, list[Claim]]:
    """Claim up to `limit` due steps of these agents as probes of this resource, first those that have not failed there.

    home: the resource of the service's own name, if it has one. down: what takes no calls now, apart from this resource.
    """
    params = {"only": list(agents), "resource": resource, "home": home, **down, "known": known_labels(), "me": me(), "lease": lease()}
    rows = db.run(step_sql.PROBE_WITH_ANOTHER, {**params, "limit": limit})
    if len(rows) < limit:
        rows += db.run(step_sql.PROBE_AGAIN, {**params, "limit": limit - len(rows)})
    return _by_place(rows)


def _by_place(rows: Sequence[tuple[Any, ...]]) -> dict[StepPosition, list[Claim]]:
    places: dict[StepPosition, list[Claim]] = {}
    for run_id, attempt, direction, position, workflow, version, age, _ in rows:
        place = StepPosition(workflow, version, direction, position)
        places.setdefault(place, []).append(Claim(run_id, attempt))
        measures.QUEUE_AGE.observe(age, place.agent.name)
    return places


def lease() -> float:
    """Seconds a claim may wait for an agent to start it."""
    settings = conf.get()
    return (settings.complete_within or settings.dispatch_within).total_seconds()


def any_due(*, shut: Sequence[str], down: Unreachable = NOTHING_DOWN) -> bool:
    """Whether a step is due whose agent is not shut off, and which can go to a resource that takes calls now."""
    began = time.monotonic()
    params = {"shut": list(shut), **down, "known": known_labels(), "since": _first_due.of_search(began)}
    rows = db.run(step_sql.ANY_DUE, params)
    _first_due.ended(began, rows[0][0] - OVERLAP if rows and rows[0][0] is not None else None)
    return bool(rows)


def unseen_seconds() -> float:
    """For how long due steps may stay unseen, because the last searches skipped a part of the index that takes too long to read."""
    return max(search.blind_seconds() for search in (_due, _first_due, *_due_at.values()))


def see_everything() -> None:
    """Let the next searches for due steps skip nothing."""
    for search in (_due, _first_due, *_due_at.values()):
        search.see_everything()
