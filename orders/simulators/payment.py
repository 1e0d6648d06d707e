"""The payment service: the part of Stripe's API that the shop uses, in its wire format.

    POST /v1/payment_intents            create; no money moves
    POST /v1/payment_intents/ID/confirm charge or reserve; succeeds at most once per intent
    POST /v1/payment_intents/ID/capture charge what `capture_method=manual` has reserved; succeeds at most once per intent
    POST /v1/payment_intents/ID/cancel  cancel; the intent can never be charged then, and what it reserved is released
    GET  /v1/payment_intents/ID, GET /v1/payment_intents/search?query=metadata['order']:'...'
    GET  /v1/payment_intents?created[gte]=&limit=&starting_after=
    POST /v1/refunds, GET /v1/refunds?payment_intent=&created[gte]=&limit=&starting_after=, GET /v1/refunds/ID
    GET  /v1/disputes, likewise

As with Stripe, the first answer under an `Idempotency-Key` is stored and replayed, refusals (402) and server errors
included; the same key with other parameters is an `idempotency_error`. In the ledger the operations are `create`,
`confirm`, `capture`, `cancel` and `refund`. Later changes and control calls are in the ledger too: `authenticate` (the customer
answers on the bank's page), `expire` (a reserved amount lapses), `refund_succeeded`, `refund_failed` (the shop has the money
again), `dispute`, `dispute_closed`, `forget`.
Only what moves money, or was refused to, has an amount. The confirmation of a card with a second factor
(`pm_card_threeDSecure2Required`) moves none: it gives the intent a page of `bank`.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from orders.simulators import intents
from orders.simulators.accounts import Accounts
from orders.simulators.behaviour import Behaviour
from orders.simulators.faults import Fault, Mode
from orders.simulators.intents import JSON, Problem
from orders.simulators.ledger import Entry, Ledger
from orders.simulators.listing import MOST, Book
from orders.simulators.web import Answer, Outcome, Request
from orders.simulators.webhooks import Teller, events_of

_SEARCH = re.compile(r"""^\s*metadata\[(['"])order\1\]\s*:\s*(['"])(?P<order>(?:[^'"\\]|\\.)*)\2\s*$""")


@dataclass(frozen=True, kw_only=True)
class _Call:
    """One write, with its fields for the ledger. `parameters` is a hash that shows whether a key is reused for another call."""

    key: str
    parameters: str
    operation: str
    order: str | None
    shown: JSON
    bank: str = ""


class Payment:
    """The payment service: all payments."""

    def __init__(self, ledger: Ledger, behaviour: Behaviour, teller: Teller | None = None) -> None:
        self._ledger, self._behaviour = ledger, behaviour
        self.teller = teller or Teller(ledger, behaviour)
        self._lock = threading.Lock()
        self._accounts = Accounts()

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Apply one ledger entry's memory to the state: after a request, or when a restart reads the ledger."""
        self._accounts.remember(memory)
        self.teller.remember(memory)

    def about(self, request: Request) -> dict[str, str]:
        """The call's order, for faults that affect only some calls."""
        with suppress(ValueError, Problem):
            form = request.form()
            parts = request.parts()
            name = parts[2] if parts[1:2] == ["payment_intents"] and parts[2:3] not in ([], ["search"]) else form.get("payment_intent")
            order = self._intent(name)["metadata"].get("order") if name else form.get("metadata[order]")
            return {"order": order or ""}
        return {}

    def handle(self, request: Request, fault: Fault, flying: int) -> Outcome:
        """Answer one call."""
        if not request.headers.get("authorization", "").startswith(("Bearer ", "Basic ")):
            return Outcome(Problem(401, "You did not provide an API key.").answer)
        try:
            if request.method == "POST":
                with self._lock:
                    self._settle_due()
                    return self._post(request, fault, flying)
            if request.method == "GET":
                if fault.mode is Mode.ERROR_BEFORE:
                    return Outcome(_server_error(fault))
                with self._lock:
                    self._settle_due()
                    return Outcome(Answer.json(200, self._get(request)), written=self._ledger.settled())
        except Problem as problem:
            return Outcome(problem.answer)
        return Outcome(Problem(405, f"{request.method} is not supported here.").answer)

    # --- reading ----------------------------------------------------------------------------------------------------

    def _get(self, request: Request) -> JSON:
        match request.parts():
            case ["v1", "payment_intents", "search"]:
                found = _SEARCH.match(request.query.get("query", ""))
                if not found:
                    raise Problem(400, "The simulator searches by metadata['order']:'...' only.", param="query")
                return self._search(re.sub(r"\\(.)", r"\1", found["order"]), request)
            case ["v1", ("payment_intents" | "refunds" | "disputes") as kind]:
                return self._book(kind).page(request.query, request.path)
            case ["v1", ("payment_intents" | "refunds" | "disputes") as kind, name]:
                return self._book(kind).get(name, "intent" if kind == "payment_intents" else "id")
        raise Problem(404, f"Unrecognized request URL (GET: {request.path}).")

    def _book(self, kind: str) -> Book:
        accounts = self._accounts
        return {"payment_intents": accounts.intents, "refunds": accounts.refunds, "disputes": accounts.disputes}[kind]

    def _search(self, order: str, request: Request) -> JSON:
        """A page of the search. Stripe's page tokens are opaque; here they are the number of results shown before."""
        limit, page = request.query.get("limit", "10"), request.query.get("page", "0")
        if not limit.isdecimal() or not 1 <= int(limit) <= MOST or not page.isdecimal():
            raise Problem(400, "Invalid limit or page.", param="limit")
        found = self._accounts.found(order, self._behaviour.search_lag)
        end = int(page) + int(limit)
        more = end < len(found)
        data = found[int(page) : end]
        return {"object": "search_result", "data": data, "has_more": more, "url": request.path, "next_page": str(end) if more else None}

    def _intent(self, intent: str) -> JSON:
        return self._accounts.intents.get(intent, "intent")

    # --- writing ----------------------------------------------------------------------------------------------------

    def _post(self, request: Request, fault: Fault, flying: int) -> Outcome:
        try:
            form = request.form()
        except ValueError:
            raise Problem(400, "The form cannot be read.") from None
        operation, intent = self._route(request, form)
        call = _Call(
            key=request.headers.get("idempotency-key", ""),
            parameters=hashlib.sha256(json.dumps([request.path, sorted(form.items())]).encode()).hexdigest(),
            operation=operation,
            order=(intent["metadata"] if intent else {"order": form.get("metadata[order]")}).get("order")
            or request.headers.get("x-order-id"),
            shown={"intent": intent["id"] if intent else None, "in_flight": flying},
            bank=f"http://{request.headers.get('host', '127.0.0.1')}/bank",
        )
        first = self._accounts.first.get(call.key) if call.key else None
        if first is not None:
            return self._replay(call, first)
        return self._execute(call, intent, form, fault)

    def _replay(self, call: _Call, first: JSON) -> Outcome:
        """The first answer again, or an error if the key was first used with other parameters."""
        if first["parameters"] != call.parameters:
            text = "Keys for idempotent requests can only be used with the same parameters they were first used with."
            answer = Problem(400, text, kind="idempotency_error").answer
            return Outcome(answer, written=self._append(call, said="400 idempotency_error"))
        answer = Answer(first["status"], first["body"].encode(), {"Idempotent-Replayed": "true"})
        return Outcome(answer, written=self._append(call, said=f"{first['said']} (replayed)"))

    def _execute(self, call: _Call, intent: JSON | None, form: JSON, fault: Fault) -> Outcome:
        """Carry out the call, and store the answer under its key before a fault can lose it."""
        memory: JSON = {}
        effect, amount = False, 0
        if fault.mode is Mode.ERROR_BEFORE:
            answer = _server_error(fault)
            said = f"{answer.status} {fault.mode}"
        else:
            try:
                amount, memory = self._do(call, intent, form, fault)
            except Problem as problem:
                amount, memory, answer = problem.amount, dict(problem.state), problem.answer
                said = f"{answer.status} {problem.code}"
            else:
                body = memory.get("refund") or memory["intent"]
                effect, answer, said = True, Answer.json(200, body), f"200 {body['status']}"
                call.shown["intent"] = intent["id"] if intent else body["id"]
        if effect and fault.mode is Mode.ERROR_AFTER_EFFECT:
            answer = _server_error(fault)
            said = f"{answer.status} {fault.mode}"
        if call.key and answer.status not in (401, 403, 429):  # a call that was throttled or not authorised stores no answer
            memory["first"] = {
                "key": call.key,
                "parameters": call.parameters,
                "status": answer.status,
                "body": answer.body.decode(),
                "said": said,
            }
        if effect and fault.mode in (Mode.TIMEOUT_AFTER_EFFECT, Mode.RESET_AFTER_EFFECT):
            said = f"none, {fault.mode}"
        written = self._changed(call, said=said, effect=effect, amount=amount, memory=memory)
        return Outcome(answer, changed=effect, written=written)

    def _changed(self, call: _Call, *, said: str, effect: bool, amount: int, memory: JSON) -> Future[None]:
        """Store a new state, and tell of it."""
        self._accounts.remember(memory)
        events = events_of(call.operation, memory) if self.teller.url else []
        written = self._append(call, said=said, effect=effect, amount=amount, memory={**memory, "events": events} if events else memory)
        if events:
            written.add_done_callback(lambda _: self.teller.put(events))
        return written

    def _append(self, call: _Call, *, said: str, effect: bool = False, amount: int = 0, memory: JSON | None = None) -> Future[None]:
        return self._ledger.append(
            Entry(
                service="payment",
                key=call.key,
                order=call.order,
                operation=call.operation,
                amount=amount,
                effect=effect,
                answer=said,
                extra=call.shown,
                memory=memory or {},
            )
        )

    def _route(self, request: Request, form: JSON) -> tuple[str, JSON | None]:
        match request.parts():
            case ["v1", "payment_intents"]:
                return "create", None
            case ["v1", "payment_intents", intent, ("confirm" | "capture" | "cancel") as operation]:
                return operation, self._intent(intent)
            case ["v1", "refunds"]:
                return "refund", self._intent(form.get("payment_intent", ""))
        raise Problem(404, f"Unrecognized request URL (POST: {request.path}).")

    def _do(self, call: _Call, intent: JSON | None, form: JSON, fault: Fault) -> tuple[int, JSON]:
        """The amount moved, and the new state. Raises Problem, whose `state` must be stored too."""
        if intent is None:
            return 0, {"intent": intents.new(form), "at": time.time()}
        match call.operation:
            case "confirm":
                charged = intents.confirm(intent, form, declined=fault.mode is Mode.DECLINE, bank=call.bank)
                disputed = charged["payment_method"] == "pm_card_createDispute"
                more = {"dispute": intents.dispute(charged)} if disputed and charged["amount_received"] else {}
                return charged["amount_received"], {"intent": charged, **self._until(charged), **more}
            case "capture":
                captured = intents.capture(intent, form)
                return captured["amount_received"], {"intent": captured}
            case "cancel":
                return 0, {"intent": intents.cancel(intent, form)}
        fails = fault.mode is Mode.REFUND_FAILS
        disputed = any(one["status"] not in ("won", "warning_closed") for one in self._accounts.disputes.of(intent["id"]))
        refund, later = intents.refund(intent, self._accounts.refunds.of(intent["id"]), form, fails=fails, disputed=disputed)
        memory: JSON = {"refund": refund}
        if later:
            seconds = self._behaviour.refund_settles if fault.latency_ms is None or not fails else fault.latency_ms / 1000
            memory["later"] = {"refund": refund["id"], "status": later, "at": time.time() + seconds}
        return refund["amount"], memory

    # --- what happens without a request -----------------------------------------------------------------------------

    def _settle_due(self) -> None:
        for refund in self._accounts.due():
            self._settle(refund)
        for intent in self._accounts.lapsed():
            self._happened("expire", intent, {"intent": intent})

    def _settle(self, refund: JSON) -> None:
        failed = refund["status"] == "failed"
        operation = "refund_failed" if failed else "refund_succeeded"
        self._happened(operation, refund, {"refund": refund}, refund["amount"] if failed else 0)

    def _happened(self, operation: str, of: JSON, memory: JSON, amount: int = 0) -> Future[None]:
        intent = self._intent(of.get("payment_intent") or of["id"])
        call = _Call(key="", parameters="", operation=operation, order=intent["metadata"].get("order"), shown={"intent": intent["id"]})
        return self._changed(call, said=of["status"], effect=True, amount=amount, memory=memory)

    def _until(self, intent: JSON) -> JSON:
        """The memory of when a reserved amount lapses; empty for any other payment."""
        if intent["status"] != intents.RESERVED:
            return {}
        return {"lapses": {"intent": intent["id"], "at": time.time() + self._behaviour.reserved_for}}

    def intent(self, name: str) -> JSON:
        """A payment in its present state. Raises Problem if there is none."""
        with self._lock:
            return self._intent(name)

    def authenticate(self, name: str, *, agrees: bool) -> Outcome:
        """Let the customer answer the bank. Raises Problem if the bank does not ask, or no longer."""
        with self._lock:
            answered = intents.authenticate(self._intent(name), agrees=agrees)
            memory = {"intent": answered, **self._until(answered)}
            written = self._happened("authenticate", answered, memory, answered["amount_received"])
            return Outcome(Answer.json(200, answered), changed=True, written=written)

    def expire(self, name: str) -> Outcome:
        """Let a reserved amount lapse now. Raises Problem if nothing is reserved."""
        with self._lock:
            intent = intents.expired(self._intent(name))
            return Outcome(Answer.json(200, intent), written=self._happened("expire", intent, {"intent": intent}))

    def fail_refund(self, name: str) -> Outcome:
        """Let a refund fail that is pending or has succeeded so far."""
        with self._lock:
            refund = intents.settled(self._accounts.refunds.get(name, "id"), "failed")
            self._settle(refund)
            return Outcome(Answer.json(200, refund), written=self._ledger.settled())

    def dispute(self, intent: str, reason: str) -> Outcome:
        """Let the customer dispute a charge."""
        with self._lock:
            dispute = intents.dispute(self._intent(intent), reason)
            written = self._happened("dispute", dispute, {"dispute": dispute}, dispute["amount"])
            return Outcome(Answer.json(200, dispute), written=written)

    def close_dispute(self, name: str, status: str) -> Outcome:
        """Let the bank decide: `won` or `lost`, as the shop sees it."""
        with self._lock:
            dispute = {**self._accounts.disputes.get(name, "id"), "status": status}
            return Outcome(Answer.json(200, dispute), written=self._happened("dispute_closed", dispute, {"dispute": dispute}))

    def forget(self) -> Future[None]:
        """Forget every idempotency key, as the service does after a day or more."""
        with self._lock:
            memory = {"forgot": True}
            self.remember(memory)
            return self._append(_Call(key="", parameters="", operation="forget", order=None, shown={}), said="", memory=memory)


def _server_error(fault: Fault) -> Answer:
    status = fault.status or 500
    problem = Problem(status, "An error occurred on the server.", kind="api_error")
    if status not in (429, 503):
        return problem.answer
    return Answer(status, problem.answer.body, {"Retry-After": "1"})
