"""The shop's actions. An order is placed once its submission is committed; the engine does the rest.

Prices and totals are always the server's. The total that the customer saw is only compared with it. An idempotency key
that was used before gives its first answer again, even if prices, stock or permissions have changed since. After an erasure it gives
the order as it is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.utils.translation import gettext as _
from rest_framework.exceptions import ValidationError

from orders import queries
from orders.payments.codes import AFTER_BOOKING, BANK_TRANSFER
from orders.validation import MAX_QUANTITY, MAX_TOTAL, key_problem, merged, read_order
from supervision.approvals import rights
from supervision.intake.submission import Accepted, NewSubmission, accept, new_public_id, under_key
from supervision.models import Submission
from supervision.operations import operator_verbs
from supervision.operations.audit_log import Exempt
from supervision.outbox import subscriptions
from supervision.postgres import db
from supervision.privacy.erasing import ERASED

HIGH_PRIORITY = "orders.high_priority"
PATIENCE_SECONDS = 5.0  # short, because the client waits for the answer


@dataclass(frozen=True, kw_only=True)
class Item:
    """One order request as it was received."""

    data: Mapping[str, Any]
    idempotency_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A committed order. `answer` is the order answer at its acceptance: a replay returns exactly the same."""

    public_id: str
    answer: dict[str, Any]
    replayed: bool


class OrderRefused(Exception):
    """An order request that was not accepted; nothing was written."""


class InvalidOrder(OrderRefused):
    """The request itself is wrong.

    `errors` has the request's own shape: messages by field name, lines by their index: {"lines": {1: {"sku": [...]}}}.
    """

    def __init__(self, errors: Mapping[str, Any]) -> None:
        self.errors = dict(errors)
        super().__init__(str(_("The order request is not valid.")))


class NotAllowed(InvalidOrder):
    """The request is well formed, but this account may not ask for it."""


class Conflict(OrderRefused):
    """The request no longer fits the catalogue: the price or the stock changed. `facts` has the present values."""

    def __init__(self, code: str, message: str, errors: Mapping[str, Any], facts: Mapping[str, Any] | None = None) -> None:
        self.code, self.message, self.errors, self.facts = code, message, dict(errors), dict(facts or {})
        super().__init__(message)


class KeyReused(OrderRefused):
    """This idempotency key was used before, for another request."""

    def __init__(self) -> None:
        super().__init__(str(_("This idempotency key was used before, for another request.")))


Outcome = Placed | InvalidOrder | Conflict | KeyReused


@dataclass
class _Candidate:
    """An item in the course of its checks: the results so far."""

    item: Item
    wanted: dict[str, int] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    request: dict[str, Any] = field(default_factory=dict)
    refusal: InvalidOrder | Conflict | KeyReused | None = None


def place_order(data: Mapping[str, Any], *, account: AbstractBaseUser | None, idempotency_key: str | None = None) -> Placed:
    """Place one order. Raises InvalidOrder, Conflict or KeyReused; then nothing was written."""
    outcome = place_orders([Item(data=data, idempotency_key=idempotency_key)], account=account)[0]
    if isinstance(outcome, Placed):
        return outcome
    raise outcome


def place_orders(items: Sequence[Item], *, account: AbstractBaseUser | None) -> list[Outcome]:
    """Place many orders: one outcome each, in the same sequence; all accepted ones are committed together."""
    candidates = [_read(item, account) for item in items]
    _resolve_replies(candidates, account)
    catalogue = _catalogue({sku for candidate in candidates for sku in candidate.wanted})
    submissions: list[NewSubmission] = []
    good: list[int] = []
    for index, candidate in enumerate(candidates):
        if candidate.refusal is None:
            try:
                payload = _priced(candidate, catalogue, account)
            except (InvalidOrder, Conflict) as refusal:
                candidate.refusal = refusal
            else:
                submissions.append(_submission(candidate.item, payload, account))
                good.append(index)
    outcomes: list[Outcome | None] = [candidate.refusal for candidate in candidates]
    if submissions:
        for index, new, accepted in zip(good, submissions, accept(submissions), strict=True):
            outcomes[index] = _placed(accepted, new.request_hash)
    for index, candidate in enumerate(candidates):
        if candidate.refusal is not None:
            outcomes[index] = _seen_before(candidate.item, account) or candidate.refusal
    return outcomes  # type: ignore[return-value]


