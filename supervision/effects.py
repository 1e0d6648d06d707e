"""External operations of a step, as its agent reports them: each is noted before its call and settled after it.

This module uses no database: agents import it, and tests use it without an engine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, NamedTuple

LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)  # before anything that a service can list


class EffectOutcome(StrEnum):
    """What is known about one external operation. `intended` and `unknown` both mean that it may have been done."""

    INTENDED = "intended"
    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    UNDONE = "undone"


class Intention(NamedTuple):
    """An operation that is about to be called.

    key: the idempotency key of the call. amount: in the currency's usual unit, where money moves. external_id: what the
    operation acts on, where that is known before the call. checkpoint: facts to note durably in the same commit.
    """

    operation: str
    key: str
    service: str
    amount: Decimal | None = None
    currency: str | None = None
    external_id: str = ""
    checkpoint: Mapping[str, Any] | None = None


class Settlement(NamedTuple):
    """The outcome of an operation. sure: the agent reported it; otherwise it is derived from how the attempt ended."""

    direction: str
    key: str
    operation: str
    outcome: EffectOutcome
    external_id: str
    sure: bool


class Said(NamedTuple):
    """One call to a service and its answer, as an agent reports it: raw; the engine masks and cuts it before it is kept.

    status: the service's own code; None where no answer came, and `answered` says why. seconds: how long it took.
    """

    service: str
    call: str
    asked: str
    answered: str
    status: int | None
    seconds: float


@dataclass(slots=True)
class Operation:
    """One row of the ledger: an external operation under its key. All attempts that call it share the row.

    direction, generation, attempt: of the attempt that called it last. age: the time since the first call, by the
    database's clock when the row was read.
    """

    operation: str
    key: str
    service: str
    amount: Decimal | None = None
    currency: str | None = None
    external_id: str = ""
    outcome: EffectOutcome = EffectOutcome.INTENDED
    direction: str = "do"
    generation: int = 1
    attempt: int = 1
    age: timedelta = timedelta(0)
    settled: bool = False  # by this attempt
    book: Book | None = field(default=None, repr=False, compare=False)

    @property
    def may_exist(self) -> bool:
        """Whether its effect exists or may exist at the service."""
        return self.outcome in (EffectOutcome.INTENDED, EffectOutcome.UNKNOWN, EffectOutcome.DONE)

    def settle(self, outcome: EffectOutcome, external_id: str = "") -> None:
        """Report the outcome. It is written with the attempt's next intention, or before the attempt's end is recorded.

        external_id: the service's id of the object it made; an empty value keeps the id known so far.
        """
        self.outcome, self.settled = outcome, True
        self.external_id = external_id or self.external_id
        if self.book is not None:
            self.book.settled(self, sure=True)


class Book:
    """The operations of one attempt. This class keeps them in memory; the engine's subclass writes them to the ledger."""

    __slots__ = ("_mine", "_pending", "attempt", "direction", "generation", "said")

    def __init__(self, *, direction: str = "do", generation: int = 1, attempt: int = 1) -> None:
        self.direction, self.generation, self.attempt = direction, generation, attempt
        self._mine: list[Operation] | None = None
        self._pending: list[Settlement] | None = None
        self.said: list[Said] | None = None  # the calls of this attempt; None as long as there is none

    def write(self, intention: Intention, settled: Sequence[Settlement]) -> tuple[EffectOutcome, str]:
        """Commit the intention; returns the row's outcome and external id. Raises TransientFailure if the claim is lost."""
        return EffectOutcome.INTENDED, intention.external_id

    def read(self) -> Sequence[Operation]:
        """Every operation of this run at this position, the oldest first."""
        return ()

    def ordered_at(self) -> datetime:
        """When the order was accepted. This class does not know, and returns a time before anything a service can list."""
        return LONG_AGO

    def untaken(self, name: str) -> Sequence[Mapping[str, Any]]:
        """The payloads of the signals of this name that no step has taken. This class knows of none."""
        return ()

    def intend(self, intention: Intention) -> Operation:
        """Commit that this operation is about to be called. Its outcome is `intended` where no earlier attempt called it."""
        waiting = list(self._pending or ())
        known = self.write(intention, waiting)
        if waiting and self._pending is not None:
            del self._pending[: len(waiting)]
        return self.opened(intention, *known)

    def opened(self, intention: Intention, outcome: EffectOutcome, external_id: str) -> Operation:
        """Add an operation whose row is already committed."""
        operation = Operation(
            intention.operation,
            intention.key,
            intention.service,
            intention.amount,
            intention.currency,
            external_id,
            outcome,
            self.direction,
            self.generation,
            self.attempt,
            book=self,
        )
        if self._mine is None:
            self._mine = [operation]
        else:
            self._mine.append(operation)
        return operation

    def opening(self, operation: str, key: str) -> Operation | None:
        """This operation, if this attempt has already noted it and not settled it."""
        for one in self._mine or ():
            if one.operation == operation and one.key == key and not one.settled:
                return one
        return None

    def effects(self) -> list[Operation]:
        """Every operation of this run and position from before this attempt: all generations, both directions."""
        mine = {(one.direction, one.key, one.operation) for one in self._mine or ()}
        found = []
        for one in self.read():
            fresh = one.outcome is EffectOutcome.INTENDED and one.attempt == self.attempt
            if not (fresh and (one.direction, one.key, one.operation) in mine):
                one.book = self
                found.append(one)
        return found

    def settled(self, operation: Operation, *, sure: bool) -> None:
        """Keep an operation's outcome until it is written."""
        settlement = Settlement(operation.direction, operation.key, operation.operation, operation.outcome, operation.external_id, sure)
        if self._pending is None:
            self._pending = [settlement]
        else:
            self._pending.append(settlement)

    def close(self, rest: EffectOutcome) -> Sequence[Settlement]:
        """End the attempt; returns the outcomes still to be written. rest: the outcome of operations the agent did not settle."""
        for operation in self._mine or ():
            if not operation.settled:
                operation.outcome, operation.settled = rest, True
                self.settled(operation, sure=False)
            operation.book = None  # no cycles: the rest is freed at once
        return self._pending or ()
