"""Workflow definitions: steps with agents, limits and policies, as a list or as a graph. A definition is data; nothing runs here.

Steps are written as rows at submission, with the workflow's version: changing a definition changes new runs only.
Keep an old version registered (same name, older `version`) while runs of it are in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import NamedTuple

from supervision.agent import CHILD, JSON, WAIT, Agent, get_agent, registered
from supervision.errors import DefinitionError, UnreadableSubmission, did_you_mean
from supervision.retry import RetryPolicy, demand_time
from supervision.runtime.application import AcceptedRun as AcceptedRun
from supervision.runtime.application import ByHand as ByHand
from supervision.runtime.application import ClosedRun as ClosedRun
from supervision.runtime.application import Intake as Intake
from supervision.runtime.application import KeptSignal as KeptSignal
from supervision.runtime.application import NewRun as NewRun
from supervision.states import Direction

MOST_STEPS = MOST_VERSION = 32_767  # a step's position is a smallint, and so is a version


ANY_JSON = Intake()
Hook = Callable[[Sequence[ClosedRun]], None]


@dataclass(frozen=True)
class Facts:
    """From what a condition decides, and a timer finds its moment: the run's payload, and the results of the steps it reads."""

    payload: JSON
    results: Mapping[str, JSON]


Condition = Callable[[Facts], bool]


@dataclass(frozen=True)
class Step:
    """One step: a name, the agent that does it, the time it may take and what to do when it fails.

    complete_within: the step's budget from its start.
    personal: the names of fields that hold personal data, in its results, its checkpoints and the signals that it waits for.
        Pages and the archive show a mask in their place.
    longest: the time from its start up to which its agent may extend the budget by `request.heartbeat`. None: not at all.
    amendable: payload fields an operator may correct when resubmitting this step.
    reads: the names of earlier steps whose results its agent and its condition get.
    label: what the step waits for, in words for people ("the customer's confirmation"), where it waits for a signal.
    when: a pure function: whether the step is needed. It is asked once, when the step's turn has come, and its answer is
        kept. If it is not needed, the step is Skipped. If the function raises, the step fails for good.
    after: the names of earlier steps. The step begins when all of them are Processed or Skipped; with none, at once. Without
        `after` the step comes after the one before it in the list. `plan` and `parallel` set it.
    """

    name: str
    agent: str
    complete_within: timedelta = timedelta(seconds=30)
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    amendable: tuple[str, ...] = ()
    reads: tuple[str, ...] = field(default=(), kw_only=True)
    when: Condition | None = field(default=None, kw_only=True)
    label: str = field(default="", kw_only=True)
    longest: timedelta | None = field(default=None, kw_only=True)
    personal: tuple[str, ...] = field(default=(), kw_only=True)
    after: tuple[str, ...] | None = field(default=None, kw_only=True)

    @property
    def awaited(self) -> str:
        """The signal that the step waits for by its definition; empty for none."""
        return ""

    @property
    def starts(self) -> str:
        """The name of the workflow whose runs the step starts; empty for none."""
        return ""

    @property
    def particulars(self) -> Mapping[str, str | bool]:
        """What only a step of its kind has that decides where a run goes: its registered plan keeps it."""
        return {}


@dataclass(frozen=True)
class Shape:
    """How the steps of a workflow that branches depend on each other, by position.

    after: the steps before each step. branch: the number of its branch; the steps of one branch run one after another.
    following: the step that the same branch goes on with, if any.
    """

    after: tuple[tuple[int, ...], ...]
    branch: tuple[int, ...]
    following: tuple[int | None, ...]

    def before(self, position: int) -> set[int]:
        """All steps that are done before this one begins."""
        found: set[int] = set()
        rest = list(self.after[position])
        while rest:
            earlier = rest.pop()
            if earlier not in found:
                found.add(earlier)
                rest += self.after[earlier]
        return found


def _shape(after: Sequence[tuple[int, ...]]) -> Shape | None:
    """The shape of these steps; None if they are a list. A step goes on with the branch of its first predecessor that is free."""
    if all(earlier == ((position - 1,) if position else ()) for position, earlier in enumerate(after)):
        return None
    branch: list[int] = []
    following: list[int | None] = [None] * len(after)
    for position, earlier in enumerate(after):
        free = next((place for place in earlier if following[place] is None), None)
        if free is not None:
            following[free] = position
        branch.append(max(branch, default=-1) + 1 if free is None else branch[free])
    return Shape(tuple(after), tuple(branch), tuple(following))


def _check_kinds(step: Step) -> None:
    """Raise DefinitionError where an argument of the step is of another kind than it has to be."""
    demand_time(f"step {step.name!r}: complete_within", step.complete_within)
    if step.longest is not None:
        demand_time(f"step {step.name!r}: longest", step.longest)
    if not isinstance(step.retry, RetryPolicy):
        raise DefinitionError(f"step {step.name!r}: retry must be a RetryPolicy, got {step.retry!r}")
    if step.when is not None and not callable(step.when):
        raise DefinitionError(f"step {step.name!r}: when must be a function of payload and results, got {step.when!r}")
    for what, names, kinds in (("amendable", step.amendable, (tuple, list, set, frozenset)), ("personal", step.personal, (tuple,))):
        if not isinstance(names, kinds) or not all(isinstance(each, str) and each for each in names):
            raise DefinitionError(f"step {step.name!r}: {what} must be a tuple of names of fields, got {names!r}")


