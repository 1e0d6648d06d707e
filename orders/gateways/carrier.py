"""The carrier's HTTP API: shipments by idempotency key."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from django.conf import settings

from orders.gateways import http
from orders.gateways.http import GatewayError, Reply


class AddressNotServiceable(GatewayError):
    """The carrier does not deliver to this address."""


class Deleted(GatewayError):
    """The key was deleted: nothing can be booked under it any more."""


class Rejected(GatewayError):
    """The carrier does not understand the request; it did nothing."""


class Unavailable(GatewayError):
    """The carrier cannot take the call now; it did nothing. `retry_after`: the pause it asks for, in seconds."""

    def __init__(self, message: str, retry_after: float | None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Broken(GatewayError):
    """The carrier failed while working; it may or may not have done it."""


@dataclass(frozen=True)
class Shipment:
    """A booked shipment."""

    id: str
    tracking_number: str


def book(key: str, order: str, to: Mapping[str, Any], items: Sequence[Mapping[str, Any]]) -> Shipment:
    """Book a shipment under the key; the same key gives the same shipment."""
    content = json.dumps({"reference": order, "to": to, "items": items})
    reply = _call("POST", "/v1/shipments", order, content, {"Idempotency-Key": key, "Content-Type": "application/json"})
    match reply.status:
        case 200 | 201:
            return _shipment(reply)
        case 410:
            raise Deleted("the shipment's key was deleted")
        case 422:
            raise AddressNotServiceable(f"the address is refused ({_error(reply)})")
    raise Rejected(f"the booking is refused: {reply.status} {_error(reply)}")


def find(key: str, order: str) -> Shipment | None:
    """The shipment booked under the key, if there is one."""
    reply = _call("GET", f"/v1/shipments/by-key/{quote(key, safe='')}", order)
    if reply.status == 404:
        return None
    if reply.status != 200:
        raise Broken(f"answered {reply.status} to a look-up")
    return _shipment(reply)


def delete(key: str, order: str) -> None:
    """Delete what was booked under the key, and bar the key for ever; success too where nothing was."""
    reply = _call("DELETE", f"/v1/shipments/by-key/{quote(key, safe='')}", order)
    if reply.status not in (200, 204):
        raise Broken(f"answered {reply.status} to a deletion")


@dataclass(frozen=True)
class Delivery:
    """How the carrier delivers to a country: in how many working days, at least and at most; None where it does not."""

    days: tuple[int, int] | None


def rates(country: str) -> Delivery:
    """What the carrier offers for a country."""
    reply = _call("GET", f"/v1/rates?country={quote(country, safe='')}")
    if reply.status != 200:
        raise Broken(f"answered {reply.status} to a question about {country}")
    try:
        body = json.loads(reply.body)
        if not body["serviceable"]:
            return Delivery(None)
        least, most = body["days"]
        return Delivery((int(least), int(most)))
    except (ValueError, KeyError, TypeError) as problem:
        raise Broken("gave an answer that cannot be read") from problem


def _call(method: str, path: str, order: str = "", content: str | None = None, headers: Mapping[str, str] | None = None) -> Reply:
    authorised = {"Authorization": f"Bearer {settings.CARRIER_API_KEY}", **({"X-Order-ID": order} if order else {}), **(headers or {})}
    reply = http.send(method, settings.CARRIER_URL + path, authorised, content)
    if reply.status in (429, 503):
        raise Unavailable(f"is not available ({reply.status})", reply.retry_after)
    if reply.status in (401, 403):
        raise Unavailable(f"refuses our API key ({reply.status}): check CARRIER_API_KEY", None)
    if reply.status >= 500:
        raise Broken(f"failed ({reply.status})")
    return reply


def _shipment(reply: Reply) -> Shipment:
    try:
        body = json.loads(reply.body)
        return Shipment(id=str(body["id"]), tracking_number=str(body["tracking_number"]))
    except (ValueError, KeyError, TypeError) as problem:
        raise Broken("gave an answer that cannot be read") from problem


def _error(reply: Reply) -> str:
    """The error's name as the carrier gives it, shortened: it ends up in front of an operator."""
    try:
        return str(json.loads(reply.body)["error"])[:100]
    except (ValueError, KeyError, TypeError):
        return "no reason given"
