"""The transitions of a payment: pure rules with Stripe's names. Each function takes an intent and gives its next state.

An intent is charged at most once, a cancelled intent is never charged, and no more is refunded than was charged.
With `capture_method=manual` a confirmation only reserves the amount: it moves no money until it is captured, and lapses in time.
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
_SECOND_FACTOR = "threeDSecure2Required"  # the bank asks the customer before it charges
_FAILED = ("failed", "canceled")
_CHARGEABLE = ("requires_payment_method", "requires_confirmation")
ACTION, RESERVED = "requires_action", "requires_capture"


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
    how = form.get("capture_method", "automatic")
    if how not in ("automatic", "manual"):
        message = f"Invalid capture_method: must be one of automatic or manual, got {how[:50]}."
        raise Problem(400, message, param="capture_method")
    if method:
        _brand(method)
    return {
        "id": f"pi_{secrets.token_hex(12)}",
        "object": "payment_intent",
        "amount": int(amount),
        "amount_capturable": 0,
        "amount_received": 0,
        "canceled_at": None,
        "cancellation_reason": None,
        "capture_method": how,
        "created": int(time.time()),
        "currency": currency.lower(),
        "last_payment_error": None,
        "latest_charge": None,
        "livemode": False,
        "metadata": {name[9:-1]: text for name, text in form.items() if name.startswith("metadata[")},
        "next_action": None,
        "payment_method": method,
        "payment_method_types": ["card"],
        "status": "requires_confirmation" if method else "requires_payment_method",
    }


def confirm(intent: JSON, form: JSON, *, declined: bool, bank: str) -> JSON:
    """The intent charged, reserved, or waiting for the customer, who confirms on the page `bank`.

    Raises Problem if the card is refused.
    """
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
        refused = _refused(intent, method, error)
        problem = Problem(402, error.pop("message"), kind=error.pop("type"), **error, payment_intent=refused)
        problem.amount, problem.state = intent["amount"], {"intent": refused}
        raise problem
    if _brand(method) == _SECOND_FACTOR:
        redirect = {"url": f"{bank}/{intent['id']}", "return_url": form.get("return_url")}
        action = {"type": "redirect_to_url", "redirect_to_url": redirect}
        return {**intent, "status": ACTION, "payment_method": method, "last_payment_error": None, "next_action": action}
    return _charged(intent, method)


def authenticate(intent: JSON, *, agrees: bool) -> JSON:
    """The intent after the customer has answered the bank: charged, reserved or refused. Raises Problem if the bank asks nothing now."""
    if intent["status"] != ACTION:
        raise _unexpected(intent, f"There is nothing to confirm: the payment has a status of {intent['status']}.")
    if agrees:
        return _charged(intent, intent["payment_method"])
    message = "The provided PaymentMethod has failed authentication."
    error = {"code": "payment_intent_authentication_failure", "message": message, "type": "invalid_request_error"}
    return _refused(intent, intent["payment_method"], error)


def _charged(intent: JSON, method: str) -> JSON:
    reserves = intent["capture_method"] == "manual"
    return {
        **intent,
        "status": RESERVED if reserves else "succeeded",
        "payment_method": method,
        "last_payment_error": None,
        "next_action": None,
        "amount_capturable": intent["amount"] if reserves else 0,
        "amount_received": 0 if reserves else intent["amount"],
        "latest_charge": f"ch_{secrets.token_hex(12)}",
    }


def capture(intent: JSON, form: JSON) -> JSON:
    """The intent charged with `amount_to_capture`, by default all of the reserved amount; the rest is released."""
    if intent["status"] != RESERVED:
        message = f"This PaymentIntent could not be captured because it has a status of {intent['status']}."
        raise _unexpected(intent, f"{message} Only a PaymentIntent with the status {RESERVED} may be captured.")
    wanted = form.get("amount_to_capture", str(intent["amount_capturable"]))
    if not wanted.isdecimal() or int(wanted) < 1:
        raise Problem(400, "Invalid integer for amount_to_capture.", param="amount_to_capture", code="parameter_invalid_integer")
    if int(wanted) > intent["amount_capturable"]:
        message = "The provided amount_to_capture is greater than the amount that can be captured."
        raise Problem(400, message, param="amount_to_capture", code="amount_too_large")
    return {**intent, "status": "succeeded", "amount_capturable": 0, "amount_received": int(wanted)}


def expired(intent: JSON) -> JSON:
    """The intent after its reserved amount has lapsed. Raises Problem if nothing is reserved."""
    if intent["status"] != RESERVED:
        raise _unexpected(intent, f"There is nothing to expire: the payment has a status of {intent['status']}.")
    return _cancelled(intent, "automatic")


def _refused(intent: JSON, method: str, error: JSON) -> JSON:
    kept = {**error, "payment_method": {"id": method, "object": "payment_method", "type": "card"}}
    refused = {"status": "requires_payment_method", "payment_method": None, "last_payment_error": kept, "next_action": None}
    return {**intent, **refused}


def cancel(intent: JSON, form: JSON) -> JSON:
    if intent["status"] not in (*_CHARGEABLE, ACTION, RESERVED):
        raise _unexpected(intent, f"You cannot cancel this PaymentIntent because it has a status of {intent['status']}.")
    return _cancelled(intent, form.get("cancellation_reason"))


def _cancelled(intent: JSON, reason: str | None) -> JSON:
    now = int(time.time())
    cancelled = {"status": "canceled", "canceled_at": now, "cancellation_reason": reason, "next_action": None, "amount_capturable": 0}
    return {**intent, **cancelled}


def refund(intent: JSON, earlier: list[JSON], form: JSON, *, fails: bool = False, disputed: bool = False) -> tuple[JSON, str | None]:
    """The new refund, and its later state, or None if its state will not change.

    disputed: the customer has the money back by the bank, or may get it. fails: the refund is pending first and then fails. The
    refund of a `pm_card_refundFail` charge succeeds at once but fails later. The refund of a `pm_card_pendingRefund` charge is
    pending first and then succeeds.
    """
    if intent["status"] != "succeeded":
        raise Problem(400, f"This PaymentIntent ({intent['id']}) does not have a successful charge to refund.")
    if disputed:
        raise Problem(400, f"The charge {intent['latest_charge']} has been charged back, so it cannot be refunded.", code="charge_disputed")
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
    if method != name and (name in _GOOD or name in _PECULIAR or name == _SECOND_FACTOR or refusal in _DECLINES):
        return refusal
    message = f"No such PaymentMethod: '{method[:100]}'"
    raise Problem(400, message, code="resource_missing", param="payment_method")


def _unexpected(intent: JSON, message: str) -> Problem:
    return Problem(400, message, code="payment_intent_unexpected_state", payment_intent=intent)
