"""Step requests as the engine hands them to agents, with a checkpoint that can be lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from supervision import StepRequest, TransientFailure

ADDRESS = {"name": "Ada L.", "line1": "Via Roma 1", "line2": "", "city": "Torino", "postal_code": "10121", "country": "IT"}
PAYLOAD = {
    "email": "ada@example.com",
    "lines": [{"sku": "MUG-BLUE", "name": "Blue mug", "quantity": 2, "unit_price": "12.90"}],
    "total": "25.80",
    "currency": "EUR",
    "shipping_address": ADDRESS,
    "payment_method": "pm_card_visa",
}


@dataclass
class StepOfOrder:
    """One step of one order: makes the requests of its attempts and keeps what they checkpoint.

    before_checkpoint: called before each checkpoint, where a test lets something else happen.
    """

    order: str
    step: str = "step"
    run_id: int = 1
    seconds: float = 20
    payload: dict[str, Any] = field(default_factory=lambda: dict(PAYLOAD))
    noted: dict[str, Any] = field(default_factory=dict)
    claim_lost: bool = False
    before_checkpoint: Callable[[], None] = lambda: None

    def request(self, attempt: int = 1, generation: int = 1, **more: Any) -> StepRequest:
        """The request of one attempt to do the step."""
        key = f"{self.order}:{self.step}:do:{generation}"
        return self._request(key, attempt, generation, perform_key=key, **more)

    def undo(self, performed: Any = None, attempt: int = 1, **more: Any) -> StepRequest:
        """The request of one attempt to undo it."""
        keys = {"perform_key": f"{self.order}:{self.step}:do:1"}
        return self._request(f"{self.order}:{self.step}:undo:1", attempt, 1, performed=performed, **keys, **more)

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
            **more,
        )

    def _save(self, data: Any) -> None:
        self.before_checkpoint()
        if self.claim_lost:
            raise TransientFailure("the claim is no longer ours")
        self.noted.update(data)
