"""The verb by which an operator cancels an order without undo: what remote services did for it stays, by decision."""

from __future__ import annotations

from django.utils.translation import gettext_noop as _n

from supervision.agent import CHILD
from supervision.approvals import gate
from supervision.errors import Refused
from supervision.models import StepState
from supervision.operations.acting import carry_out, close_alerts_of, commit, demand_reason, locked_run
from supervision.operations.audit_log import Actor, name_of
from supervision.operations.completing import refuse_children_under_way
from supervision.operations.previews import same_plan
from supervision.states import Direction, ProcessState
from supervision.store.runs import leaving, unstarted_children
from supervision.store.runs.locked_run import LockedRun


@gate.executor("abandon")
def abandon(key: str, *, by: Actor, reason: str, plan_version: str | None = None) -> str:
    """Cancel an order without undo; returns its state. Its open steps are given up, and the run ends Cancelled.

    What remote services did for it stays. What its agents hold in our own database is given back, unless the agent says that it
    has to stay (`Agent.stays`). A forward step that is running comes to rest first, as when an order is cancelled.
    Raises Refused once the order is final, while an undo step is running, and while runs that it has started are under way;
    ChangedMeanwhile if the run has changed since the plan of `plan_version` was made; UnknownRun.
    """
    demand_reason(reason)

    def work() -> str:
        locked = locked_run(key)
        same_plan(locked, plan_version)
        if found := leaving.hindrances(locked):
            raise Refused(" ".join(found), "not_cancellable")
        for step in locked.steps:
            refuse_children_under_way(step, key)
        why = _n("cancelled without undo: %(reason)s") % {"reason": reason}
        return carry_out(locked, by, "abandon", reason, lambda: _abandon(locked, name_of(by), why), said=why)

    return commit(work)


def _abandon(locked: LockedRun, actor: str, why: str) -> None:
    for step in _open(locked):
        close_alerts_of(step, actor)
        if step.direction == Direction.DO and step.agent == CHILD:
            unstarted_children.drop(step, locked.run.key)
    leaving.leave(locked, actor, why)


def _open(locked: LockedRun) -> list[StepState]:
    return [step for step in (*locked.steps, *locked.undos) if step.process_state in (ProcessState.PENDING, ProcessState.ERROR)]
