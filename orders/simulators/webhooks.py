"""Webhooks of the services: what happened is told to the shop, signed, again and again until the shop answers 2xx.

An event is part of the ledger's entry of the call that caused it, so a restart goes on telling what was not told. Pauses
between two tries grow to LONGEST_PAUSE; after GIVE_UP an event is dropped, as Stripe does after three days. `Behaviour` says how
late events come, how often each is told again, and how many never come. Events may overtake each other, as Stripe's do.

`PAYMENTS` and `PARCELS` are the forms in which payment service and carrier tell. An event has an `id` of its own and `created`.
"""

from __future__ import annotations

import hashlib
import heapq
import hmac
import json
import random
import secrets
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Any

import httpx2

from orders.simulators.behaviour import Behaviour
from orders.simulators.intents import JSON
from orders.simulators.ledger import Entry, Ledger

FIRST_PAUSE, LONGEST_PAUSE, GIVE_UP = 0.2, 10.0, 3 * 86_400.0  # seconds
PATIENCE = 5.0  # seconds for one answer
SENDERS = 4
_OBJECTS = ("intent", "refund", "dispute")  # the fields of a call's memory that hold what changed
_TYPES = {
    "succeeded": "payment_intent.succeeded",
    "requires_payment_method": "payment_intent.payment_failed",
    "canceled": "payment_intent.canceled",
    "requires_capture": "payment_intent.amount_capturable_updated",
}
_OF_OPERATION = {"dispute_closed": "charge.dispute.closed"}


def events_of(operation: str, memory: Mapping[str, Any]) -> list[JSON]:
    """The events that tell of a change, in Stripe's form. No event tells of a payment's creation."""
    if operation == "create":
        return []
    found = {name: memory[name] for name in _OBJECTS if name in memory}
    types = {
        "intent": _TYPES.get(found.get("intent", {}).get("status", "")),
        "refund": "charge.refund.updated",
        "dispute": _OF_OPERATION.get(operation, "charge.dispute.created"),
    }
    return [_event(kind, thing) for name, thing in found.items() if (kind := types[name])]


def signature(secret: str, body: bytes, at: int) -> str:
    """The value of `Stripe-Signature` for this body, sent at this time (seconds since 1970)."""
    return f"t={at},v1={hmac.new(secret.encode(), b'%d.%b' % (at, body), hashlib.sha256).hexdigest()}"


def _event(kind: str, thing: JSON) -> JSON:
    return {
        "id": f"evt_{secrets.token_hex(12)}",
        "object": "event",
        "created": int(time.time()),
        "data": {"object": thing},
        "livemode": False,
        "pending_webhooks": 1,
        "type": kind,
    }


class PaymentForm:
    """Stripe's form."""

    service = "payment"

    def content(self, event: JSON) -> JSON:
        """What is sent."""
        return event

    def headers(self, secret: str, body: bytes) -> dict[str, str]:
        """The signature of the body."""
        return {"Stripe-Signature": signature(secret, body, int(time.time()))}

    def shown(self, event: JSON) -> tuple[str | None, JSON]:
        """The event's order, and what the ledger shows."""
        return event["data"]["object"].get("metadata", {}).get("order"), {"event": event["id"], "type": event["type"]}


class ParcelForm:
    """The carrier's form: `{"id", "key", "state", "at"}`, with the shipment's id."""

    service = "carrier"

    def event(self, shipment: Mapping[str, Any], state: str) -> JSON:
        """The event that says that this shipment is in this state now."""
        at = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        content = {"id": shipment["id"], "key": shipment["key"], "state": state, "at": at}
        return {"id": f"evt_{secrets.token_hex(12)}", "created": int(time.time()), "order": shipment["reference"], "content": content}

    def content(self, event: JSON) -> JSON:
        """What is sent."""
        return dict(event["content"])

    def headers(self, secret: str, body: bytes) -> dict[str, str]:
        """The signature of the body."""
        return {"X-Signature": f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"}

    def shown(self, event: JSON) -> tuple[str | None, JSON]:
        """The event's order, and what the ledger shows."""
        return event["order"], {"event": event["id"], "type": event["content"]["state"]}


PAYMENTS, PARCELS = PaymentForm(), ParcelForm()


class Teller:
    """Tells one service's events to one address, from threads of its own. Without an address it tells, and remembers, nothing."""

    def __init__(
        self, ledger: Ledger, behaviour: Behaviour, *, url: str = "", secret: str = "", form: PaymentForm | ParcelForm = PAYMENTS
    ) -> None:
        self._ledger, self._behaviour, self._form = ledger, behaviour, form
        self.url, self.secret = url, secret
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, JSON, int]] = []  # time, number, event, tries so far
        self._number = count()
        self._waiting: dict[str, JSON] = {}  # while the ledger is read
        self._closed = False
        self._client = httpx2.Client(timeout=PATIENCE, trust_env=False)
        self._threads = [threading.Thread(target=self._tell, name=f"webhooks-{n}", daemon=True) for n in range(SENDERS)]

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Apply one ledger entry when a restart reads the ledger."""
        for event in memory.get("events", ()):
            self._waiting[event["id"]] = event
        self._waiting.pop(str(memory.get("told", "")), None)

    def start(self) -> None:
        """Begin to tell, first what an earlier process has not told."""
        if self.url:
            self.put(list(self._waiting.values()))
        self._waiting.clear()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop telling. What is not told stays in the ledger for the next start."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(PATIENCE + 1)
        self._client.close()

    def put(self, events: list[JSON]) -> None:
        """Tell these events, each as late and as often as the behaviour says."""
        now = time.time()
        with self._changed:
            for event in events:
                if random.random() < self._behaviour.webhooks_lost:  # noqa: S311 - a simulated loss
                    continue
                for _again in range(1 + self._behaviour.webhooks_repeated):
                    at = now + random.uniform(0, self._behaviour.webhooks_late)  # noqa: S311 - a simulated delay
                    heapq.heappush(self._due, (at, next(self._number), event, 0))
            self._changed.notify_all()

    def _next(self) -> tuple[JSON, int] | None:
        with self._changed:
            while not self._closed:
                left = self._due[0][0] - time.time() if self._due else None
                if left is not None and left <= 0:
                    _at, _number, event, tries = heapq.heappop(self._due)
                    return event, tries
                self._changed.wait(left)
        return None

    def _tell(self) -> None:
        while (following := self._next()) is not None:
            event, tries = following
            if self._told(event):
                self._note(event)
            elif time.time() - event["created"] < GIVE_UP:
                pause = min(FIRST_PAUSE * 2 ** min(tries, 10), LONGEST_PAUSE)
                with self._changed:
                    heapq.heappush(self._due, (time.time() + pause, next(self._number), event, tries + 1))

    def _told(self, event: JSON) -> bool:
        body = json.dumps(self._form.content(event)).encode()
        headers = {"Content-Type": "application/json", **self._form.headers(self.secret, body)}
        try:
            return bool(self._client.post(self.url, content=body, headers=headers).is_success)
        except httpx2.HTTPError:
            return False

    def _note(self, event: JSON) -> None:
        order, shown = self._form.shown(event)
        self._ledger.append(
            Entry(
                service=self._form.service,
                key="",
                order=order,
                operation="webhook",
                effect=False,
                answer="2xx",
                extra=shown,
                memory={"told": event["id"]},
            )
        )
