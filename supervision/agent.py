"""The contract between the engine and the agents: no database, no Celery.

An agent wraps one remote service or resource (S7): it translates the service's errors into the tree of
`supervision.errors`, retries inside the remaining budget, passes the stable idempotency key on, and decides nothing
about recovery. It must be idempotent under that key (S30): the engine calls at least once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from importlib import import_module
from typing import Any, ClassVar

from supervision.effects import LONG_AGO, Book, Intention, Operation, Said
from supervision.errors import AgentFailure, DefinitionError, PermanentFailure
from supervision.states import ATTEMPTS_PER_EPOCH

JSON = Mapping[str, Any]
LATE_SECONDS = 0.05  # how late a request may be for the moment that the rate limiter reserved for it
MOST_EXCHANGES = 30  # calls of one attempt whose requests and answers are kept


@dataclass(frozen=True, kw_only=True)
class StepRequest:
    """The facts that an agent gets about the step it performs or undoes. Its repr leaves the run's data out, for logs.

    run_key: the order's public id.
    payload: the run's data as the workflow's intake wrote it.
    idempotency_key: stable across attempts; changes only with the step's generation.
    perform_key: the idempotency key of the `do` step (the same as `idempotency_key` when performing).
    deadline: `time.monotonic()` value after which the agent must make no request. `heartbeat` moves it.
    checkpoint_data: facts that earlier attempts of this step (and, when undoing, of the `do` step) saved by `checkpoint`.
    performed: when undoing, the result of the `do` step, or None where its effect is unknown.
    results: the results of the earlier steps that the step `reads`, by name; a step that was skipped has none.
    signal: the payload of the signal that the step has waited for (`AwaitSignal`); None if none has come.
    wait_left: seconds until the end of the step's wait; None if it has not waited.
    definition: the step's `Step`.
    resource: the resource that serves this call (several may serve the agent's service). settings: as operators edited them.
    """

    run_id: int
    run_key: str
    step: str
    payload: JSON = field(repr=False)
    idempotency_key: str
    perform_key: str
    attempt: int
    generation: int
    deadline: float
    checkpoint_data: JSON = field(default_factory=dict, repr=False)
    performed: JSON | None = field(default=None, repr=False)
    results: Mapping[str, JSON] = field(default_factory=dict, repr=False)
    signal: JSON | None = field(default=None, repr=False)
    wait_left: float | None = None
    definition: Any = None
    save_checkpoint: Callable[[JSON], None] | None = None
    # Extends the deadline; returns the new one, and whether the order still wants the step. None: the step has no `longest`.
    extend: Callable[[], tuple[float, bool]] | None = None
    resource: str | None = None
    settings: JSON = field(default_factory=dict)
    # Reserves the next request and returns the `time.monotonic()` value at which it may be made. None: no rate limit.
    reserve: Callable[[], float] | None = None
    book: Book | None = None

    @property
    def wait_is_over(self) -> bool:
        """Whether the step has waited, the time of its wait is over, and no signal has come."""
        return self.signal is None and self.wait_left is not None and self.wait_left <= 0

    @property
    def remaining(self) -> float:
        """Seconds left of the budget, never negative."""
        return max(0.0, self.deadline - time.monotonic())

    def pace(self) -> bool:
        """Call this before every request to the service: it waits until the resource's rate limit allows the request.

        False if that would be after the deadline: do not make the request. Costs nothing without a rate limit. If the thread
        wakes up too late for its reserved moment, it drops that and reserves another one, because late requests would bunch.
        """
        while self.reserve is not None:
            moment = self.reserve()
            if moment >= self.deadline:
                return False
            time.sleep(max(0.0, moment - time.monotonic()))
            if time.monotonic() - moment <= LATE_SECONDS:
                break
        return True

    def checkpoint(self, **data: Any) -> None:
        """Save facts durably before going on. The write is fenced by this attempt; a transactional agent's commits with its outcome.

        Raises TransientFailure if this attempt no longer holds the claim: stop without a result.
        """
        if self.save_checkpoint is not None:
            self.save_checkpoint(data)

    def heartbeat(self) -> bool:
        """Say in long work that it goes on: this attempt's `deadline` moves to a budget from now, up to the step's `longest`.

        Call it more often than the step's `complete_within`. It writes at most ten times in a budget, and else returns at once.
        False once the order is being undone: the agent may stop early with OutcomeUnknown, and the step is undone. Raises
        TransientFailure if this attempt no longer holds the claim, OutcomeUnknown if its slot at the service has been given
        away: stop without a result. Raises DefinitionError if the step has no `longest`.
        """
        if self.extend is None:
            if self.definition is not None and self.definition.longest is None:
                raise DefinitionError(f"step {self.step!r} takes no heartbeat: give its Step the longest time that it may take (`longest`)")
            return True
        deadline, wanted = self.extend()
        object.__setattr__(self, "deadline", deadline)  # of all the facts, only this one moves
        return wanted

    @property
    def look_first(self) -> bool:
        """Whether this order is older than the database's epoch. The database may have lost effects that the service still has.

        Even a first attempt then looks for effects before it makes one, and does not rely on the service to know its keys.
        """
        return self.attempt > ATTEMPTS_PER_EPOCH

    @property
    def perform_keys(self) -> list[str]:
        """The idempotency keys of the `do` step in every generation so far, the newest last."""
        stem, _, newest = self.perform_key.rpartition(":")
        return [f"{stem}:{generation}" for generation in range(1, int(newest) + 1)] if newest.isdecimal() else [self.perform_key]

    def ordered_at(self) -> datetime:
        """When the order was accepted, by the database's clock. None of its effects can be older. Costs one query."""
        return LONG_AGO if self.book is None else self.book.ordered_at()

    def intend(
        self,
        operation: str,
        *,
        key: str,
        service: str,
        amount: Decimal | None = None,
        currency: str | None = None,
        external_id: str = "",
        checkpoint: JSON | None = None,
    ) -> Operation:
        """Commit to the ledger that the agent is about to call this operation under this key. Then call it, then settle it.

        amount: in the currency's usual unit, where money moves. external_id: the object it acts on, where that is known.
        checkpoint: facts to save in the same commit. The returned outcome is `intended` if no earlier attempt has called
        the operation, `unknown` if one may have done it, `done` if one has. An operation that is never settled counts as
        done when the step succeeds; otherwise the agent's failure decides. Raises TransientFailure if this attempt no
        longer holds the claim: make no call and stop.
        """
        book = self.book or Book()
        if (opened := book.opening(operation, key)) is not None:
            return opened
        return book.intend(Intention(operation, key, service, amount, currency, external_id, checkpoint))

    def exchanged(self, service: str, call: str, asked: str, answered: str, status: int | None, seconds: float) -> None:
        """Report one call to a service and its answer, for people who look at the attempt later. It decides nothing.

        call: such as the method and the path, without a query. asked, answered: the bodies as text, JSON or form-encoded: the engine
        masks them before it keeps them, and keeps other text of the request not at all. Give no headers: they hold keys.
        Costs nothing in the database until the attempt has ended, and no waiting then.
        """
        if self.book is not None:
            if self.book.said is None:
                self.book.said = []
            if len(self.book.said) < MOST_EXCHANGES:
                self.book.said.append(Said(service, call, asked, answered, status, seconds))

    def effects(self) -> list[Operation]:
        """The external operations that this step did or may have done, in all attempts, generations and both directions.

        The oldest first. Costs one query: call it only when needed. Each can be settled, for example once it is undone.
        """
        return [] if self.book is None else self.book.effects()

    def untaken(self, name: str) -> list[JSON]:
        """The payloads of the signals of this name that have come for the order and that no step has taken, the oldest first.

        When undoing, with the one that the step took in its last wait, of which its agent may have noted nothing. Costs one query.
        """
        return [] if self.book is None else list(self.book.untaken(name))


class Agent:
    """One remote service or resource.

    name: the agent's name; its queue is `agent.<name>`.
    transactional: `perform_many`/`compensate_many` only write this database; the engine runs them inside the
        transaction that records their outcome, so that the effect happens exactly once.
    undoable: False if its work cannot or need not be undone.
    signals: the names of the signals that its steps may wait for by raising `AwaitSignal`.
    evidence: those of them that tell of an effect outside, such as money that has come. While one is here that no step has taken,
        the first of its steps that is not done may have had that effect: cancelling undoes it, also if it has not begun.
    key_ttl: how long the service remembers an idempotency key. The engine does not repeat or undo a step whose effect is
        unknown under an older key: the step stops in Error ("reconcile first"). None: the service never forgets keys, or
        the agent looks for effects before it repeats.
    """

    name: ClassVar[str] = ""
    transactional: ClassVar[bool] = False
    undoable: ClassVar[bool] = True
    key_ttl: ClassVar[timedelta | None] = None
    signals: ClassVar[tuple[str, ...]] = ()
    evidence: ClassVar[tuple[str, ...]] = ()

    def perform(self, request: StepRequest) -> JSON:
        """Do the step's work once per idempotency key; return a small JSON object that undoing may need.

        It is a dict; None counts as an empty one. The step stops in Error if the agent returns anything else, or a dict that JSON
        cannot hold (a Decimal, a datetime): its effect is unknown then.
        """
        raise NotImplementedError

    def compensate(self, request: StepRequest) -> JSON:
        """Undo the step's work by key; also called while its effect is unknown. "It never happened" is success."""
        raise self._no_undo()

    def opens_with(self, request: StepRequest) -> Intention | None:
        """The operation with which every attempt to perform the step begins, if there is one.

        The engine writes it to the ledger for a whole cohort at once, before it calls `perform`. `request.intend` then
        returns it without another commit. It is also written for attempts that then find nothing left to do: they say so
        when they settle it.
        """
        return None

    def perform_many(self, requests: Sequence[StepRequest]) -> list[JSON | AgentFailure]:
        """Perform a cohort at once: one result or failure each, in order. Only called when `transactional`."""
        raise NotImplementedError

    def compensate_many(self, requests: Sequence[StepRequest]) -> list[JSON | AgentFailure]:
        """Undo a cohort at once. Only called when `transactional`."""
        return [self._no_undo() for _request in requests]

    def _no_undo(self) -> PermanentFailure:
        # An undo step that was written when the agent had an undo, or by code that did not know the agent.
        return PermanentFailure(f"the agent {self.name} has no undo")

    def stays(self, step: str, done: Collection[str]) -> bool:
        """Whether what this step did stays when an operator cancels its order without undo.

        done: the names of the order's steps whose effect is there, or may be. By default what a remote service did stays, and
        what was written to this database is undone.
        """
        return not self.transactional

    @cached_property
    def resource(self) -> str | None:
        """The service it calls, served by one resource of that name or by several; None for work in this database."""
        return None if self.transactional else self.name

    @cached_property
    def queue(self) -> str:
        """The Celery queue that carries this agent's work."""
        return f"agent.{self.name}"


WAIT = "wait"


class WaitAgent(Agent):
    """Performs the steps that only wait (`WaitForSignal`, `Timer`). While they wait they hold no process, no slot and no message."""

    name, transactional, undoable = WAIT, True, False

    def perform_many(self, requests: Sequence[StepRequest]) -> list[JSON | AgentFailure]:
        """Each step's own definition says what ends its wait."""
        return [request.definition.look(request) for request in requests]

    def compensate_many(self, requests: Sequence[StepRequest]) -> list[JSON | AgentFailure]:
        """A wait leaves nothing behind. Its undo step was written by code that did not know this agent."""
        return [{} for _request in requests]


CHILD = "child"


class ChildAgent(Agent):
    """Performs the steps that start other runs (`ChildRun`, `ForEach`): it writes to this database only, and waits for a signal."""

    name, transactional = CHILD, True

    def perform_many(self, requests: Sequence[StepRequest]) -> list[JSON | AgentFailure]:
        """Start the children that may start now, in the transaction that records the attempt."""
        return list(_children().perform(requests))

    def compensate_many(self, requests: Sequence[StepRequest]) -> list[JSON | AgentFailure]:
        """Cancel and undo the children that may be undone now, in the transaction that records the attempt."""
        return list(_children().compensate(requests))

    def stays(self, step: str, done: Collection[str]) -> bool:
        """The runs that it has started stay as they are."""
        return True


def _children() -> Any:
    return import_module("supervision.children.work")  # it needs the database, and definitions do not


registered: dict[str, Agent] = {}
_OF_THE_ENGINE: dict[str, Agent] = {WAIT: WaitAgent(), CHILD: ChildAgent()}  # known without a workflow of this code that uses them


def register_agent(agent: Agent) -> Agent:
    """Register an agent under its name. Raises DefinitionError if it is incomplete or another type has that name."""
    if not agent.name or not agent.name.replace("-", "").replace("_", "").isalnum():
        raise DefinitionError(f"{type(agent).__name__} needs a name of letters, digits, - and _")
    if agent.name == WAIT and not isinstance(agent, WaitAgent):
        raise DefinitionError(f"the name {WAIT!r} belongs to the engine's agent that waits")
    if agent.name == CHILD and not isinstance(agent, ChildAgent):
        raise DefinitionError(f"the name {CHILD!r} belongs to the engine's agent that starts other runs")
    known = registered.get(agent.name)
    if known is not None and type(known) is not type(agent):
        raise DefinitionError(f"two agents are named {agent.name!r}: {type(known).__name__}, {type(agent).__name__}")
    kind = type(agent)
    if agent.transactional:
        if kind.perform_many is Agent.perform_many:
            raise DefinitionError(f"agent {agent.name!r} is transactional and needs perform_many")
        if agent.undoable and kind.compensate_many is Agent.compensate_many:
            raise DefinitionError(f"agent {agent.name!r} is undoable and needs compensate_many")
    else:
        if kind.perform is Agent.perform:
            raise DefinitionError(f"agent {agent.name!r} needs perform")
        if agent.undoable and kind.compensate is Agent.compensate:
            raise DefinitionError(f"agent {agent.name!r} is undoable and needs compensate")
    registered[agent.name] = agent
    return agent


def get_agent(name: str) -> Agent:
    """The registered agent of this name. Raises DefinitionError if the running code has none."""
    found = registered.get(name) or _OF_THE_ENGINE.get(name)
    if found is None:
        raise DefinitionError(f"no agent named {name!r} is registered")
    return found


def agents() -> list[Agent]:
    """Every registered agent, by name."""
    return [registered[name] for name in sorted(registered)]
