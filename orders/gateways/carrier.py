"""The carrier's HTTP API: shipments by idempotency key."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from django.conf import settings

from orders.gateways import http
from orders.gateways.http import GatewayError, RefusesUs, Reply

DELETED = "deleted"  # the state of a deleted shipment; in any other state the shipment is valid


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


class KeyRefused(Unavailable, RefusesUs):
    """The carrier does not accept our API key; it did nothing."""


class Broken(GatewayError):
    """The carrier failed during the call; it may or may not have had its effect."""


@dataclass(frozen=True)
class Shipment:
    """A booked shipment."""

    id: str
    tracking_number: str


@dataclass(frozen=True, kw_only=True)
class Booking:
    """A shipment as the carrier lists it. order: the public id that it was booked for."""

    id: str
    key: str
    order: str
    state: str
    created: datetime
    tracking_number: str

    @property
    def live(self) -> bool:
        """Whether the shipment was not deleted."""
        return self.state != DELETED


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


def listed(since: datetime) -> Iterator[Booking]:
    """Every shipment booked since then, oldest first, deleted ones included. Read page by page within the caller's budget.

    The times are the carrier's: callers must allow for a clock that differs from ours.
    """
    query = f"since={quote(since.astimezone(UTC).isoformat(), safe='')}"
    cursor = ""
    while True:
        reply = _call("GET", f"/v1/shipments?{query}{cursor}")
        if reply.status != 200:
            raise Broken(f"answered {reply.status} to a listing")
        try:
            page = json.loads(reply.body)
            bookings = [_booking(one) for one in page["results"]]
            following = page["next"]
        except (ValueError, KeyError, TypeError) as problem:
            raise Broken("gave an answer that cannot be read") from problem
        yield from bookings
        if not following:
            return
        cursor = f"&cursor={quote(str(following), safe='')}"


def delete(key: str, order: str) -> None:
    """Delete the shipments under the key, so that it can never be booked again. Succeeds too if nothing was booked."""
    reply = _call("DELETE", f"/v1/shipments/by-key/{quote(key, safe='')}", order)
    if reply.status not in (200, 204):
        raise Broken(f"answered {reply.status} to a deletion")


def delete_one(shipment: str, order: str) -> None:
    """Delete one shipment by the carrier's id; its key may have others. Succeeds too if it is deleted already."""
    reply = _call("DELETE", f"/v1/shipments/{quote(shipment, safe='')}", order)
    if reply.status not in (200, 204):
        raise Broken(f"answered {reply.status} to a deletion")


@dataclass(frozen=True)
class Standing:
    """Where a shipment stands, in the carrier's word, and since when, if the carrier tells."""

    state: str
    changed: datetime | None


def standing(shipment: str) -> Standing | None:
    """Where the shipment of this id stands; None if the carrier has no such shipment."""
    reply = _call("GET", f"/v1/shipments/{quote(shipment, safe='')}")
    if reply.status == 404:
        return None
    if reply.status != 200:
        raise Broken(f"answered {reply.status} to a look-up")
    try:
        body = json.loads(reply.body)
        told = body.get("changed_at")
        changed = datetime.fromisoformat(told) if told else None
        return Standing(str(body["state"]), changed if changed is None or changed.tzinfo else changed.replace(tzinfo=UTC))
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise Broken("gave an answer that cannot be read") from problem


def stands(shipment: str) -> bool:
    """Whether the shipment of this id exists and was not deleted."""
    found = standing(shipment)
    return found is not None and found.state != DELETED


@dataclass(frozen=True)
class Delivery:
    """The carrier's delivery to a country: least and most working days; None if it does not deliver there."""

    days: tuple[int, int] | None


def rates(country: str) -> Delivery:
    """The carrier's offer for a country."""
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
    about = {"X-Order-ID": quote(order, safe="")} if order else {}  # a shipment that is not ours may name anything
    authorised = {"Authorization": f"Bearer {settings.CARRIER_API_KEY}", **about, **(headers or {})}
    reply = http.send("carrier", method, settings.CARRIER_URL + path, authorised, content)
    if reply.status in (429, 503):
        raise Unavailable(f"is not available ({reply.status})", reply.retry_after)
    if reply.status in (401, 403):
        raise KeyRefused(f"refuses our API key ({reply.status}): check CARRIER_API_KEY", None)
    if reply.status >= 500:
        raise Broken(f"failed ({reply.status})")
    return reply


def _shipment(reply: Reply) -> Shipment:
    try:
        body = json.loads(reply.body)
        return Shipment(id=str(body["id"]), tracking_number=str(body["tracking_number"]))
    except (ValueError, KeyError, TypeError) as problem:
        raise Broken("gave an answer that cannot be read") from problem


def _booking(one: Mapping[str, Any]) -> Booking:
    return Booking(
        id=str(one["id"]),
        key=str(one["key"]),
        order=str(one["reference"]),
        state=str(one["state"]),
        created=datetime.fromisoformat(one["created_at"]),
        tracking_number=str(one.get("tracking_number") or ""),
    )


def _error(reply: Reply) -> str:
    """The carrier's name of the error, shortened because operators read it."""
    try:
        return str(json.loads(reply.body)["error"])[:100]
    except (ValueError, KeyError, TypeError):
        return "no reason given"