@dataclass(frozen=True)
class Workflow:
    """Steps under a name and a version: a list, or a graph whose branches run side by side.

    complete_within: the whole order's time; past it the supervisor treats its open step as exhausted.
    on_cancelled, on_error, on_processed: called with the runs that reached that state, inside the transaction that
        moved them; they may write the application's tables, and may not call the network. A hook that raises stops no
        run: its writes are rolled back, and it is called again later until it succeeds (`hooks`).
    on_signal: called with the signals of its runs that were kept, also late ones, inside the transaction that keeps them.
        on_completed_by_hand: called with a step that an operator has completed, inside that transaction. What these two raise
        refuses the result, or all signals of that call; raise Refused. A process that does not know the run's version does not
        call them.
    by_choice: new runs get this version only where the intake asks for it (`NewRun.version`).
    """

    name: str
    steps: tuple[Step, ...]
    intake: Intake = ANY_JSON
    version: int = 1
    complete_within: timedelta = timedelta(days=1)
    on_processed: Hook | None = None
    on_cancelled: Hook | None = None
    on_error: Hook | None = None
    on_signal: Callable[[Sequence[KeptSignal]], None] | None = None
    on_completed_by_hand: Callable[[ByHand], None] | None = None
    by_choice: bool = False

    def __post_init__(self) -> None:
        if not self.name:
            raise DefinitionError("a workflow needs a name")
        if wrong := [self.steps] if not isinstance(self.steps, tuple | list) else [it for it in self.steps if not isinstance(it, Step)]:
            raise DefinitionError(f"workflow {self.name!r}: steps must be a tuple of steps (@step makes one), got {wrong[0]!r}")
        if not self.steps:
            raise DefinitionError(f"workflow {self.name!r} has no steps")
        if len(self.steps) > MOST_STEPS:
            raise DefinitionError(f"workflow {self.name!r} has {len(self.steps):,} steps, at most {MOST_STEPS:,} are kept")
        if not isinstance(self.version, int) or not 1 <= self.version <= MOST_VERSION:
            most = f"at least 1 and at most {MOST_VERSION:,}"
            raise DefinitionError(f"workflow {self.name!r}: version must be {most}, got {self.version!r}")
        demand_time(f"workflow {self.name!r}: complete_within", self.complete_within)
        seen: set[str] = set()
        for step in self.steps:
            if not step.name:
                raise DefinitionError(f"workflow {self.name!r}: a step has no name")
            if step.name in seen:
                raise DefinitionError(f"workflow {self.name!r}: two steps are named {step.name!r}")
            if isinstance(step.reads, str) or isinstance(step.after, str):
                what, names = ("reads", step.reads) if isinstance(step.reads, str) else ("after", step.after)
                raise DefinitionError(f"step {step.name!r}: {what} must be a tuple of names of steps, got {names!r}")
            for what, names in (("reads", step.reads), ("comes after", step.after or ())):
                if unknown := [name for name in names if name not in seen]:
                    what = f"{what} {unknown[0]!r}, which is no earlier step{did_you_mean(unknown[0], seen)}"
                    raise DefinitionError(f"workflow {self.name!r}: step {step.name!r} {what}")
            seen.add(step.name)
            _check_kinds(step)
            if step.complete_within <= timedelta(0):
                raise DefinitionError(f"step {step.name!r}: complete_within must be positive")
            if step.complete_within > self.complete_within:
                raise DefinitionError(f"step {step.name!r} may take longer than its whole workflow {self.name!r}")
            if step.longest is not None and not step.complete_within <= step.longest <= self.complete_within:
                raise DefinitionError(f"step {step.name!r}: longest must lie between its complete_within and its workflow's")
        if self.shape is not None:
            self._check_reads(self.shape)

    def _check_reads(self, shape: Shape) -> None:
        for position, step in enumerate(self.steps):
            done = {self.steps[earlier].name for earlier in shape.before(position)} if step.reads else set()
            if beside := [name for name in step.reads if name not in done]:
                raise DefinitionError(
                    f"workflow {self.name!r}: step {step.name!r} reads {beside[0]!r}, which may run beside it; name it in `after`"
                )

    @cached_property
    def shape(self) -> Shape | None:
        """How its steps depend on each other; None for a list."""
        positions = {step.name: position for position, step in enumerate(self.steps)}
        return _shape([
            (position - 1,) * bool(position) if step.after is None else tuple(sorted({positions[name] for name in step.after}))
            for position, step in enumerate(self.steps)
        ])  # fmt: skip

    def step(self, position: int) -> Step:
        """The step at this position, counted from 0."""
        return self.steps[position]

    def agent(self, position: int) -> Agent:
        """The agent that performs the step at this position."""
        name = self.steps[position].agent
        return registered.get(name) or get_agent(name)

    @property
    def last(self) -> int:
        """The position of the last step."""
        return len(self.steps) - 1

    @property
    def signals(self) -> set[str]:
        """The names of the signals that its steps wait for, or may wait for."""
        by_agents = {name for position in range(len(self.steps)) for name in self.agent(position).signals}
        return by_agents | {step.awaited for step in self.steps if step.awaited}


