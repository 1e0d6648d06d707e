"""Stripe's webhooks: whether one is genuine, and what it is about. The signature is checked by Stripe's own package."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import stripe
from django.conf import settings

TOLERANCE = 300  # seconds: an event that was signed longer ago is refused; Stripe signs again before each try
OF_PAYMENTS = (
    "payment_intent.succeeded",
    "payment_intent.amount_capturable_updated",
    "payment_intent.payment_failed",
    "payment_intent.canceled",
)
# Changes to the money of a payment, made here or at the payment service.
OF_MONEY = (
    "charge.refund.updated",
    "refund.created",
    "refund.updated",
    "refund.failed",
    "charge.dispute.created",
    "charge.dispute.updated",
    "charge.dispute.closed",
)
_MOST_ID = 255


class NotGenuine(Exception):
    """The event was not signed with our secret, or too long ago, or it is no event. The message says which."""


@dataclass(frozen=True)
class Event:
    """One event. intent: the payment that it is about. order: the payment's order, empty where the event does not say it."""

    id: str
    kind: str
    intent: str
    order: str = ""


def read(body: bytes, signature: str) -> Event | None:
    """The event in a request's body, or None if the shop has no use for it. Raises NotGenuine."""
    try:
        stripe.WebhookSignature.verify_header(body, signature, settings.STRIPE_WEBHOOK_SECRET, TOLERANCE)
    except (stripe.SignatureVerificationError, ValueError, TypeError) as problem:  # the last two: not UTF-8, not ASCII
        raise NotGenuine(str(problem) or "the signature cannot be read") from problem
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise NotGenuine("the body is no JSON") from problem
    return _event(found)


def _event(found: Any) -> Event | None:
    name, kind, thing = _text(found, "id"), _text(found, "type"), _part(_part(found, "data"), "object")
    if not name or not kind:
        raise NotGenuine("the body is no event: expected the texts `id` and `type`")
    if kind in OF_PAYMENTS and (intent := _text(thing, "id")):
        return Event(name, kind, intent, _text(_part(thing, "metadata"), "order"))
    if kind in OF_MONEY and (intent := _text(thing, "payment_intent")):
        return Event(name, kind, intent)
    return None


def _part(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, dict) else None


def _text(thing: Any, name: str) -> str:
    """A text that the database can keep; empty where there is none."""
    value = _part(thing, name)
    return value if isinstance(value, str) and len(value) <= _MOST_ID and value.isprintable() else ""
