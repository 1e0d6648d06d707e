"""The verb by which runs under way go on with a newer version of their workflow.

What has begun is kept, and what has not begun is planned again. A run moves while nothing of it runs; it may wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop as _n

from supervision.agent import CHILD
from supervision.approvals import gate
from supervision.approvals.stakes import Operation
from supervision.errors import AwaitsApproval, DefinitionError, PlanChanged, Refused, UnknownRun, UnreadableSubmission
from supervision.models import Child, ChildState, Run, StepState
from supervision.operations.acting import commit, demand_reason, locked_run
from supervision.operations.audit_log import Actor, log_all, name_of
from supervision.operations.previews import Plan, PlanStep, as_it_is, same_plan, seen, still_here
from supervision.plans import registry
from supervision.postgres import db
from supervision.runtime import failpoints
from supervision.runtime.humanize import utc
from supervision.states import FINAL_RUN_STATES, Direction, ProcessState, RunState
from supervision.store import run_verbs
from supervision.store.runs.locked_run import LockedRun
from supervision.store.runs.moved_rows import has_begun, is_done, may_have_begun, planned, rewrite
from supervision.wakeup import hints
from supervision.workflow import Workflow, newest, version_of

BATCH = 100  # runs that one transaction moves
Children = Mapping[tuple[str, str], Child]
UNFINISHED = [state.value for state in RunState if state not in FINAL_RUN_STATES]


@dataclass(frozen=True)
class Moved:
    """What became of one run. state: its state, empty if it was refused; then `code` and `message` say why."""

    key: str
    state: str = ""
    code: str = ""
    message: str = ""


def plan(key: str, version: int | None = None) -> Plan:
    """What `move` would do to the run: the steps that are kept, added and removed; or the reasons why it is refused.

    version: of its workflow; None: the newest that this code knows. Raises UnknownRun, and Refused where there is no such version.
    """
    locked = as_it_is(key)
    workflow = _target(locked.run.workflow, version)
    old = {step.position: step for step in locked.steps}
    rows = []
    for place, definition in enumerate(workflow.steps):
        step = old.get(place)
        if step is not None and may_have_begun(step):
            rows.append(_row(step, "keep"))
        else:
            known = any(each.name == definition.name for each in locked.steps)
            key_of_it = f"{locked.run.key}:{definition.name}:do:1"
            rows.append(PlanStep(definition.name, Direction.DO.value, "run" if known else "add", key_of_it, key_reused=False))
    names = {definition.name for definition in workflow.steps}
    rows += [_row(step, "remove") for step in locked.steps if step.name not in names]
    return Plan(seen(locked, workflow.version), rows, reasons(locked, workflow, _children_of([locked])))


def _row(step: StepState, action: str) -> PlanStep:
    return PlanStep(step.name, str(step.direction), action, step.idempotency_key, key_reused=step.attempt > 0)


@gate.executor("move")
def move(key: str, *, by: Actor, reason: str, version: int | None = None, plan_version: str | None = None) -> str:
    """Let the run go on with this version of its workflow (None: the newest); returns its state.

    Steps that have begun stay as they are: their results, keys, waits and child runs. The others are planned again. Raises
    Refused with all reasons if the new version does not agree with what has begun, or if a step is running. Raises
    ChangedMeanwhile if the run has changed since the plan of `plan_version` was made, and UnknownRun.
    """
    demand_reason(reason)
    _confirm()

    def work() -> str:
        locked = locked_run(key)
        workflow = _target(locked.run.workflow, version)
        same_plan(locked, plan_version, workflow.version)
        if found := reasons(locked, workflow, _children_of([locked])):
            raise Refused(" ".join(found), "not_movable")
        gate.through(_operation(locked, workflow), by=by, reason=reason)
        _move([(locked, workflow)], by, reason)
        return locked.run.process_state

    return commit(work)


def move_many(keys: Iterable[str], *, by: Actor, reason: str, version: int | None = None, dry_run: bool = False) -> Iterator[Moved]:
    """Move these runs, each as `move` does; yields what became of each, in order. A run that is refused stops none of the others.

    BATCH runs are moved in each transaction. dry_run: only say which could be moved now.
    """
    demand_reason(reason)
    _confirm()
    rest = iter(keys)
    while batch := list(islice(rest, BATCH)):
        yield from db.transact(lambda batch=batch: _move_batch(batch, by, reason, version, dry_run=dry_run))  # type: ignore[misc]
        hints.send(hints.SCHEDULE)


def count_of(workflow: str, version: int) -> int:
    """How many unfinished runs this version has."""
    return Run.objects.filter(workflow=workflow, version=version, process_state__in=UNFINISHED).count()


def runs_of(workflow: str, version: int) -> Iterator[str]:
    """The keys of the unfinished runs of this version, the oldest first. Runs that are moved meanwhile do not disturb it."""
    last = 0
    while rows := list(
        Run.objects.filter(workflow=workflow, version=version, process_state__in=UNFINISHED, pk__gt=last)
        .order_by("pk")
        .values_list("pk", "key")[: 10 * BATCH]
    ):
        last = rows[-1][0]
        yield from (key for _pk, key in rows)


def _move_batch(keys: Sequence[str], by: Actor, reason: str, version: int | None, *, dry_run: bool) -> list[Moved]:
    ids = sorted(Run.objects.filter(key__in=keys).values_list("pk", flat=True))
    found = _as_they_are(ids) if dry_run else run_verbs.lock(ids).runs
    runs = {locked.run.key: locked for locked in found}
    children = _children_of(found)
    outcomes = {key: _judged(key, runs.get(key), version, children) for key in keys}
    if not dry_run:
        outcomes |= {key: _gated(runs[key], it, by, reason) for key, it in outcomes.items() if isinstance(it, Workflow)}
        _move([(runs[key], target) for key, target in outcomes.items() if isinstance(target, Workflow)], by, reason)
    return [Moved(key, runs[key].run.process_state) if isinstance(it := outcomes[key], Workflow) else it for key in keys]


def _operation(locked: LockedRun, workflow: Workflow) -> Operation:
    key, version = locked.run.key, workflow.version
    steps = [*locked.steps, *locked.undos]
    return Operation(
        verb="move", subject=key, order=key, arguments={"version": version}, run=locked.run, steps=steps, plan_version=seen(locked, version)
    )


def _gated(locked: LockedRun, workflow: Workflow, by: Actor, reason: str) -> Moved | Workflow:
    """The workflow that the run moves to, or why it does not move now."""
    try:
        gate.asking(lambda: gate.through(_operation(locked, workflow), by=by, reason=reason))
    except AwaitsApproval as waits:
        return Moved(locked.run.key, code=waits.code, message=str(waits))
    return workflow


def _as_they_are(ids: Sequence[int]) -> list[LockedRun]:
    """These runs to look at: they are not locked."""
    steps: dict[int, list[StepState]] = {pk: [] for pk in ids}
    for step in StepState.objects.filter(run_id__in=ids).order_by("run_id", "direction", "position"):
        steps[step.run_id].append(step)
    return [LockedRun(run, steps[run.pk], 0) for run in Run.objects.filter(pk__in=ids).order_by("pk")]


def _judged(key: str, locked: LockedRun | None, version: int | None, children: Children) -> Workflow | Moved:
    """The version that this run may go on with, or why it is refused."""
    try:
        if locked is None:
            still_here(key)
            return Moved(key, code="unknown_run", message=str(UnknownRun(key)))
        workflow = _target(locked.run.workflow, version)
    except Refused as problem:
        return Moved(key, code=problem.code, message=str(problem))
    found = reasons(locked, workflow, children)
    return Moved(key, code="not_movable", message=" ".join(found)) if found else workflow


def _move(runs: Sequence[tuple[LockedRun, Workflow]], by: Actor, reason: str) -> None:
    """Move these locked runs, with their hooks and audit entries, in as many statements as one takes."""
    if not runs:
        return
    before = [locked.run.process_state for locked, _workflow in runs]
    entries = [(locked.run, f"move from version {locked.run.version} to {workflow.version}: {reason}") for locked, workflow in runs]
    why = _n("moved from version %(old)s to version %(new)s: %(reason)s")
    facts = [{"old": locked.run.version, "new": workflow.version, "reason": reason} for locked, workflow in runs]
    rewrite([planned(locked, workflow, why % each) for (locked, workflow), each in zip(runs, facts, strict=True)], name_of(by))
    run_verbs.finish([locked for locked, _workflow in runs], before)
    log_all(by, entries)
    for _run in runs:
        failpoints.hit("verb.before_commit")


def _confirm() -> None:
    """Compare this code's definitions with the registered ones. Raises Refused where one differs."""
    try:
        registry.confirm(again=True)
    except PlanChanged as changed:
        raise Refused(_("This code may move nothing: %(difference)s.") % {"difference": changed}, "plan_changed") from changed


