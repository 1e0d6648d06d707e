"""The bank's page, on which a customer confirms or refuses a payment with a second factor.

GET  /bank/INTENT           the page
POST /bank/INTENT/confirm   the customer agrees: the payment is charged; then back to the shop
POST /bank/INTENT/refuse    the customer refuses: nothing is charged; then back to the shop
"""

from __future__ import annotations

from decimal import Decimal
from urllib.parse import urlsplit

from django.template.loader import render_to_string

from orders.simulators.intents import ACTION, JSON, Problem
from orders.simulators.payment import Payment
from orders.simulators.web import Answer, Request

HTML = "text/html; charset=utf-8"
# The decimals of an intent's amount; two, if the currency is not among these.
DECIMALS = {
    **dict.fromkeys(["bif", "clp", "djf", "gnf", "jpy", "kmf", "krw", "mga", "pyg", "rwf", "vnd", "vuv", "xaf", "xof", "xpf"], 0),
    **dict.fromkeys(["bhd", "jod", "kwd", "omr", "tnd"], 3),
}


def answer(payment: Payment, request: Request) -> Answer:
    """The page, or the way back to the shop after the customer's answer. Unknown payments get 404."""
    try:
        match request.method, request.parts():
            case "GET", ["bank", name]:
                return _page(200, payment.intent(name))
            case "POST", ["bank", name, ("confirm" | "refuse") as word]:
                return _answered(payment, name, agrees=word == "confirm")
    except Problem as problem:
        return _page(problem.answer.status, None)
    return _page(404, None)


def _answered(payment: Payment, name: str, *, agrees: bool) -> Answer:
    back = _way_back(payment.intent(name))
    try:
        outcome = payment.authenticate(name, agrees=agrees)
    except Problem:
        return _page(409, payment.intent(name))  # answered before, or cancelled meanwhile
    if outcome.written is not None:
        outcome.written.result()
    return Answer(303, headers={"Location": back}) if back else _page(200, payment.intent(name))


def _way_back(intent: JSON) -> str:
    """The shop's address, if the shop gave one that a browser can be sent to."""
    url = str(((intent["next_action"] or {}).get("redirect_to_url") or {}).get("return_url") or "")
    return url if urlsplit(url).scheme in ("http", "https") and url.isprintable() and url.isascii() and " " not in url else ""


def _page(status: int, intent: JSON | None) -> Answer:
    facts: JSON = {"intent": intent, "asks": intent is not None and intent["status"] == ACTION}
    if intent is not None:
        facts["amount"] = str(Decimal(intent["amount"]).scaleb(-DECIMALS.get(intent["currency"], 2)))
        facts["currency"] = intent["currency"].upper()
    return Answer(status, render_to_string("orders/simulators/bank.html", facts).encode(), content_type=HTML)
