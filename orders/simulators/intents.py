"""The transitions of a payment: pure rules with Stripe's names. Each function takes an intent and gives its next state.

An intent is charged at most once, a cancelled intent is never charged, and no more is refunded than was charged.
"""

from __future__ import annotations

import re
import secrets
import time
from typing import Any

from orders.simulators.web import Answer

JSON = dict[str, Any]

_GOOD = {"visa", "visa_debit", "mastercard", "amex", "discover", "diners", "jcb", "unionpay"}
_DECLINES = {
    "chargeDeclined": "generic_decline",
    "chargeDeclinedInsufficientFunds": "insufficient_funds",
    "chargeDeclinedLostCard": "lost_card",
    "chargeDeclinedStolenCard": "stolen_card",
}
_PECULIAR = {"refundFail", "pendingRefund", "createDispute"}  # charged normally, but refunds or disputes differ
_FAILED = ("failed", "canceled")
_CHARGEABLE = ("requires_payment_method", "requires_confirmation")


class Problem(Exception):
    """A call that is answered with an error in Stripe's form."""

    def __init__(self, status: int, message: str, *, kind: str = "invalid_request_error", **fields: Any) -> None:
        super().__init__(message)
        self.answer = Answer.json(status, {"error": {"type": kind, "message": message, **fields}})
        self.code = fields.get("code", kind)
        self.amount = 0  # the money that was refused
        self.state: JSON = {}  # the state to store even though the call failed


def new(form: JSON) -> JSON:
    if form.get("confirm") == "true":
        raise Problem(400, "The simulator creates and confirms in two calls.", param="confirm")
    amount, currency, method = form.get("amount", ""), form.get("currency", ""), form.get("payment_method")
    if not amount.isdecimal() or not 1 <= int(amount) <= 99_999_999:
        raise Problem(400, "Invalid integer for amount.", param="amount", code="parameter_invalid_integer")
    if not re.fullmatch("[A-Za-z]{3}", currency):
        raise Problem(400, f"Invalid currency: {currency}.", param="currency")
    if method:
        _brand(method)
    return {
        "id": f"pi_{secrets.token_hex(12)}",
        "object": "payment_intent",
        "amount": int(amount),
        "amount_received": 0,
        "canceled_at": None,
        "cancellation_reason": None,
        "capture_method": "automatic",
        "created": int(time.time()),
        "currency": currency.lower(),
        "last_payment_error": None,
        "latest_charge": None,
        "livemode": False,
        "metadata": {name[9:-1]: text for name, text in form.items() if name.startswith("metadata[")},
        "payment_method": method,
        "payment_method_types": ["card"],
        "status": "requires_confirmation" if method else "requires_payment_method",
    }


def confirm(intent: JSON, form: JSON, *, declined: bool) -> JSON:
    if intent["status"] == "succeeded":
        raise _unexpected(
            intent,
            "You cannot confirm this PaymentIntent because it has already succeeded after being previously confirmed.",
        )
    if intent["status"] not in _CHARGEABLE:
        raise _unexpected(intent, f"You cannot confirm this PaymentIntent because it has a status of {intent['status']}.")
    method = form.get("payment_method") or intent["payment_method"]
    if not method:
        raise _unexpected(intent, "You cannot confirm this PaymentIntent because it's missing a payment method.")
    reason = _DECLINES.get(_brand(method)) or ("generic_decline" if declined else None)
    if reason:
        error = {"code": "card_declined", "decline_code": reason, "message": "Your card was declined.", "type": "card_error"}
        kept = {**error, "payment_method": {"id": method, "object": "payment_method", "type": "card"}}
        refused = {**intent, "status": "requires_payment_method", "payment_method": None, "last_payment_error": kept}
        problem = Problem(402, error.pop("message"), kind=error.pop("type"), **error, payment_intent=refused)
        problem.amount, problem.state = intent["amount"], {"intent": refused}
        raise problem
    return {
        **intent,
        "status": "succeeded",
        "payment_method": method,
        "last_payment_error": None,
        "amount_received": intent["amount"],
        "latest_charge": f"ch_{secrets.token_hex(12)}",
    }


