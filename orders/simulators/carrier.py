"""The carrier: books shipments and deletes them by key.

    POST   /v1/shipments            201 {"id", "tracking_number"}; the same key gives the same answer; 410 once deleted
    GET    /v1/shipments/by-key/KEY 200 or 404
    DELETE /v1/shipments/by-key/KEY 204, also for a key never seen: it can never be booked afterwards
    GET    /v1/shipments/ID         200 with its `state`, or 404
    DELETE /v1/shipments/ID         204: deletes only this one, even if its key has others
    GET    /v1/shipments?since=&cursor=&limit=
                                    200 {"results": [{"id", "key", "reference", "state", "created_at", "changed_at", "tracking_number"}],
                                         "next"}
                                    oldest first; `state` is booked, picked_up, delivered, returned or deleted
    GET    /v1/rates?country=IT     200 {"country", "serviceable", "days": [least, most] or null}

An address with the postal code 00000, or in Antarctica (AQ), on Bouvet Island (BV) or on Heard Island (HM), is not
serviceable. In the ledger the operations are `create`, `delete`, `forget` and the states of parcels that the control call
`POST /shipments/ID/STATE` moves; each such move is told to the shop (`webhooks`). `forget` is the control call after which a
repeated key books again. Reading rates leaves no entry in the ledger.
"""

from __future__ import annotations

import secrets
import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from orders.simulators.faults import Fault, Mode
from orders.simulators.ledger import Entry, Ledger
from orders.simulators.web import Answer, Outcome, Request
from orders.simulators.webhooks import PARCELS, Teller

PAGE = 100
OLD = "1970-01-01T00:00:00Z"  # creation time of entries by an old version, which did not store it
NOT_SERVED_COUNTRIES = frozenset({"AQ", "BV", "HM"})
NOT_SERVED_POSTAL_CODE = "00000"
JOURNEY = ("picked_up", "delivered", "returned")
HOME = "IT"
NEARBY = frozenset(
    "AD AT BE BG CH CY CZ DE DK EE ES FI FR GB GR HR HU IE LI LT LU LV MC MT NL NO PL PT RO SE SI SK SM VA".split()  # noqa: SIM905
)


class Unclear(Exception):
    """The booking is not valid; the message says why."""