def _target(name: str, version: int | None) -> Workflow:
    try:
        return newest(name) if version is None else version_of(name, version)
    except (DefinitionError, UnreadableSubmission) as error:
        raise Refused(str(error), "unknown_version") from error


# ------------------------------------------------------------------------------------------------------ reasons


def reasons(locked: LockedRun, workflow: Workflow, children: Children) -> list[str]:
    """Why this run cannot go on with this version now, one sentence each; empty where it can."""
    run = locked.run
    if run.process_state in FINAL_RUN_STATES:
        return [_("The order is %(state)s: it stays with its version.") % {"state": run.process_state}]
    if run.direction == Direction.UNDO:
        return [_("The order is being undone: it stays with its version.")]
    if workflow.version <= run.version:
        facts = {"old": run.version, "new": workflow.version}
        return [_("The order has version %(old)s, and only a newer one can follow, not version %(new)s.") % facts]
    found = [reason for step in locked.steps if may_have_begun(step) and (reason := _reason(locked, step, workflow, children))]
    return [*_running(locked), *found]


def _running(locked: LockedRun) -> list[str]:
    return [
        _("%(step)s is in Processing until %(until)s: move the order when it has come to rest.")
        % {"step": step.name, "until": utc(step.complete_by)}
        for step in locked.steps
        if step.process_state == ProcessState.PROCESSING
    ]