def cancel(intent: JSON, form: JSON) -> JSON:
    if intent["status"] not in _CHARGEABLE:
        raise _unexpected(intent, f"You cannot cancel this PaymentIntent because it has a status of {intent['status']}.")
    reason = form.get("cancellation_reason")
    return {**intent, "status": "canceled", "canceled_at": int(time.time()), "cancellation_reason": reason}


def refund(intent: JSON, earlier: list[JSON], form: JSON, *, fails: bool = False) -> tuple[JSON, str | None]:
    """The new refund, and its later state, or None if its state will not change.

    fails: the refund is pending first and then fails. The refund of a `pm_card_refundFail` charge succeeds at once but fails
    later. The refund of a `pm_card_pendingRefund` charge is pending first and then succeeds.
    """
    if intent["status"] != "succeeded":
        raise Problem(400, f"This PaymentIntent ({intent['id']}) does not have a successful charge to refund.")
    left = intent["amount_received"] - sum(refund["amount"] for refund in earlier if refund["status"] not in _FAILED)
    if left == 0:
        message = f"Charge {intent['latest_charge']} has already been refunded."
        raise Problem(400, message, code="charge_already_refunded")
    wanted = form.get("amount", str(left))
    if not wanted.isdecimal() or not 1 <= int(wanted) <= left:
        raise Problem(400, f"Refund amount is greater than unrefunded amount on charge ({left}).", param="amount")
    method = intent["payment_method"]
    now = "pending" if fails or method == "pm_card_pendingRefund" else "succeeded"
    later = "failed" if fails or method == "pm_card_refundFail" else "succeeded"
    made = {
        "id": f"re_{secrets.token_hex(12)}",
        "object": "refund",
        "amount": int(wanted),
        "charge": intent["latest_charge"],
        "created": int(time.time()),
        "currency": intent["currency"],
        "metadata": {name[9:-1]: text for name, text in form.items() if name.startswith("metadata[")},
        "payment_intent": intent["id"],
        "reason": form.get("reason"),
        "status": now,
    }
    return made, None if later == now else later


def settled(refund: JSON, status: str) -> JSON:
    """The refund in its final state: `succeeded`, or `failed`, which means that the shop has the money again."""
    return {**refund, "status": status, **({"failure_reason": "expired_or_canceled_card"} if status in _FAILED else {})}


def dispute(intent: JSON, reason: str = "fraudulent") -> JSON:
    """A new dispute: the customer asks the bank for the money back. Raises Problem if there is no charge."""
    if intent["status"] != "succeeded":
        raise Problem(400, f"This PaymentIntent ({intent['id']}) does not have a successful charge to dispute.")
    return {
        "id": f"dp_{secrets.token_hex(12)}",
        "object": "dispute",
        "amount": intent["amount_received"],
        "charge": intent["latest_charge"],
        "created": int(time.time()),
        "currency": intent["currency"],
        "is_charge_refundable": False,
        "metadata": {},
        "payment_intent": intent["id"],
        "reason": reason,
        "status": "needs_response",
    }


def _brand(method: str) -> str:
    """The test card behind a payment method: a brand, or the kind of its refusal."""
    name = method.removeprefix("pm_card_")
    refusal = name.removeprefix("visa_")
    if method != name and (name in _GOOD or name in _PECULIAR or refusal in _DECLINES):
        return refusal
    message = f"No such PaymentMethod: '{method[:100]}'"
    raise Problem(400, message, code="resource_missing", param="payment_method")


def _unexpected(intent: JSON, message: str) -> Problem:
    return Problem(400, message, code="payment_intent_unexpected_state", payment_intent=intent)
