"""The payment service: the part of Stripe's API that the shop uses, in its wire format.

    POST /v1/payment_intents            create; no money moves
    POST /v1/payment_intents/ID/confirm charge, once in the intent's life
    POST /v1/payment_intents/ID/cancel  and it can never be charged
    GET  /v1/payment_intents/ID, GET /v1/payment_intents/search?query=metadata['order']:'...'
    POST /v1/refunds, GET /v1/refunds?payment_intent=ID

As with Stripe the first answer under an `Idempotency-Key` is stored and replayed, refusals (402) and server errors
included; the same key with other parameters is an `idempotency_error`. In the ledger the operations are `create`,
`confirm`, `cancel` and `refund`; only `confirm` and `refund` have an amount, for only they move money.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from orders.simulators import intents
from orders.simulators.faults import Fault, Mode
from orders.simulators.intents import JSON, Problem
from orders.simulators.ledger import Entry, Ledger
from orders.simulators.web import Answer, Outcome, Request

_SEARCH = re.compile(r"""^\s*metadata\[(['"])order\1\]\s*:\s*(['"])(?P<order>[^'"]*)\2\s*$""")


@dataclass(frozen=True, kw_only=True)
class _Call:
    """One write as the ledger names it; `parameters` is the print by which a reused key is found out."""

    key: str
    parameters: str
    operation: str
    order: str | None
    shown: JSON


class Payment:
    """All payments there are."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._intents: dict[str, JSON] = {}
        self._of_order: dict[str, list[str]] = defaultdict(list)
        self._refunds: dict[str, list[JSON]] = defaultdict(list)
        self._first: dict[str, JSON] = {}  # idempotency key: the first answer

    def remember(self, memory: Mapping[str, Any]) -> None:
        """Take one ledger entry's memory over: what a request leaves behind, or what a restart finds."""
        if "first" in memory:
            self._first[memory["first"]["key"]] = memory["first"]
        if intent := memory.get("intent"):
            order = intent["metadata"].get("order")
            if order and intent["id"] not in self._intents:
                self._of_order[order].append(intent["id"])
            self._intents[intent["id"]] = intent
        if refund := memory.get("refund"):
            self._refunds[refund["payment_intent"]].append(refund)

    def handle(self, request: Request, fault: Fault, flying: int) -> Outcome:
        """Answer one call."""
        if not request.headers.get("authorization", "").startswith(("Bearer ", "Basic ")):
            return Outcome(Problem(401, "You did not provide an API key.").answer)
        try:
            if request.method == "POST":
                with self._lock:
                    return self._post(request, fault, flying)
            if request.method == "GET":
                if fault.mode is Mode.ERROR_BEFORE:
                    return Outcome(_server_error(fault))
                with self._lock:
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
                ids = self._of_order.get(found["order"], [])
                return _page("search_result", [self._intents[one] for one in reversed(ids)], request.path)
            case ["v1", "payment_intents", intent]:
                return self._intent(intent)
            case ["v1", "refunds"]:
                return _page("list", self._refunds.get(request.query.get("payment_intent", ""), [])[::-1], request.path)
        raise Problem(404, f"Unrecognized request URL (GET: {request.path}).")

    def _intent(self, intent: str) -> JSON:
        try:
            return self._intents[intent]
        except KeyError:
            message = f"No such payment_intent: '{intent}'"
            raise Problem(404, message, code="resource_missing", param="intent") from None

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
        )
        first = self._first.get(call.key) if call.key else None
        if first is not None:
            return self._replay(call, first)
        return self._execute(call, intent, form, fault)

    def _replay(self, call: _Call, first: JSON) -> Outcome:
        """The first answer again; it is an error to ask something else under its key."""
        if first["parameters"] != call.parameters:
            text = "Keys for idempotent requests can only be used with the same parameters they were first used with."
            answer = Problem(400, text, kind="idempotency_error").answer
            return Outcome(answer, written=self._append(call, said="400 idempotency_error"))
        answer = Answer(first["status"], first["body"].encode(), {"Idempotent-Replayed": "true"})
        return Outcome(answer, written=self._append(call, said=f"{first['said']} (replayed)"))

    def _execute(self, call: _Call, intent: JSON | None, form: JSON, fault: Fault) -> Outcome:
        """Do it, and store the answer under the key before a fault can lose it."""
        memory: JSON = {}
        effect, amount = False, 0
        if fault.mode is Mode.ERROR_BEFORE:
            answer = _server_error(fault)
            said = f"{answer.status} {fault.mode}"
        else:
            try:
                amount, memory = self._do(call.operation, intent, form, declined=fault.mode is Mode.DECLINE)
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
        if call.key and answer.status != 429:  # a call that was throttled never began
            memory["first"] = {
                "key": call.key,
                "parameters": call.parameters,
                "status": answer.status,
                "body": answer.body.decode(),
                "said": said,
            }
        if effect and fault.mode in (Mode.TIMEOUT_AFTER_EFFECT, Mode.RESET_AFTER_EFFECT):
            said = f"none, {fault.mode}"
        self.remember(memory)
        written = self._append(call, said=said, effect=effect, amount=amount, memory=memory)
        return Outcome(answer, changed=effect, written=written)

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
            case ["v1", "payment_intents", intent, ("confirm" | "cancel") as operation]:
                return operation, self._intent(intent)
            case ["v1", "refunds"]:
                return "refund", self._intent(form.get("payment_intent", ""))
        raise Problem(404, f"Unrecognized request URL (POST: {request.path}).")

    def _do(self, operation: str, intent: JSON | None, form: JSON, *, declined: bool) -> tuple[int, JSON]:
        """The money moved, and what to remember. Raises Problem, whose `state` is to be remembered all the same."""
        if intent is None:
            return 0, {"intent": intents.new(form)}
        match operation:
            case "confirm":
                return intent["amount"], {"intent": intents.confirm(intent, form, declined=declined)}
            case "cancel":
                return 0, {"intent": intents.cancel(intent, form)}
        refund = intents.refund(intent, self._refunds.get(intent["id"], []), form)
        return refund["amount"], {"refund": refund}


def _server_error(fault: Fault) -> Answer:
    status = fault.status or 500
    problem = Problem(status, "An error occurred on the server.", kind="api_error")
    if status not in (429, 503):
        return problem.answer
    return Answer(status, problem.answer.body, {"Retry-After": "1"})


def _page(kind: str, data: list[JSON], path: str) -> JSON:
    more: JSON = {"next_page": None} if kind == "search_result" else {}
    return {"object": kind, "data": data, "has_more": False, "url": path, **more}
