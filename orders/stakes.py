"""What an operator's verb means in money, for the engine's gate: see `supervision.approvals.stakes`.

A verb has the order's total at stake, of a return what its goods cost, and of a refund its amount. These verbs do:
- skip and complete of a payment step: the money is not taken, or not paid back, by the shop;
- resubmit under a new key of a payment step whose outcome is not known: the money may be taken or paid back twice;
- cancel, compensate and going back behind a payment step that has taken money or may have: the money is paid back. What is only
  reserved at the checkout is no such money; a bank transfer that came there is;
- cancelling without undo an order that was charged or booked, or may have been: the customer's money or the shop's goods are given up;
- these, where a bank transfer was accepted that no step has taken;
- changing an order's lines: only the difference of the totals is at stake;
- the signals of a transfer that came and of goods that came back, sent by an operator: the order counts as paid, or is paid back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

from orders.agents import payment_transfer
from orders.edits.codes import VERB as EDIT
from orders.edits.lines import changed
from orders.parcels.splitting import BOOKING
from orders.payments import codes, state
from orders.returns import codes as returns
from supervision.approvals.stakes import Operation, money_at_stake
from supervision.models import StepState, Submission
from supervision.postgres import db
from supervision.states import Direction, Effect

_WORTH = """
SELECT currency, total FROM orders_order WHERE public_id = %(key)s
UNION ALL SELECT currency, amount FROM orders_refund WHERE public_id = %(key)s
UNION ALL
SELECT t.currency, sum(l.unit_price * coalesce(l.accepted, l.quantity)) FROM orders_return t JOIN orders_returnline l ON l.of_id = t.id
 WHERE t.public_id = %(key)s GROUP BY t.currency
"""


@money_at_stake
def at_stake(operation: Operation) -> Mapping[str, Decimal]:
    """The money that this verb moves or forgoes."""
    if operation.verb == EDIT and operation.run is not None:
        change = changed(operation.run.payload, operation.arguments["lines"])
        return {change.currency: change.less}
    return (dict(db.run(_WORTH, {"key": operation.subject})) or _announced(operation)) if moves_money(operation) else {}


def _announced(operation: Operation) -> dict[str, Decimal]:
    """Before the run there is no order yet: the total that its submission names, or else the amount that the signal names."""
    said: list[Any] = list(Submission.objects.filter(public_id=operation.subject).values_list("payload", flat=True))
    with suppress(ValueError):
        said[:1] = [json.loads(text) for text in said[:1]]
    for facts in (*said, operation.arguments.get("payload")):
        with suppress(TypeError, KeyError, ArithmeticError):
            currency, amount = str(facts["currency"]), Decimal(str(facts.get("total", facts.get("amount"))))
            if amount.is_finite():
                return {currency: amount}
    return {}


def moves_money(operation: Operation) -> bool:
    """Whether the verb moves or forgoes money."""
    arguments, payment = operation.arguments, [step for step in operation.about if step.agent == codes.AGENT]
    match operation.verb:
        case "skip" | "complete":
            return bool(payment)
        case "resubmit":
            return bool(arguments.get("new_generation")) and any(step.effect != Effect.NONE for step in payment)
        case "cancel" | "compensate":
            return _took_money(operation.steps) or _transfer_waits(operation)
        case "abandon":
            return _took_money(operation.steps) or _booked(operation.steps) or _transfer_waits(operation)
        case "resume":
            return _took_money(operation.about)
        case "signal":
            return arguments.get("name") in (codes.TRANSFER, returns.RECEIVED)
    return False


def _took_money(steps: Iterable[StepState]) -> bool:
    return any(
        (step.name in codes.TAKES_MONEY or (step.name == codes.AUTHORISE and state.holds_transfer(step)))
        and step.direction == Direction.DO
        and step.effect in (Effect.DONE, Effect.UNKNOWN)
        for step in steps
    )


def _transfer_waits(operation: Operation) -> bool:
    return bool(payment_transfer.not_taken(operation.subject))


def _booked(steps: Iterable[StepState]) -> bool:
    return any(step.name == BOOKING and step.direction == Direction.DO and step.effect != Effect.NONE for step in steps)
