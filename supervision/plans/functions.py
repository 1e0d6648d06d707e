"""Steps whose work is a function: `@step` makes the step, and the agent that calls the function, in one place."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypedDict, TypeVar, Unpack, overload

from supervision.agent import JSON, Agent, StepRequest, register_agent, registered
from supervision.errors import DefinitionError, PermanentFailure, did_you_mean
from supervision.retry import RetryPolicy
from supervision.workflow import Condition, Step

Work = Callable[[StepRequest], JSON | None]
Undo = TypeVar("Undo", bound=Work)


class Options(TypedDict, total=False):
    """The arguments of `Step` that `@step` takes as they are. name: without it, the function's name with dashes."""

    name: str
    complete_within: timedelta
    retry: RetryPolicy
    amendable: tuple[str, ...]
    reads: tuple[str, ...]
    when: Condition
    label: str
    longest: timedelta
    personal: tuple[str, ...]
    after: tuple[str, ...]


class FunctionAgent(Agent):
    """Calls a function to perform a step, and another one to undo it. A function that returns None has the result {}."""

    undoable = False

    def __init__(self, name: str, work: Work, key_ttl: timedelta | None, signals: tuple[str, ...]) -> None:
        self.name, self.key_ttl, self.signals = name, key_ttl, signals  # type: ignore[misc]
        self.work = work
        self.undo: Work | None = None

    def undone_by(self, undo: Work) -> None:
        """Undo the step by this function. Raises DefinitionError if it has another one."""
        _check(f"the undo of {self.name}", undo)
        if self.undo is not None and _place(self.undo) != _place(undo):
            raise DefinitionError(f"step {self.name!r} has two undos: {_place(self.undo)} and {_place(undo)}")
        self.undo, self.undoable = undo, True  # type: ignore[misc]

    def perform(self, request: StepRequest) -> JSON:
        """Call the function."""
        answer = self.work(request)
        return {} if answer is None else answer

    def compensate(self, request: StepRequest) -> JSON:
        """Call the function that undoes the step."""
        if self.undo is None:
            raise PermanentFailure(f"step {self.name} has no undo")
        answer = self.undo(request)
        return {} if answer is None else answer


@dataclass(frozen=True)
class FunctionStep(Step):
    """A step that `@step` made. It is called like its function, as a test would."""

    def __call__(self, request: StepRequest) -> JSON:
        return self._own_agent().perform(request)

    def undo(self, work: Undo) -> Undo:
        """Decorate the function that undoes this step. Raises DefinitionError if the step has another one."""
        self._own_agent().undone_by(work)
        return work

    def _own_agent(self) -> FunctionAgent:
        agent = registered.get(self.agent)
        if not isinstance(agent, FunctionAgent):
            raise DefinitionError(f"step {self.name!r} has no function: its agent is {agent!r}")
        return agent


@overload
def step(work: Work, /) -> FunctionStep: ...
@overload
def step(
    *, key_ttl: timedelta | None = None, signals: tuple[str, ...] = (), **options: Unpack[Options]
) -> Callable[[Work], FunctionStep]: ...
def step(
    work: Work | None = None, /, *, key_ttl: timedelta | None = None, signals: tuple[str, ...] = (), **options: Unpack[Options]
) -> FunctionStep | Callable[[Work], FunctionStep]:
    """Make a step of a function that takes a `StepRequest` and returns a JSON object or None: `@step` or `@step(reads=...)`.

    The function has the duties of `Agent.perform`: it passes `request.idempotency_key` on, and may be called again with it.
    Its agent has the step's name. `@the_step.undo` decorates the function that undoes it; without one it cannot be undone.
    key_ttl, signals: as of `Agent`. options: as of `Step`. Raises DefinitionError if another step's function has that name.
    """

    def make(function: Work) -> FunctionStep:
        if not callable(function):
            raise DefinitionError(f"@step decorates a function, got {function!r}; @step(name=...) gives the step its name")
        given: Any = dict(options)
        if unknown := sorted(set(given) - set(Options.__annotations__)):
            raise DefinitionError(f"@step takes no {unknown[0]!r}{did_you_mean(unknown[0], Options.__annotations__)}")
        name = given.pop("name", None) or getattr(function, "__name__", type(function).__name__).replace("_", "-")
        _check(name, function)
        known = registered.get(name)
        if isinstance(known, FunctionAgent) and _name_of(known.work) != _name_of(function):
            raise DefinitionError(f"two functions are the step {name!r}: {_place(known.work)} and {_place(function)}; give one a name=")
        register_agent(FunctionAgent(name, function, key_ttl, signals))
        return FunctionStep(name, agent=name, **given)

    return make if work is None else make(work)


def _check(what: str, function: Work) -> None:
    """Refuse a function that cannot be called with a request. Agents' calls run in threads."""
    if inspect.iscoroutinefunction(function):
        raise DefinitionError(f"{what!r} is a coroutine function, and steps are called in threads: {_place(function)}; write `def`")
    try:
        inspect.signature(function).bind(object())
    except TypeError:
        raise DefinitionError(f"{what!r} has to take one argument, the request: {_place(function)}") from None
    except ValueError:  # a function that is not written in Python
        return


def _name_of(function: Work) -> tuple[str, str]:
    """The function's module and name, the same when its module is loaded again."""
    return function.__module__, getattr(function, "__qualname__", "")


def _place(function: object) -> str:
    code = getattr(function, "__code__", None)
    return f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}" + (
        f" (line {code.co_firstlineno})" if code else ""
    )