class Carrier:
    """The carrier's service: all shipments."""

    def __init__(self, ledger: Ledger, teller: Teller) -> None:
        self._ledger, self.teller = ledger, teller
        self._lock = threading.Lock()
        self._all: list[dict[str, Any]] = []
        self._shipments: dict[str, list[dict[str, Any]]] = defaultdict(list)  # by key
        self._answered: set[str] = set()  # the keys whose first answer is replayed
        self._deleted: set[str] = set()  # keys
        self._ended: set[str] = set()  # ids, deleted one by one
        self._by_id: dict[str, dict[str, Any]] = {}
        self._moved: dict[str, tuple[str, str]] = {}  # by id: state, time

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Apply one ledger entry's memory to the state: after a request, or when a restart reads the ledger."""
        if shipment := memory.get("shipment"):
            self._all.append(shipment)
            self._by_id[shipment["id"]] = shipment
            self._shipments[shipment["key"]].append(shipment)
            self._answered.add(shipment["key"])
        if moved := memory.get("moved"):
            self._moved[moved["id"]] = moved["state"], moved["at"]
        self.teller.remember(memory)
        if "ended" in memory:
            self._ended.add(memory["ended"])
        if "forgot" in memory:
            self._answered.clear()
        if "deleted" in memory:
            self._deleted.add(memory["deleted"])

    def about(self, request: Request) -> dict[str, str]:
        """The call's order and postal code, for faults that affect only some calls."""
        told = {"order": request.headers.get("x-order-id", "")}
        with suppress(ValueError, TypeError, KeyError):
            told["postal_code"] = str(request.json()["to"]["postal_code"])
        return told

    def handle(self, request: Request, fault: Fault, flying: int) -> Outcome:
        """Answer one call."""
        match request.method, request.parts():
            case "POST", ["v1", "shipments"]:
                with self._lock:
                    return self._book(request, fault, flying)
            case "GET", ["v1", "shipments"]:
                if fault.mode is Mode.ERROR_BEFORE:
                    return Outcome(_unavailable(fault))
                with self._lock:
                    return self._list(request.query)
            case "GET", ["v1", "shipments", "by-key", key]:
                if fault.mode is Mode.ERROR_BEFORE:
                    return Outcome(_unavailable(fault))
                with self._lock:
                    return self._find(key)
            case "GET", ["v1", "shipments", name]:
                if fault.mode is Mode.ERROR_BEFORE:
                    return Outcome(_unavailable(fault))
                with self._lock:
                    return self._show(name)
            case "DELETE", ["v1", "shipments", name]:
                with self._lock:
                    return self._delete_one(name, fault, flying)
            case "DELETE", ["v1", "shipments", "by-key", key]:
                with self._lock:
                    return self._delete(request, key, fault, flying)
            case "GET", ["v1", "rates"]:
                return Outcome(_unavailable(fault) if fault.mode is Mode.ERROR_BEFORE else _rates(request.query.get("country", "")))
        return Outcome(Answer.json(404, {"error": "not_found", "message": f"{request.method} {request.path} is unknown"}))

    def _find(self, key: str) -> Outcome:
        shipment = self._standing(key)
        if shipment is None:
            return Outcome(Answer.json(404, {"error": "not_found"}), written=self._ledger.settled())
        return Outcome(Answer.json(200, shipment), written=self._ledger.settled())

    def _list(self, query: Mapping[str, str]) -> Outcome:
        """One page of all shipments. The cursor is an index, and stays valid because new shipments are only appended."""
        limit, cursor = query.get("limit", str(PAGE)), query.get("cursor", "")
        try:
            since = datetime.fromisoformat(query["since"]) if query.get("since") else None
        except ValueError:
            return Outcome(Answer.json(400, {"error": "invalid_request", "message": "since: expected an ISO 8601 time"}))
        if since and not since.tzinfo:
            since = since.replace(tzinfo=UTC)
        if not limit.isdecimal() or not 1 <= int(limit) <= PAGE or not (cursor or "0").isdecimal():
            return Outcome(Answer.json(400, {"error": "invalid_request", "message": f"limit: 1 to {PAGE}; cursor: as given in `next`"}))
        first = int(cursor) if cursor else bisect_left(self._all, since, key=_created) if since else 0
        page = self._all[first : first + int(limit)]
        end = first + len(page)
        answer = {"results": [self._listed(one) for one in page], "next": str(end) if end < len(self._all) else None}
        return Outcome(Answer.json(200, answer), written=self._ledger.settled())

    def _listed(self, one: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "id": one["id"],
            "key": one["key"],
            "reference": one["reference"],
            "state": self._state(one),
            "created_at": one.get("created_at", OLD),
            "changed_at": self._moved.get(one["id"], ("", one.get("created_at", OLD)))[1],
            "tracking_number": one["tracking_number"],
        }

    def _standing(self, key: str) -> dict[str, Any] | None:
        """The newest shipment under this key that was not deleted."""
        return next((one for one in reversed(self._shipments.get(key, ())) if self._state(one) != "deleted"), None)

    def _state(self, shipment: Mapping[str, Any]) -> str:
        if shipment["key"] in self._deleted or shipment["id"] in self._ended:
            return "deleted"
        return self._moved.get(shipment["id"], ("booked", ""))[0]

    def _show(self, name: str) -> Outcome:
        shipment = self._by_id.get(name)
        answer = Answer.json(200, self._listed(shipment)) if shipment else Answer.json(404, {"error": "not_found"})
        return Outcome(answer, written=self._ledger.settled())

    def _delete_one(self, name: str, fault: Fault, flying: int) -> Outcome:
        shipment = self._by_id.get(name)
        if shipment is None:
            return Outcome(Answer.json(404, {"error": "not_found"}), written=self._ledger.settled())
        key, order = shipment["key"], shipment["reference"]
        if fault.mode is Mode.ERROR_BEFORE:
            return self._report(key, order, "delete", fault, flying, _unavailable(fault), False, False, {})
        new = self._state(shipment) != "deleted"
        return self._report(key, order, "delete", fault, flying, Answer(204), new, new, {"ended": name} if new else {})

    def forget(self) -> Future[None]:
        """Forget which keys were answered, so that a repeated key books again. Bookings and deletions are kept."""
        with self._lock:
            memory = {"forgot": True}
            self.remember(memory)
            entry = Entry(service="carrier", key="", order=None, operation="forget", effect=False, answer="", memory=memory)
            return self._ledger.append(entry)

    def move(self, name: str, state: str) -> Outcome:
        """The parcel travels on: picked_up, delivered or returned. It is told to the shop, also if the state is not new."""
        with self._lock:
            shipment = self._by_id.get(name)
            if shipment is None:
                return Outcome(Answer.json(404, {"error": "not_found"}))
            event = PARCELS.event(shipment, state)
            memory: dict[str, Any] = {"moved": {"id": name, "state": state, "at": event["content"]["at"]}}
            if self.teller.url:
                memory["events"] = [event]
            self._moved[name] = state, event["content"]["at"]
            entry = Entry(
                service="carrier",
                key=shipment["key"],
                order=shipment["reference"],
                operation=state,
                effect=True,
                answer="",
                memory=memory,
            )
            written = self._ledger.append(entry)
            if self.teller.url:
                written.add_done_callback(lambda _: self.teller.put([event]))
            return Outcome(Answer.json(200, self._listed(shipment)), written=written)

    def _book(self, request: Request, fault: Fault, flying: int) -> Outcome:
        key = request.headers.get("idempotency-key", "")
        try:
            order, to, items = _read(request, key)
        except Unclear as problem:
            return Outcome(Answer.json(400, {"error": "invalid_request", "message": str(problem)}))
        shipment, said = self._shipments[key][-1] if key in self._answered else None, ""
        effect = False
        if fault.mode is Mode.ERROR_BEFORE:
            answer = _unavailable(fault)
        elif key in self._deleted:
            answer = Answer.json(410, {"error": "deleted", "message": "This key was deleted."})
        elif shipment is not None:
            answer, said = _booked(shipment), "201 (replayed)"
        elif fault.mode is Mode.DECLINE or not _serviceable(to):
            answer, said = Answer.json(422, {"error": "address_not_serviceable"}), "422 address_not_serviceable"
        else:
            effect = True
            shipment = {
                "id": f"shp_{secrets.token_hex(10)}",
                "tracking_number": f"SIM{secrets.randbelow(10**12):012d}",
                "key": key,
                "reference": order,
                "to": to,
                "items": items,
                "created_at": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            }
            answer = _booked(shipment)
        memory = {"shipment": shipment} if effect else {}
        return self._report(key, order, "create", fault, flying, answer, effect, effect, memory, said)

    def _delete(self, request: Request, key: str, fault: Fault, flying: int) -> Outcome:
        shipment = next(reversed(self._shipments.get(key, ())), None)
        standing = self._standing(key) is not None
        order = shipment["reference"] if shipment else request.headers.get("x-order-id")
        if fault.mode is Mode.ERROR_BEFORE:
            return self._report(key, order, "delete", fault, flying, _unavailable(fault), False, False, {})
        new = key not in self._deleted
        said = "" if shipment else "204 (never booked)"
        memory = {"deleted": key} if new else {}
        return self._report(key, order, "delete", fault, flying, Answer(204), new, new and standing, memory, said)

    def _report(
        self,
        key: str,
        order: str | None,
        operation: str,
        fault: Fault,
        flying: int,
        answer: Answer,
        changed: bool,
        effect: bool,
        memory: Mapping[str, Any],
        said: str = "",
    ) -> Outcome:
        if changed and fault.mode is Mode.ERROR_AFTER_EFFECT:
            answer = Answer.json(500, {"error": "server_error"})
            said = f"500 {fault.mode}"
        elif changed and fault.mode in (Mode.TIMEOUT_AFTER_EFFECT, Mode.RESET_AFTER_EFFECT):
            said = f"none, {fault.mode}"
        self.remember(memory)
        entry = Entry(
            service="carrier",
            key=key,
            order=order,
            operation=operation,
            effect=effect,
            answer=said or str(answer.status),
            extra={"in_flight": flying},
            memory=memory,
        )
        return Outcome(answer, changed=changed, written=self._ledger.append(entry))