def placed_before(idempotency_key: str, account: AbstractBaseUser | None = None) -> bool:
    """Whether this account, or a guest, has placed an order under this key."""
    return under_key(client_of(account, idempotency_key), idempotency_key).exists()


def first_placed(idempotency_keys: Sequence[str], account: AbstractBaseUser | None) -> str | None:
    """The first of these keys under which this account, or a guest, has placed an order."""
    client = client_of(account, "")
    return Submission.objects.filter(client=client, client_key__in=idempotency_keys).values_list("client_key", flat=True).first()


def cancel_order(public_id: str, *, by: Any, reason: str) -> str:
    """Ask for an order's cancellation; returns the state of its run. Raises UnknownRun and Refused."""
    return operator_verbs.cancel(public_id, by=by, reason=reason)


def acting_on(account_id: int | None, by: Any) -> Any:
    """Who acts on an order of this account: its customer is exempt from operators' rules, the shop's staff is not.

    by: an account or a name. An order without an account is its customer's whose link it is, unless staff is signed in.
    """
    return by if not isinstance(by, str) and by.pk != account_id and is_staff(by) else Exempt(by)


def is_staff(account: Any) -> bool:
    """Whether the account sees others' orders in the console, or has an operator's right. It finds their links there.

    So it is never the customer of another's order, even if it has the link.
    """
    return account.has_perm("orders.view_order") or account.has_perm("supervision.view_run") or rights.has_any(account)


def client_of(account: AbstractBaseUser | None, idempotency_key: str | None) -> str:
    """The client name that makes a key unique per account: accounts never share idempotency keys."""
    if account is not None:
        return f"user:{account.pk}"
    return "guest" if idempotency_key is not None else ""


def _read(item: Item, account: AbstractBaseUser | None) -> _Candidate:
    candidate = _Candidate(item)
    if item.idempotency_key is not None and (problem := key_problem(item.idempotency_key)):
        candidate.refusal = InvalidOrder({"idempotency_key": [problem]})
        return candidate
    try:
        candidate.request = read_order(item.data)
    except ValidationError as error:
        candidate.refusal = InvalidOrder(error.detail)  # type: ignore[arg-type]
        return candidate
    if candidate.request["priority"] == "high" and not (account is not None and account.has_perm(HIGH_PRIORITY)):  # type: ignore[attr-defined]
        candidate.refusal = NotAllowed({"priority": [_("High priority needs a permission that this account lacks.")]})
        return candidate
    candidate.wanted, candidate.first = merged(candidate.request["lines"])
    return candidate


def _resolve_replies(candidates: Sequence[_Candidate], account: AbstractBaseUser | None) -> None:
    """Replace reply tokens by their stored hash. Unknown, revoked and foreign tokens get the same refusal."""
    asking = [each for each in candidates if each.refusal is None and each.request["reply_to"] is not None]
    if not asking:
        return
    known = subscriptions.references(client_of(account, None), {each.request["reply_to"] for each in asking})
    for candidate in asking:
        reference = known.get(candidate.request["reply_to"])
        if reference is None:
            candidate.refusal = InvalidOrder({"reply_to": [_("Expected a reply token issued to this account by this server.")]})
        candidate.request["reply_to"] = reference


class _Offer(NamedTuple):
    """A product at its present price and stock."""

    sku: str
    name: str
    price: Decimal
    currency: str
    available: int
    warehouse: str


_OFFERS = "SELECT sku, name, price, currency, available, warehouse FROM orders_product WHERE active AND sku = ANY(%(skus)s)"


def _catalogue(skus: set[str]) -> dict[str, _Offer]:
    """The wanted products as they are now. There is no cache: the price at the moment of acceptance counts."""
    rows = db.run(_OFFERS, {"skus": sorted(skus)}, patience=PATIENCE_SECONDS) if skus else []
    return {row[0]: _Offer(*row) for row in rows}


