"""The requests of a run's customers, drawn from its seed. Request number n is the same in every run with that seed."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass, field
from typing import Any

from chaos.look import order

SCARCE = "CLOCK-WALL"  # the product with fewer pieces than customers order
PLENTY = ("MUG-BLUE", "TEAPOT-SAND", "NOTEBOOK-A5", "PENCILS-12", "FLASK-STEEL")
DECLINED = "pm_card_visa_chargeDeclined"
NOWHERE = "00000"  # the postal code that the carrier does not serve
POISONED = "13013"  # the postal code for which the carrier fails at every call, while the fault `poison` lasts

MALFORMED: tuple[Any, ...] = (
    {},
    [],
    "not an object",
    order(lines=[]),
    order(lines=[{"sku": "MUG-BLUE", "quantity": -1}]),
    order(lines=[{"sku": "MUG-BLUE", "quantity": 1e9}]),
    order(lines=[{"sku": "NO-SUCH-THING", "quantity": 1}]),
    order(total="0.01"),
    order(email="no-at-sign"),
    order(payment_method="4242424242424242"),
    b'{"email": "ada@example.com", "lines": [',
    b"\xff\xfe\x00",
)


@dataclass(frozen=True)
class Wish:
    """What one customer does. other: a second body sent under the same idempotency key, which the shop has to refuse."""

    number: int
    wait: float  # seconds after the customer before
    body: Any
    malformed: bool = False
    again: float | None = None  # send the same body once more, so many seconds after the first
    other: dict[str, Any] | None = None
    cancel: float | None = None
    traits: tuple[str, ...] = field(default=())


def wish(seed: int, number: int, rate: float) -> Wish:
    """Draw the wish with this number from the seed."""
    dice = random.Random(f"{seed}:wish:{number}")
    wait = dice.expovariate(rate)
    if dice.random() < 0.01:
        return Wish(number, wait, dice.choice(MALFORMED), malformed=True, traits=("malformed",))
    traits = []
    scarce = dice.random() < 0.08
    lines = [{"sku": SCARCE if scarce else dice.choice(PLENTY), "quantity": dice.randint(1, 3)}]
    if dice.random() < 0.3:
        lines.append({"sku": "CANDLE-FIG", "quantity": 1})
    body = copy.deepcopy(order(lines=lines, email=f"customer{number}@example.com"))
    if scarce:
        traits.append("scarce")
    if dice.random() < 0.03:
        traits.append("declined")
        body["payment_method"] = DECLINED
    if dice.random() < 0.02:
        traits.append("nowhere")
        body["shipping_address"]["postal_code"] = NOWHERE
    if dice.random() < 0.2:
        body["priority"] = "low"
    again, other, cancel = None, None, None
    roll = dice.random()
    if roll < 0.025:
        traits.append("twice")
        again = dice.choice([0.0, 0.0, dice.uniform(0, 5)])
    elif roll < 0.05:
        traits.append("other-body")
        other = {**body, "lines": [{"sku": "MUG-BLUE", "quantity": 7}]}
    elif roll < 0.08:
        traits.append("cancel")
        cancel = dice.choice([0.0, dice.uniform(0, 0.5), dice.uniform(0, 15)])
    if "nowhere" not in traits and dice.random() < 0.04:
        traits.append("poison")
        body["shipping_address"]["postal_code"] = POISONED
    return Wish(number, wait, body, again=again, other=other, cancel=cancel, traits=tuple(traits))