def _read(request: Request, key: str) -> tuple[str, dict[str, Any], list[Any]]:
    """The order's reference, the address and the items. Raises Unclear."""
    try:
        body = request.json()
    except ValueError:
        raise Unclear("the body is not JSON") from None
    if not key:
        raise Unclear("Idempotency-Key is missing")
    if not isinstance(body, dict):
        raise Unclear("expected a JSON object")
    reference, to, items = body.get("reference"), body.get("to"), body.get("items")
    if not isinstance(reference, str) or not reference:
        raise Unclear("reference: expected a string")
    if not isinstance(to, dict) or not to:
        raise Unclear("to: expected an address")
    if not isinstance(items, list) or not items:
        raise Unclear("items: expected a list that is not empty")
    for item in items:
        if not isinstance(item, dict) or not isinstance(item.get("sku"), str) or not isinstance(item.get("quantity"), int):
            raise Unclear("items: expected objects with sku and quantity")
    return reference, to, items


def _created(shipment: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(shipment.get("created_at", OLD))


def _rates(country: str) -> Answer:
    if len(country) != 2 or not (country.isascii() and country.isalpha()):
        return Answer.json(400, {"error": "invalid_request", "message": "country: expected two letters"})
    country = country.upper()
    days = [1, 2] if country == HOME else [2, 4] if country in NEARBY else [5, 10]
    serviceable = country not in NOT_SERVED_COUNTRIES
    return Answer.json(200, {"country": country, "serviceable": serviceable, "days": days if serviceable else None})


def _serviceable(to: Mapping[str, Any]) -> bool:
    country = str(to.get("country", "")).upper()
    return country not in NOT_SERVED_COUNTRIES and to.get("postal_code") != NOT_SERVED_POSTAL_CODE


def _booked(shipment: Mapping[str, Any]) -> Answer:
    return Answer.json(201, {"id": shipment["id"], "tracking_number": shipment["tracking_number"]})


def _unavailable(fault: Fault) -> Answer:
    status = fault.status or 503
    retry = {"Retry_After": "1"} if status in (429, 503) else {}
    return Answer.json(status, {"error": "unavailable"}, **retry)
