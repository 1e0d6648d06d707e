"""What a step that starts other runs does, in the transaction that records its attempt.

Performing: make the children once, start as many as may run at once, and wait for the signal of their ends; or end.
Compensating: cancel the children that are under way, undo those that are done, and wait likewise. It locks a child's run before
the child's own row, in the order of the transaction that ends a child.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.db.models.functions import Now

from supervision.agent import JSON, StepRequest
from supervision.approvals.actors import Exempt
from supervision.children import child_sql
from supervision.children.steps import NO_PAYLOAD, ChildRun, ForEach
from supervision.errors import AgentFailure, AwaitChildren, NotNeeded, PermanentFailure, UnreadableSubmission
from supervision.models import Run, Submission
from supervision.operations import operator_verbs
from supervision.postgres import db
from supervision.runtime.application import check_session
from supervision.states import RunState
from supervision.store import run_verbs
from supervision.store.records import MOST_RESULT_BYTES
from supervision.wakeup import hints
from supervision.workflow import Facts, newest

CANCELLED, KEY_TAKEN = "child_cancelled", "child_key_taken"
ACTOR = "parent order"


class _Look(NamedTuple):
    made: bool
    unfinished: int
    waiting: bool
    cancelled: str | None


Answers = dict[str, JSON | AgentFailure]


def perform(requests: Sequence[StepRequest]) -> list[JSON | AgentFailure]:
    """Start the children of these steps, all at the same place: one answer each, in order."""
    step: ChildRun | ForEach = requests[0].definition
    answers: Answers = {}
    made = {key for key, look in _look(step, [request.run_key for request in requests]).items() if look.made}
    _make(step, [request for request in requests if request.run_key not in made], answers)
    going = [request for request in requests if request.run_key not in answers]
    for request in going:
        if request.generation > 1:
            db.fetch(child_sql.REPLACE, {"parent": request.run_key, "step": step.name, "generation": request.generation})
    now = _look(step, [request.run_key for request in going])
    rooms = {key: step.at_once - look.unfinished for key, look in now.items() if look.waiting and look.cancelled is None}
    started = db.fetch(child_sql.START, {"parents": list(rooms), "rooms": [max(0, room) for room in rooms.values()], "step": step.name})
    if started:
        hints.send(hints.CONSUME)
    ended = [key for key, look in now.items() if look.cancelled is None and not look.unfinished and key not in rooms]
    results = _results(step, ended) if ended else {}
    named = list(now) if isinstance(step, ChildRun) and not step.waits else []
    newest_of = dict(db.fetch(child_sql.NEWEST, {"parents": named, "step": step.name})) if named else {}
    for key, look in now.items():
        if look.cancelled is not None:
            answers[key] = PermanentFailure(f"its child {look.cancelled} was cancelled", CANCELLED)
        elif isinstance(step, ChildRun) and not step.waits:
            answers[key] = {"child": newest_of[key]}
        else:
            answers[key] = results.get(key) or AwaitChildren(step.name)
    return [answers[request.run_key] for request in requests]


def child_key(parent: str, step: ChildRun | ForEach, index: int = 0, again: int | None = None) -> str:
    """The key of a child. again: the generation of the parent's step that makes it anew; None where it is made for the first time."""
    place = f"{step.name}[{index}]" if isinstance(step, ForEach) else step.name
    return f"{parent}:{place}:child" if again is None else f"{parent}:{place}:{again}:child"


def _look(step: ChildRun | ForEach, parents: Sequence[str]) -> dict[str, _Look]:
    rows = db.fetch(child_sql.LOOK, {"parents": list(parents), "step": step.name})
    return {parent: _Look(*facts) for parent, *facts in rows}


def _make(step: ChildRun | ForEach, requests: Sequence[StepRequest], answers: Answers) -> None:
    """Record the children of these steps, before any of them is started. Notes the answers of steps that start none."""
    later = [request.run_key for request in requests if request.generation > 1]
    before = {parent for (parent,) in db.fetch(child_sql.MADE_BEFORE, {"parents": later, "step": step.name})} if later else set()
    columns: dict[str, list[Any]] = {name: [] for name in ("keys", "parents", "numbers", "generations", "payloads", "sessions")}
    for request in requests:
        try:
            texts = [_body(step, payload) for payload in step.payloads(Facts(request.payload, request.results))]
        except AgentFailure as failure:
            answers[request.run_key] = failure
            continue
        again = request.generation if request.run_key in before else None
        keys = [child_key(request.run_key, step, index, again) for index in range(len(texts))]
        if not texts:
            answers[request.run_key] = NotNeeded("not needed: its list is empty")
        elif taken := db.fetch(child_sql.TAKEN, {"keys": keys}):
            answers[request.run_key] = PermanentFailure(f"another order has the key of its child: {taken[0][0]}", KEY_TAKEN)
        else:
            for number, (key, (text, session)) in enumerate(zip(keys, texts, strict=True)):
                row = (key, request.run_key, number, request.generation, text, session)
                for column, value in zip(columns.values(), row, strict=True):
                    column.append(value)
    if columns["keys"]:
        db.fetch(child_sql.MAKE, {**columns, "step": step.name, "workflow": step.workflow, "many": isinstance(step, ForEach)})