def _priced(candidate: _Candidate, catalogue: Mapping[str, _Offer], account: AbstractBaseUser | None) -> str:
    """The submission's payload: the request with the server's names and prices."""
    request, first = candidate.request, candidate.first
    wrong: dict[int, dict[str, list[str]]] = {}
    short: dict[int, dict[str, list[str]]] = {}
    lines, total, currency = [], Decimal(0), ""
    warehouses: list[str] = []
    for sku, quantity in candidate.wanted.items():
        product = catalogue.get(sku)
        if product is None:
            wrong[first[sku]] = {"sku": [_("There is no product %(sku)s.") % {"sku": sku}]}
            continue
        currency = currency or product.currency
        if product.currency != currency:
            wrong[first[sku]] = {"sku": [_("One order cannot mix %(one)s and %(other)s.") % {"one": currency, "other": product.currency}]}
        if quantity > MAX_QUANTITY:
            wrong[first[sku]] = {"quantity": [_("Ensure this value is less than or equal to %(most)d.") % {"most": MAX_QUANTITY}]}
        if product.available < quantity:
            left = {"count": product.available, "name": product.name}
            short[first[sku]] = {"quantity": [_("Only %(count)d of %(name)s can be had.") % left]}
        total += product.price * quantity
        lines.append({"sku": sku, "name": product.name, "quantity": quantity, "unit_price": str(product.price)})
        warehouses.append(product.warehouse)
    if wrong:
        raise InvalidOrder({"lines": wrong})
    if not 0 < total <= MAX_TOTAL:
        raise InvalidOrder({"lines": [_("An order's total lies between 0.01 and %(most)s.") % {"most": MAX_TOTAL}]})
    expected, _space, expected_currency = (request["expected_total"] or "").partition(" ")
    if expected and (Decimal(expected) != total or expected_currency not in ("", currency)):
        message = _("The total is now %(total)s %(currency)s.") % {"total": total, "currency": currency}
        facts = {"total": str(total), "currency": currency}
        raise Conflict("price_changed", message, {"expected_total": [message]}, facts)
    if short:
        message = _("Something in this order is out of stock.")
        raise Conflict("out_of_stock", message, {"lines": short})
    if len(set(warehouses)) > 1:  # the lines name their warehouses only in an order that is split
        lines = [{**line, "warehouse": warehouse} for line, warehouse in zip(lines, warehouses, strict=True)]
    payload = {
        "email": request["email"],
        "shipping_address": request["shipping_address"],
        "lines": lines,
        "payment_method": request["payment_method"],
        "priority": request["priority"],
        "session_key": request["session_key"],
        "reply_to": request["reply_to"],
        "total": str(total),
        "currency": currency,
        "account": None if account is None else account.pk,
    }
    if request["language"] != settings.LANGUAGE_CODE:
        payload["language"] = request["language"]
    if settings.SHOP_CAPTURE == AFTER_BOOKING and request["payment_method"] != BANK_TRANSFER:
        payload["capture"] = AFTER_BOOKING  # a later change of the setting does not concern this order
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))


def _submission(item: Item, payload: str, account: AbstractBaseUser | None) -> NewSubmission:
    return NewSubmission(
        public_id=new_public_id(),
        workflow="fulfil-order",
        payload=payload,
        client=client_of(account, item.idempotency_key),
        client_key=item.idempotency_key,
        request_hash=_hash(item.data) if item.idempotency_key is not None else "",
        session_key=json.loads(payload)["session_key"],
    )


def _hash(data: Any) -> str:
    """The same hash for the same JSON, independent of its spacing and key sequence."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _placed(accepted: Accepted, request_hash: str) -> Placed | KeyReused:
    if accepted.replayed and accepted.request_hash != request_hash:
        return KeyReused()
    view: queries.OrderView | None
    if accepted.payload == ERASED:  # its first answer is erased with it
        view = queries.order_view(accepted.public_id)
    else:
        view = queries.accepted_view(accepted.id, accepted.public_id, json.loads(accepted.payload), accepted.created_at)
    if view is None:  # it never became an order
        return KeyReused()
    return Placed(public_id=accepted.public_id, answer=queries.answer(view), replayed=accepted.replayed)


def _seen_before(item: Item, account: AbstractBaseUser | None) -> Placed | KeyReused | None:
    """The first answer, if a refused request repeats one that was accepted before prices, stock or permissions changed."""
    if item.idempotency_key is None or key_problem(item.idempotency_key):
        return None
    known = under_key(client_of(account, item.idempotency_key), item.idempotency_key).first()
    if known is None:
        return None
    accepted = Accepted(
        id=known.pk,
        public_id=known.public_id,
        payload=known.payload,
        created_at=known.created_at,
        request_hash=known.request_hash,
        replayed=True,
    )
    return _placed(accepted, _hash(item.data))
