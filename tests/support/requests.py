"""Step requests as the engine gives them to agents, with a checkpoint that can be lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from supervision import Agent, AwaitSignal, EffectOutcome, Intention, Operation, OutcomeUnknown, StepRequest, TransientFailure
from supervision.effects import Book, Settlement
from supervision.errors import AgentFailure

ADDRESS = {"name": "Ada L.", "line1": "Via Roma 1", "line2": "", "city": "Torino", "postal_code": "10121", "country": "IT"}
PAYLOAD = {
    "email": "ada@example.com",
    "lines": [{"sku": "MUG-BLUE", "name": "Blue mug", "quantity": 2, "unit_price": "12.90"}],
    "total": "25.80",
    "currency": "EUR",
    "shipping_address": ADDRESS,
    "payment_method": "pm_card_visa",
}


class MemoryBook(Book):
    """The ledger's rules without a database: `rows` outlive the attempt, as in the table."""

    __slots__ = ("rows", "step")

    def __init__(self, step: StepOfOrder, rows: dict[Any, Operation], **fields: Any) -> None:
        super().__init__(**fields)
        self.step, self.rows = step, rows

    def write(self, intention: Intention, settled: Sequence[Settlement]) -> tuple[EffectOutcome, str]:
        self.keep(settled)
        if intention.checkpoint is not None:
            self.step._save(intention.checkpoint)
        elif self.step.claim_lost:
            raise TransientFailure("the claim is no longer ours")
        name = (self.direction, intention.key, intention.operation)
        known = self.rows.get(name)
        outcome = EffectOutcome.INTENDED
        if known is not None and known.outcome in (EffectOutcome.INTENDED, EffectOutcome.UNKNOWN):
            outcome = EffectOutcome.UNKNOWN
        elif known is not None and known.outcome is EffectOutcome.DONE:
            outcome = EffectOutcome.DONE
        external_id = intention.external_id or (known.external_id if known else "")
        self.rows[name] = Operation(
            intention.operation, intention.key, intention.service, intention.amount, intention.currency, external_id, outcome,
            self.direction, self.generation, self.attempt, known.age if known else timedelta(0),
        )  # fmt: skip
        return outcome, external_id

    def read(self) -> list[Operation]:
        return [replace(one, settled=False) for one in self.rows.values()]

    def ordered_at(self) -> datetime:
        return self.step.ordered_at

    def keep(self, settled: Sequence[Settlement]) -> None:
        """Apply the rules of SETTLE."""
        for direction, key, operation, outcome, external_id, sure in settled:
            row = self.rows[direction, key, operation]
            open_ = row.outcome is EffectOutcome.INTENDED or (sure and row.outcome is EffectOutcome.UNKNOWN)
            allowed = {"undone": True, "done": row.outcome is not EffectOutcome.UNDONE, "refused": open_, "unknown": open_}
            if allowed[outcome]:
                row.outcome, row.external_id = outcome, external_id or row.external_id


@dataclass
class StepOfOrder:
    """One step of one order: makes the requests of its attempts and keeps their checkpoints.

    before_checkpoint: called before each checkpoint; a test can make another change there.
    """

    order: str
    step: str = "step"
    run_id: int = 1
    seconds: float = 20
    payload: dict[str, Any] = field(default_factory=lambda: dict(PAYLOAD))
    noted: dict[str, Any] = field(default_factory=dict)
    claim_lost: bool = False
    before_checkpoint: Callable[[], None] = lambda: None
    rows: dict[Any, Operation] = field(default_factory=dict)
    ordered_at: datetime = field(default_factory=lambda: datetime.now(UTC))

    def request(self, attempt: int = 1, generation: int = 1, **more: Any) -> StepRequest:
        """The request of one attempt to do the step."""
        key = f"{self.order}:{self.step}:do:{generation}"
        return self._request(key, attempt, generation, perform_key=key, **more)

    def undo(self, performed: Any = None, attempt: int = 1, **more: Any) -> StepRequest:
        """The request of one attempt to undo it."""
        more.setdefault("perform_key", f"{self.order}:{self.step}:do:1")
        return self._request(f"{self.order}:{self.step}:undo:1", attempt, 1, performed=performed, **more)

    def try_to(self, agent: Agent, request: StepRequest) -> Any:
        """Perform or undo as the engine does: note the first operation before the call and its outcome afterwards."""
        book = request.book
        assert isinstance(book, MemoryBook)
        undo = book.direction == "undo"
        if not undo and (opening := agent.opens_with(request)) is not None:
            book.intend(opening)
        rest = EffectOutcome.DONE
        try:
            return agent.compensate(request) if undo else agent.perform(request)
        except Exception as error:
            certain = isinstance(error, AgentFailure) and not isinstance(error, OutcomeUnknown | AwaitSignal)
            rest = EffectOutcome.REFUSED if certain else EffectOutcome.UNKNOWN
            raise
        finally:
            book.keep(book.close(rest))

    def outcomes(self) -> list[tuple[str, str, str]]:
        """Every row of the ledger: direction, operation, outcome."""
        return [(one.direction, one.operation, str(one.outcome)) for one in self.rows.values()]

    def _request(self, key: str, attempt: int, generation: int, **more: Any) -> StepRequest:
        return StepRequest(
            run_id=self.run_id,
            run_key=self.order,
            step=self.step,
            payload=self.payload,
            idempotency_key=key,
            attempt=attempt,
            generation=generation,
            deadline=time.monotonic() + self.seconds,
            checkpoint_data=dict(self.noted),
            save_checkpoint=self._save,
            book=MemoryBook(self, self.rows, direction=key.split(":")[-2], generation=generation, attempt=attempt),
            **more,
        )

    def _save(self, data: Any) -> None:
        self.before_checkpoint()
        if self.claim_lost:
            raise TransientFailure("the claim is no longer ours")
        self.noted.update(data)