def _reason(locked: LockedRun, step: StepState, workflow: Workflow, children: Children) -> str:
    """Why this step, which may have begun, does not fit into this version; empty where it fits."""
    facts = {"step": step.name, "new": workflow.version}
    place = next((number for number, each in enumerate(workflow.steps) if each.name == step.name), None)
    if place is None:
        return _("%(step)s has begun, and version %(new)s has no step of this name.") % facts
    definition = workflow.steps[place]
    if definition.agent != step.agent:
        return _("%(step)s has begun at the agent %(agent)s; in version %(new)s its agent is %(other)s.") % {
            **facts, "agent": step.agent, "other": definition.agent,
        }  # fmt: skip
    rows = {each.position: each for each in locked.steps}
    before = workflow.shape.after[place] if workflow.shape else range(place)
    for earlier in before if has_begun(step) else ():
        row, name = rows.get(earlier), workflow.steps[earlier].name
        if row is None or row.name != name or not is_done(row):
            return _("%(earlier)s comes before %(step)s in version %(new)s and is not done, and %(step)s has begun.") % {
                **facts, "earlier": name,
            }  # fmt: skip
    if place != step.position:
        return _(
            "%(step)s has begun as step %(here)s; in version %(new)s it is step %(there)s. "
            "List new steps after those that have begun, and say with `after` what they depend on."
        ) % {**facts, "here": step.position + 1, "there": place + 1}
    if is_done(step):
        return ""
    return _waits_elsewhere(step, workflow) or _starts_others(locked, step, workflow, children)


def _waits_elsewhere(step: StepState, workflow: Workflow) -> str:
    """Why the wait of this step is not the one that it has in this version."""
    definition = workflow.steps[step.position]
    if step.awaits is None or step.awaits.startswith("child:"):
        return ""
    possible = {definition.awaited, *workflow.agent(step.position).signals}
    if step.awaits in possible:
        return ""
    return _("%(step)s waits for %(what)s; in version %(new)s it waits for %(other)s.") % {
        "step": step.name, "new": workflow.version, "what": step.awaits or _("a moment"), "other": definition.awaited or _("a moment"),
    }  # fmt: skip


def _children_of(runs: Sequence[LockedRun]) -> Children:
    """A child run of each step that has started some, by the parent's key and the step's name. Those that were given up are over."""
    parents = [locked.run.key for locked in runs if any(step.agent == CHILD for step in locked.steps)]
    rows = Child.objects.filter(parent_key__in=parents).exclude(state=ChildState.REPLACED) if parents else Child.objects.none()
    return {(child.parent_key, child.step): child for child in rows.order_by("parent_key", "step").distinct("parent_key", "step")}


def _starts_others(locked: LockedRun, step: StepState, workflow: Workflow, children: Children) -> str:
    """Why the runs that this step has started are not those that it starts in this version."""
    if step.agent != CHILD:
        return ""
    child = children.get((locked.run.key, step.name))
    definition = workflow.steps[step.position]
    if child is None or (child.workflow == definition.starts and child.many == hasattr(definition, "items")):
        return ""
    return _("%(step)s has started runs of %(what)s; in version %(new)s it starts others.") % {
        "step": step.name, "new": workflow.version, "what": child.workflow,
    }  # fmt: skip