_workflows: dict[tuple[str, int], Workflow] = {}
_newest: dict[str, Workflow] = {}
started_by_steps: set[str] = set()  # the names of the workflows whose runs are children of other runs


def register(workflow: Workflow) -> Workflow:
    """Register a workflow. Its agents must be registered before; a (name, version) is registered once."""
    for name in (WAIT, CHILD):
        if any(step.agent == name for step in workflow.steps):
            registered.setdefault(name, get_agent(name))
    for step in workflow.steps:
        try:
            agent = get_agent(step.agent)
        except DefinitionError as error:
            raise DefinitionError(f"workflow {workflow.name!r}, step {step.name!r}: {error}") from error
        if step.longest is not None and agent.transactional:
            raise DefinitionError(f"workflow {workflow.name!r}, step {step.name!r}: longest is for agents that are not transactional")
    if _workflows.get((workflow.name, workflow.version), workflow) != workflow:
        raise DefinitionError(f"workflow {workflow.name!r} version {workflow.version} is registered twice")
    _workflows[workflow.name, workflow.version] = workflow
    started_by_steps.update(step.starts for step in workflow.steps if step.starts)
    if (newest := _newest.get(workflow.name)) is None or (newest.by_choice, -newest.version) >= (workflow.by_choice, -workflow.version):
        _newest[workflow.name] = workflow
    return workflow


def newest(name: str) -> Workflow:
    """The newest version of a workflow that is not `by_choice`: new submissions run it. Raises UnreadableSubmission when unknown."""
    try:
        return _newest[name]
    except KeyError:
        raise UnreadableSubmission(f"no workflow named {name!r} is registered{did_you_mean(name, _newest)}") from None


def version_of(name: str, version: int) -> Workflow:
    """The definition a run was written with. Raises DefinitionError where the running code has dropped it."""
    try:
        return _workflows[name, version]
    except KeyError:
        raise DefinitionError(f"workflow {name!r} version {version} is not registered in the running code") from None


def versions_of(name: str) -> list[Workflow]:
    """The versions of a workflow that the running code knows."""
    return [workflow for (known, _), workflow in _workflows.items() if known == name]


def workflows() -> list[Workflow]:
    """Every registered workflow, by name and version."""
    return [_workflows[place] for place in sorted(_workflows)]


def label_of(name: str, version: int) -> str:
    """The name of a workflow's version in statements and heartbeats."""
    return f"{name} {version}"


def known_labels() -> list[str]:
    """The labels of the versions that this process's code knows."""
    return [f"{name} {version}" for name, version in _workflows]


def known_names() -> list[str]:
    """The names of the workflows that this process's code knows."""
    return list({name: None for name, _ in _workflows})


confirmed: list[Workflow] = []  # those that `plans.registry` has compared with the database's


def unconfirmed() -> bool:
    """Whether a definition has not been compared with the database's. By identity, so that a replaced registry counts as new."""
    return not all(any(workflow is done for done in confirmed) for workflow in _workflows.values())


class StepPosition(NamedTuple):
    """A cohort's position in its workflow."""

    workflow: str
    version: int
    direction: str
    position: int

    @property
    def definition(self) -> Workflow:
        """The workflow version its runs were written with. Raises DefinitionError if this process's code has dropped it."""
        return _workflows.get(self[:2]) or version_of(*self[:2])

    @property
    def step(self) -> Step:
        """The step at this place."""
        return (_workflows.get(self[:2]) or version_of(*self[:2])).steps[self.position]

    @property
    def agent(self) -> Agent:
        """The agent that performs it."""
        return self.definition.agent(self.position)

    @property
    def is_known(self) -> bool:
        """Whether this process's code knows this version."""
        return (self.workflow, self.version) in _workflows

    @property
    def following(self) -> StepPosition:
        """The place of the step that its branch goes on with. Only where there is one (`is_last`)."""
        shape = (_workflows.get(self[:2]) or version_of(*self[:2])).shape
        following = self.position + 1 if shape is None else shape.following[self.position]
        if following is None:
            raise IndexError(f"no step follows {self.label} in its branch")
        return self._replace(position=following)

    @property
    def label(self) -> str:
        """The step's name, with `undo:` before it when it is being undone. Failpoints are restricted by it."""
        try:
            name = self.step.name
        except (DefinitionError, IndexError):
            name = str(self.position)
        return f"undo:{name}" if self.direction == Direction.UNDO else name

    @property
    def is_last(self) -> bool:
        """Whether no step follows it in its branch. In a list, the run becomes Processed together with this step."""
        definition = _workflows.get(self[:2]) or version_of(*self[:2])
        shape = definition.shape
        last = self.position == len(definition.steps) - 1 if shape is None else shape.following[self.position] is None
        return last and self.direction == Direction.DO
