"""Returns and documents on the order's page: what came back, in words for the customer, what may be returned, and the PDFs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from orders.documents.issuing import of_order as documents_of
from orders.documents.tables import INVOICE
from orders.formats import money
from orders.forms import ReturnForm
from orders.queries import OrderView
from orders.returns import answers
from orders.returns.answers import ReturnView
from orders.returns.asking import left
from supervision.states import RunState


@dataclass(frozen=True, kw_only=True)
class ReturnCard:
    """One return on the order's page. tone: as of the order's own standing."""

    number: str
    title: str
    note: str
    tone: str
    lines: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class Returnable:
    """One product of which pieces may be returned: `most` at most. typed, wrong: of a form that was refused."""

    sku: str
    name: str
    most: int
    typed: str = "0"
    wrong: Sequence[str] = ()


def facts(view: OrderView, form: ReturnForm, *, may_act: bool) -> dict[str, Any]:
    """The template context of returns and documents. No query while the order is not Processed."""
    if view.process_state != RunState.PROCESSED:
        return {}
    rest = left(view) if may_act else {}
    names = {line.sku: line.name for line in view.lines}
    return {
        "returns": [card(one) for one in answers.of_order(view.public_id, view.archived)],
        "returnable": [
            Returnable(sku=sku, name=names[sku], most=most, typed=form.typed(sku), wrong=form.wrong(sku))
            for sku, most in rest.items()
            if most > 0
        ],
        "documents": [
            (one, _("Invoice") if one.kind == INVOICE else _("Credit note"), money(one.total, one.currency))
            for one in documents_of(view.public_id)
        ],
    }


def card(one: ReturnView) -> ReturnCard:
    """A return in words for its customer."""
    title, note, tone = _words(one)
    pieces = Counter[str]()
    for line in one.lines:
        pieces[line.name] += line.quantity
    lines = [_("%(count)d of %(name)s") % {"count": count, "name": name} for name, count in pieces.items()]
    return ReturnCard(number=one.row.number, title=title, note=note, tone=tone, lines=lines)


def _words(one: ReturnView) -> tuple[str, str, str]:
    paid = money(one.refunded, one.row.currency)
    if one.process_state == RunState.CANCELLED and one.refunded:
        return _("This return has ended"), _("We have paid %(paid)s back.") % {"paid": paid}, "calm"
    if one.process_state == RunState.CANCELLED:
        return _("This return has ended"), _("The goods did not come, or it was cancelled. Nothing was paid back."), "calm"
    if one.process_state == RunState.PROCESSED and not one.worth:
        return _("We could not accept the goods"), _("We send them back to you."), "warn"
    if one.by_transfer:
        text = _("We transfer %(owed)s to your bank account.")
        return _("Your goods have come"), text % {"owed": money(one.owed, one.row.currency)}, ""
    if one.owed:
        text = _("We have sent %(owed)s back to your card, and it did not arrive. We know, and we pay it in another way.")
        return _("Your money has not arrived"), text % {"owed": money(one.owed, one.row.currency)}, "warn"
    if one.process_state == RunState.PROCESSED:
        return _("Your return is done"), _("We have paid %(paid)s back.") % {"paid": paid}, "good"
    if one.process_state in (RunState.ERROR, RunState.COMPENSATING):
        return _("We are looking into your return"), _("Our team knows and takes care of it; you need not do anything."), "warn"
    if one.waits_for_goods:
        number = {"number": one.row.number}
        return _("Please send the goods to us"), _("Put the number %(number)s into the parcel.") % number, ""
    return _("Your goods have come"), _("We are paying you back."), ""


def in_words(order_key: str) -> list[str]:
    """The returns of an order, one line each, for operators."""
    return [str_of(one) for one in answers.of_order(order_key, inside=True)]


def str_of(one: ReturnView) -> str:
    """A return in one line, for operators."""
    prices = Counter(line.sku for line in one.lines)
    pieces = ", ".join(
        f"{line.quantity} x {line.sku}" + (f" ({line.unit_price})" if prices[line.sku] > 1 else "") + _came(line.accepted, line.refused)
        for line in one.lines
    )
    state = _(str(one.process_state)) + (f" ({one.waiting_because})" if one.waiting_because else "")
    facts = {"number": one.row.number, "id": one.row.public_id, "state": state, "pieces": pieces}
    facts["paid"] = f"{one.refunded} {one.row.currency}"
    paid = _("return %(number)s %(id)s: %(state)s, %(pieces)s, refunded %(paid)s") % facts
    missing = _(", %(owed)s to be paid out at the bank") if one.by_transfer else _(", %(owed)s failed to arrive")
    return paid + (missing % {"owed": one.owed} if one.owed else "")


def _came(accepted: int | None, refused: int | None) -> str:
    return "" if accepted is None else _(" (accepted %(accepted)d, refused %(refused)d)") % {"accepted": accepted, "refused": refused}