def _body(step: ChildRun | ForEach, payload: JSON) -> tuple[str, str | None]:
    """The text of a child's submission and its session, as its workflow reads them. Raises PermanentFailure where it cannot."""
    try:
        text = json.dumps(dict(payload), allow_nan=False)
        json.dumps(payload, ensure_ascii=False).encode()  # refuses half of a surrogate pair, which PostgreSQL cannot keep
        if (session := newest(step.workflow).intake.read(text).session_key) is not None:
            check_session(session)
    except Exception as error:
        why = str(error) if isinstance(error, UnreadableSubmission) else f"{type(error).__name__}: {error}"
        raise PermanentFailure(f"workflow {step.workflow} cannot read the payload of {step.name}: {why}", NO_PAYLOAD) from error
    if "\\u0000" in text:
        raise PermanentFailure(f"the payload of {step.name} has a NUL character, which cannot be kept", NO_PAYLOAD)
    return text, session


def _results(step: ChildRun | ForEach, parents: Sequence[str]) -> dict[str, JSON]:
    """The results of these parents' steps, whose children are all Processed; a reference instead of results that are too long."""
    facts = {"parents": list(parents), "step": step.name}
    sizes = {parent: size for parent, _count, size in db.fetch(child_sql.SIZES, facts)}
    fits = [parent for parent in parents if sizes.get(parent, 0) <= MOST_RESULT_BYTES]
    by_child: dict[str, dict[str, dict[str, Any]]] = {parent: {} for parent in fits}
    for parent, key, name, result in db.fetch(child_sql.RESULTS, {**facts, "parents": fits}):
        of_child = by_child[parent].setdefault(key, {})
        if name is not None:
            of_child[name] = result
    found: dict[str, JSON] = {}
    for parent, count, first in db.fetch(child_sql.COUNTS, facts):
        of_children = by_child.get(parent)
        if isinstance(step, ForEach):
            answer: dict[str, Any] = {"items": count, "results": None if of_children is None else list(of_children.values())}
        else:
            answer = {"child": first, "results": None if of_children is None else of_children.get(first, {})}
        size = sizes.get(parent, 0) if of_children is None else len(json.dumps(answer))
        if size > MOST_RESULT_BYTES:
            answer = {**answer, "results": None, "bytes": int(size)}
        found[parent] = answer
    return found


# -------------------------------------------------------------------------------------------------------- undoing


def compensate(requests: Sequence[StepRequest]) -> list[JSON | AgentFailure]:
    """Undo the children of these steps: one answer each, in order."""
    return [_undo(request) for request in requests]


def _undo(request: StepRequest) -> JSON | AgentFailure:
    step: ChildRun | ForEach = request.definition
    facts: Mapping[str, Any] = {"parent": request.run_key, "step": step.name, "most": step.at_once}
    db.fetch(child_sql.DROP, facts)
    for (key,) in db.fetch(child_sql.NEXT, facts):
        _cancel(key, f"{request.run_key} is undone")
    [(left,)] = db.fetch(child_sql.LEFT, facts)
    return AwaitChildren(step.name) if left else {}


def _cancel(key: str, reason: str) -> None:
    """Cancel this child, or undo it though it is Processed. A child whose submission is a dead letter has nothing to undo."""
    run_id = Run.objects.filter(key=key).values_list("pk", flat=True).first()
    if run_id is None:
        operator_verbs.cancel(key, by=Exempt(ACTOR), reason=reason)
        # A consumer may have had it in hand: then the cancel has waited for its run.
        waits = Submission.objects.filter(public_id=key, consumed_at__isnull=True).exists() or Run.objects.filter(key=key).exists()
        db.fetch(child_sql.UNDOING if waits else child_sql.NEVER_RAN, {"key": key})
        return
    locked = run_verbs.lock([run_id]).runs[0]
    state = locked.run.process_state
    if state == RunState.PROCESSED:
        locked.undo(ACTOR, reason, cancel_requested_at=Now())
        run_verbs.finish([locked], [state])
    elif state != RunState.CANCELLED:
        operator_verbs.cancel(key, by=Exempt(ACTOR), reason=reason)
    db.fetch(child_sql.UNDOING, {"key": key})
