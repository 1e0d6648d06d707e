"""The carrier's webhooks: whether one is genuine, and what it says.

The signature covers the body alone, without a time. So an old event may come again: `orders.parcels` lets it change nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.conf import settings

from orders.parcels.states import TOLD

_MOST_TEXT = 255


class NotGenuine(Exception):
    """The event was not signed with our secret."""


class BadEvent(Exception):
    """The event is signed and cannot be understood. The message names the field."""


@dataclass(frozen=True)
class Event:
    """One event. id: the carrier's id. key: the idempotency key of the booking. at: when it happened, by the carrier's clock."""

    id: str
    key: str
    state: str
    at: datetime


def signature(secret: str, body: bytes) -> str:
    """The value of `X-Signature` for this body."""
    return f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"


def read(body: bytes, signed: str) -> Event:
    """The event in a request's body. Raises NotGenuine, also while no secret is set, and BadEvent."""
    secret = settings.CARRIER_WEBHOOK_SECRET
    if not secret or not hmac.compare_digest(signature(secret, body).encode(), signed.encode("utf-8", "surrogateescape")):
        raise NotGenuine("X-Signature: expected sha256= and the HMAC of this body under CARRIER_WEBHOOK_SECRET")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise BadEvent("the body: expected a JSON object") from problem
    if not isinstance(found, dict):
        raise BadEvent("the body: expected a JSON object")
    state = _text(found, "state")
    if state not in TOLD:
        raise BadEvent(f"state: expected one of {', '.join(TOLD)}")
    return Event(_text(found, "id"), _text(found, "key"), state, _time(found))


def _text(found: dict[str, Any], name: str) -> str:
    value = found.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= _MOST_TEXT or not value.isprintable():
        raise BadEvent(f"{name}: expected a printable text of 1 to {_MOST_TEXT} characters")
    return value


def _time(found: dict[str, Any]) -> datetime:
    try:
        at = datetime.fromisoformat(_text(found, "at"))
        told = at.astimezone(UTC) if at.tzinfo else None
    except (ValueError, OverflowError):
        told = None
    if told is None:
        raise BadEvent("at: expected an ISO 8601 time with its offset, such as 2026-11-23T18:30:00Z")
    return told
