"""The verb by which a run goes on from an earlier step: what came later is undone first, and then done anew under new keys."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop as _n

from supervision.agent import CHILD, WAIT, get_agent
from supervision.approvals import gate
from supervision.effects import EffectOutcome
from supervision.errors import DefinitionError, Refused
from supervision.models import Effect as Ledger
from supervision.models import StepState
from supervision.operations.acting import carry_out, close_alerts_of, commit, demand_reason, locked_run
from supervision.operations.audit_log import Actor, name_of
from supervision.operations.previews import Plan, PlanStep, as_it_is, key_of, same_plan, seen
from supervision.runtime.humanize import utc
from supervision.states import FINAL_RUN_STATES, Direction, Effect, ProcessState
from supervision.store.runs import beginning_again
from supervision.store.runs.locked_run import LockedRun

_OPEN_EFFECTS = (EffectOutcome.INTENDED.value, EffectOutcome.UNKNOWN.value)


def plan(key: str, step: str) -> Plan:
    """What `resume_from` would do to the run: the steps that are undone and done anew; or the reasons why it is refused.

    Raises UnknownRun, and Refused where the run has no such step.
    """
    locked = as_it_is(key)
    chosen = _chosen(locked, step)
    later = beginning_again.scope(locked.steps, chosen.position)
    undoable = {each.position for each in locked.to_undo()}
    undos = locked.undo_steps([each for each in reversed(later) if each.position in undoable])
    rows = [PlanStep(undo.name, Direction.UNDO.value, "run", undo.idempotency_key, key_reused=False) for undo in undos]
    positions = {each.position for each in later}
    for each in locked.steps:
        if each.position not in positions:
            rows.append(PlanStep(each.name, Direction.DO.value, "keep", each.idempotency_key, key_reused=each.attempt > 0))
            continue
        begun = each.process_state != ProcessState.PENDING or each.attempt > 0
        new = key_of(locked, each, each.generation + 1) if begun else each.idempotency_key
        rows.append(PlanStep(each.name, Direction.DO.value, "run", new, key_reused=False))
    return Plan(seen(locked), rows, reasons(locked, chosen))


def resume_from(key: str, step: str, *, by: Actor, reason: str, plan_version: str | None = None) -> str:
    """Let the run go on from this step, which has begun; returns the run's state.

    The step and all that came after it are undone, the last one first. Then they are done again, in order, each under a new key;
    conditions are asked again, and waits take another signal. Until then the run is Compensating; `cancel` undoes the rest, too.
    Raises Refused with all reasons where an effect cannot be undone or is not known, where a step is running, and where another
    branch has failed; ChangedMeanwhile if the run has changed since the plan of `plan_version` was made; UnknownRun.
    """
    demand_reason(reason)

    def work() -> str:
        locked = locked_run(key)
        chosen = _chosen(locked, step)
        same_plan(locked, plan_version)
        if found := reasons(locked, chosen):
            raise Refused(" ".join(found), "not_resumable")
        why = _n("goes on from %(step)s: %(reason)s") % {"step": step, "reason": reason}
        later = beginning_again.scope(locked.steps, chosen.position)
        said = f"resume from {step}: {reason}"
        return carry_out(locked, by, "resume", reason, lambda: _begin(locked, chosen, name_of(by), why), about=later, said=said, step=step)

    return commit(work)


@gate.executor("resume")
def _resume_approved(key: str, /, *, by: Actor, reason: str, plan_version: str | None, **arguments: Any) -> str:
    return resume_from(key, arguments["step"], by=by, reason=reason, plan_version=plan_version)


def _begin(locked: LockedRun, step: StepState, actor: str, why: str) -> None:
    for failed in locked.failed:
        close_alerts_of(failed, actor)
    beginning_again.begin(locked, step.position, actor, why)


def _chosen(locked: LockedRun, name: str) -> StepState:
    found = next((step for step in locked.steps if step.name == name), None)
    if found is None:
        names = ", ".join(step.name for step in locked.steps)
        raise Refused(_("The order has no step %(name)s; its steps: %(names)s.") % {"name": name, "names": names}, "unknown_step")
    return found


# ------------------------------------------------------------------------------------------------------ reasons


def reasons(locked: LockedRun, chosen: StepState) -> list[str]:
    """Why this run cannot go on from this step now, one sentence each; empty where it can."""
    if locked.run.process_state in FINAL_RUN_STATES:
        return [_("The order is %(state)s: it has ended.") % {"state": locked.run.process_state}]
    if locked.run.direction == Direction.UNDO:
        return [_("The order is being undone.")]
    later = beginning_again.scope(locked.steps, chosen.position)
    found = [
        _("%(step)s is in Processing until %(until)s: wait until it has come to rest.")
        % {"step": step.name, "until": utc(step.complete_by)}
        for step in locked.steps
        if step.process_state == ProcessState.PROCESSING
    ]
    if chosen.process_state == ProcessState.PENDING and chosen.attempt == 0:
        found.append(_("%(step)s has not begun.") % {"step": chosen.name})
    found += [
        _("%(step)s is in Error and does not come after %(chosen)s: resubmit or skip it first.")
        % {"step": step.name, "chosen": chosen.name}
        for step in locked.failed
        if step not in later
    ]
    rows = Ledger.objects.filter(run_id=locked.run.pk, direction=Direction.DO.value, outcome__in=_OPEN_EFFECTS)
    unsettled = set(rows.values_list("position", flat=True))
    return [*found, *filter(None, (_not_undoable(step, step.position in unsettled) for step in later))]


def _not_undoable(step: StepState, unsettled: bool) -> str:
    """Why this step cannot be undone now; empty where it can, or has nothing to undo."""
    if step.process_state == ProcessState.PROCESSING:
        return ""  # said already
    if step.agent == CHILD:
        return ""  # its children are in this database, and each is undone or cancelled
    # A skipped step cannot be resubmitted: its undo settles what is not known, as when the whole order is undone.
    skipped = step.process_state == ProcessState.SKIPPED and step.effect == Effect.UNKNOWN
    if not skipped and (step.effect == Effect.UNKNOWN or unsettled):
        return _("What %(step)s did is not known: resubmit it, or record by hand what was done, or undo the order.") % {"step": step.name}
    if step.effect == Effect.NONE or step.agent == WAIT:
        return ""
    try:
        undoable = get_agent(step.agent).undoable
    except DefinitionError as error:
        return _("%(step)s cannot be undone: %(why)s.") % {"step": step.name, "why": error}
    if skipped and not undoable:
        return _("What %(step)s did before it was skipped is not known, and the agent %(agent)s has no undo: go back to a later step.") % {
            "step": step.name, "agent": step.agent,
        }  # fmt: skip
    return "" if undoable else _("%(step)s is done and cannot be undone: the agent %(agent)s has no undo.") % {
        "step": step.name, "agent": step.agent,
    }  # fmt: skip
