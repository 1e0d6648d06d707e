"""The verb by which an operator records that a step was done by hand, with its result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop as _n

from supervision.agent import CHILD
from supervision.approvals import gate
from supervision.errors import ChangedMeanwhile, DefinitionError, Refused
from supervision.models import Child, ChildState, StepState
from supervision.operations.acting import carry_out, close_alerts_of, commit, demand_reason, locked_run
from supervision.operations.audit_log import Actor, name_of
from supervision.operations.previews import is_asleep, may_be_completed, same_plan
from supervision.postgres import db, json_safe
from supervision.states import Direction, Effect, ProcessState, RunState
from supervision.store import sleeping
from supervision.store.records import MOST_RESULT_BYTES
from supervision.store.runs import unstarted_children
from supervision.store.runs.locked_run import LockedRun
from supervision.workflow import ByHand, version_of

# What the step began outside counts as done, or as undone, because the operator says so.
_SETTLE = """
UPDATE supervision_effect e
   SET outcome = CASE WHEN %(undoing)s AND e.direction = 'do' THEN 'undone' ELSE 'done' END, settled_at = now(), actor = %(by)s
 WHERE e.run_id = %(run)s AND e.position = %(position)s
   AND ((e.direction = %(direction)s AND e.outcome IN ('intended', 'unknown'))
        OR (%(undoing)s AND e.direction = 'do' AND e.outcome IN ('intended', 'unknown', 'done')))
"""


@gate.executor("complete")
def complete(
    key: str,
    *,
    by: Actor,
    reason: str,
    result: Mapping[str, Any],
    step: str | None = None,
    attempt: int | None = None,
    plan_version: str | None = None,
) -> str:
    """Record that a step was done by hand, and go on; returns the run's state. Later steps read the result.

    The step is in Error, or waits for a signal or a moment. step: its name, where several steps could be meant.
    result: at most 65,536 bytes of JSON. attempt: the attempt that the caller saw. Raises Refused and ChangedMeanwhile.
    """
    demand_reason(reason)
    _check(result)

    def work() -> str:
        locked = locked_run(key)
        found = _chosen(locked, step, attempt)
        same_plan(locked, plan_version)
        why = _n("done by hand: %(reason)s") % {"reason": reason}
        return carry_out(
            locked, by, "complete", reason, lambda: _complete(locked, found, name_of(by), why, result),
            about=[found], step=found.name, result=dict(result),
        )  # fmt: skip

    return commit(work)


def _check(result: Mapping[str, Any]) -> None:
    if not isinstance(result, dict):
        raise Refused(_("The result has to be a JSON object."), "invalid_result")
    text = json.dumps(result)
    if len(text) > MOST_RESULT_BYTES:
        facts = {"bytes": len(text), "most": MOST_RESULT_BYTES}
        raise Refused(_("The result has %(bytes)s bytes of JSON; at most %(most)s are kept.") % facts, "invalid_result")
    if json_safe.storable(result) != result:
        raise Refused(_("The result holds characters that cannot be stored."), "invalid_result")


def _chosen(locked: LockedRun, name: str | None, attempt: int | None) -> StepState:
    possible = may_be_completed(locked)
    chosen = [step for step in possible if name in (None, step.name)]
    if not chosen:
        if attempt is not None:
            raise ChangedMeanwhile(_("The order is %(state)s now: another request was faster.") % {"state": locked.run.process_state})
        names = ", ".join(step.name for step in possible) or "-"
        raise Refused(_("Only a step that is in Error or waits can be completed by hand: %(names)s.") % {"names": names}, "not_completable")
    if len(chosen) > 1:
        names = ", ".join(step.name for step in chosen)
        raise Refused(_("Several steps can be completed: %(names)s. Name one.") % {"names": names}, "step_required")
    if attempt is not None and chosen[0].attempt != attempt:
        raise ChangedMeanwhile(
            _("You saw attempt %(seen)s of %(step)s, it is at attempt %(now)s now.")
            % {"seen": attempt, "step": chosen[0].name, "now": chosen[0].attempt}
        )
    return chosen[0]


def _complete(locked: LockedRun, step: StepState, actor: str, why: str, result: Mapping[str, Any]) -> None:
    undoing = locked.run.direction == Direction.UNDO
    unstarted_children.drop(step, locked.run.key)
    if undoing:
        refuse_children_under_way(step, locked.run.key)
    if is_asleep(step):
        sleeping.hold_back(step.run_id, step.direction, step.position)  # the rest of its wait no longer counts as held
    locked.move(
        step, ProcessState.PROCESSED, actor, why, effect=Effect.DONE.value, finished_at=Now(), result=dict(result), last_error=None
    )  # fmt: skip
    facts = {"run": step.run_id, "position": step.position, "direction": step.direction, "by": actor}
    db.fetch(_SETTLE, {**facts, "undoing": undoing})
    _tell(locked, step, result)
    close_alerts_of(step, actor)
    if undoing and not locked.failed:
        locked.move_run(RunState.COMPENSATING, actor, why)
    locked.go_on(actor, why)


def _tell(locked: LockedRun, step: StepState, result: Mapping[str, Any]) -> None:
    try:
        told = version_of(locked.run.workflow, locked.run.version).on_completed_by_hand
    except DefinitionError:
        return  # other code knows this version
    if told is not None:
        run = locked.run
        told(ByHand(key=run.key, payload=run.payload, step=step.name, direction=str(step.direction), result=dict(result)))


def refuse_children_under_way(step: StepState, key: str) -> None:
    """Raise Refused if runs that the step has started are not over: they would go on below a step that counts as undone."""
    under_way = Child.objects.filter(parent_key=key, step=step.name, state__in=[ChildState.STARTED.value, ChildState.UNDOING.value])
    first = under_way.order_by("number").values_list("key", flat=True).first() if step.agent == CHILD else None
    if first is not None:
        facts = {"number": under_way.count(), "step": step.name, "first": first}
        raise Refused(
            _("%(number)s of the runs that %(step)s has started are under way, the first is %(first)s: cancel them, or resubmit the undo.")
            % facts,
            "children_under_way",
        )
