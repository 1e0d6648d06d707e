"""The steps that start other runs: one (`ChildRun`), or one for each item of a list (`ForEach`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from supervision.agent import CHILD, JSON
from supervision.errors import DefinitionError, PermanentFailure
from supervision.workflow import Facts, Step

MOST_ITEMS = 10_000
ITEMS_A_TURN = 5_000  # for each child that may run at once: the parent is woken at most so often
MOST_AT_ONCE = 1_000
NO_PAYLOAD, NO_LIST, TOO_MANY = "child_payload", "items_no_list", "items_too_many"

Payload = Callable[[Facts], Mapping[str, object]]


@dataclass(frozen=True)
class ChildRun(Step):
    """Starts a run of another workflow, and waits until it has ended. Its result is {"child": key, "results": {step: result}}.

    The child's key is `PARENT:STEP:child`, so that starting it twice starts one run. If the child ends Cancelled, the step fails
    for good. Undoing the step cancels an unfinished child and undoes a Processed one.
    workflow: the name of the child's workflow.
    payload: a pure function of the parent's payload and the results that the step reads. Without it the child gets the parent's
        payload. If it raises, or the child's workflow cannot read what it returns, the step fails for good.
    waits: False: the step is Processed as soon as the child is accepted, with the result {"child": key}.
    The time of the wait does not count against the parent's own `complete_within`.
    """

    agent: str = field(default=CHILD, init=False)
    workflow: str = field(default="", kw_only=True)
    payload: Payload | None = field(default=None, kw_only=True)
    waits: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        _named(self.name, self.workflow)

    @property
    def starts(self) -> str:
        """The name of the workflow whose runs it starts."""
        return self.workflow

    @property
    def particulars(self) -> Mapping[str, str | bool]:
        """It starts one run, and may go on beside it."""
        return {"many": False, "waits": self.waits}

    @property
    def at_once(self) -> int:
        """How many of its children may be unfinished at the same time."""
        return 1

    def payloads(self, facts: Facts) -> list[JSON]:
        """The payload of each child. Raises PermanentFailure if it cannot be found."""
        return [facts.payload if self.payload is None else _made(self.name, self.payload, facts)]


@dataclass(frozen=True)
class ForEach(Step):
    """Starts a run of another workflow for each item of a list, and waits for all. Its result: {"items": n, "results": [...]}.

    The key of an item's run is `PARENT:STEP[INDEX]:child`. Its payload is {"item": ..., "index": ..., "parent": ...}. An empty
    list: the step is Skipped. If a run ends Cancelled, the step fails for good. Undoing the step undoes every run.
    workflow: the name of the items' workflow.
    items: a pure function of the parent's payload and the results that the step reads; it returns a list of JSON values, at most
        10,000 and at most 5,000 times `at_once`. It is called once, and the list is kept. Otherwise the step fails for good.
    at_once: how many of these runs may be unfinished at the same time, 1 to 1,000.
    parent: a pure function; what it returns is in every item's payload under `parent`.
    """

    agent: str = field(default=CHILD, init=False)
    workflow: str = field(default="", kw_only=True)
    items: Callable[[Facts], Sequence[object]] = field(default=lambda _facts: (), kw_only=True)
    at_once: int = field(default=10, kw_only=True)
    parent: Payload | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _named(self.name, self.workflow)
        if isinstance(self.at_once, bool) or not isinstance(self.at_once, int) or not 1 <= self.at_once <= MOST_AT_ONCE:
            raise DefinitionError(f"step {self.name!r}: at_once is a number from 1 to {MOST_AT_ONCE:,}, got {self.at_once!r}")

    @property
    def starts(self) -> str:
        """The name of the workflow whose runs it starts."""
        return self.workflow

    @property
    def particulars(self) -> Mapping[str, str | bool]:
        """It starts a run for each item."""
        return {"many": True}

    def payloads(self, facts: Facts) -> list[JSON]:
        """The payload of each child. Raises PermanentFailure if there is no list, or it is too long."""
        try:
            found = self.items(facts)
        except Exception as error:
            raise PermanentFailure(f"the items of {self.name} could not be found: {type(error).__name__}: {error}", NO_LIST) from error
        if not isinstance(found, list | tuple):
            raise PermanentFailure(f"the items of {self.name} are no list but {type(found).__name__}", NO_LIST)
        most = min(MOST_ITEMS, ITEMS_A_TURN * self.at_once)
        if len(found) > most:
            raise PermanentFailure(f"{self.name} has {len(found):,} items, at most {most:,} are allowed", TOO_MANY)
        shared = {} if self.parent is None else _made(self.name, self.parent, facts)
        return [{"item": item, "index": index, "parent": shared} for index, item in enumerate(found)]


def _named(step: str, workflow: str) -> None:
    if not isinstance(workflow, str) or not workflow:
        raise DefinitionError(f"step {step!r}: workflow must be the name of the workflow that it starts, got {workflow!r}")


def _made(step: str, make: Payload, facts: Facts) -> JSON:
    try:
        made = make(facts)
    except Exception as error:
        raise PermanentFailure(f"the payload of {step} could not be found: {type(error).__name__}: {error}", NO_PAYLOAD) from error
    if not isinstance(made, Mapping):
        raise PermanentFailure(f"the payload of {step} is no JSON object but {type(made).__name__}", NO_PAYLOAD)
    return made
