"""Credit notes: of returns, of refunds without goods, and of money that went back elsewhere and that an operator adopted.

Each names its invoice and is issued once for its cause. What it takes from each rate of VAT: `orders.documents.sharing`. All credit
notes of an order together take at most its invoice, of each rate and of its VAT. Where nothing is left to take, none is issued.

A refund that is paid again after it failed has its credit note already: the first one was paid, too. So it gets no other one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_FLOOR, Decimal

from django.utils.translation import gettext as _

from orders import accounting
from orders.documents import sharing, vat
from orders.documents.issuing import invoices, issue, new_document, of_order, together_or_alone, with_invoice
from orders.documents.tables import CREDIT_NOTE, INVOICE, Document
from orders.formats import speaking
from orders.models import Return, ReturnCorrection, ReturnLine
from orders.queries import order_view
from supervision.models import Notification
from supervision.outbox.notifications import handler

ELSEWHERE = "elsewhere:"  # the cause of money that went back at the payment service: this, the payment, and how much went back by then


@handler(accounting.ISSUE_CREDIT_NOTES)
def issue_credit_notes(notification: Notification) -> None:
    """Issue the credit notes of these returns, and the invoice of an order that has none yet: it may be older than invoices are."""

    def work(keys: list[str]) -> None:
        returns = list(Return.objects.filter(public_id__in=keys).order_by("pk"))
        _invoice(one.order_key for one in returns)
        credit_notes(returns)

    together_or_alone(notification, "returns", work)


@handler(accounting.ISSUE_REFUND_NOTES)
def issue_refund_notes(notification: Notification) -> None:
    """Issue the credit notes of money that went back without goods: `credited` says what the notification holds."""

    def work(paid: list[Mapping[str, str]]) -> None:
        _invoice(one["order"] for one in paid)
        refund_notes(paid)

    together_or_alone(notification, "refunds", work)


def credited(order: str, cause: str, number: str, amount: Decimal) -> dict[str, str]:
    """What a notification holds of one refund. cause: its public id; number: as it is printed; amount: what was paid back."""
    return {"order": order, "cause": cause, "number": number, "amount": str(amount)}


def credited_elsewhere(order: str, intent: str, amount: Decimal) -> dict[str, str]:
    """The same of money that went back at the payment service itself. amount: all that did of this payment so far."""
    return credited(order, f"{ELSEWHERE}{intent}:{amount.normalize():f}", intent, amount)


def credit_notes(returns: Sequence[Return]) -> list[Document]:
    """Issue the credit notes of those of these returns that have none and of which something was accepted, in the caller's transaction."""
    lines: dict[str, list[tuple[ReturnLine, int]]] = {}
    first = _paid_before_corrections([one.public_id for one in returns])
    for line in ReturnLine.objects.filter(of__in=returns).select_related("of").order_by("pk"):
        pieces = first.get((line.of.public_id, line.sku, line.unit_price), line.accepted or 0)
        if pieces:
            lines.setdefault(line.of.public_id, []).append((line, pieces))
    rows = {one.public_id: one for one in returns if one.public_id in lines}

    def document(order: str, back: str) -> Document | None:
        books = Books(order, back)
        return books.note(books.keeping(books.goods(lines[back])), return_number=rows[back].number)

    return issue(CREDIT_NOTE, [(one.order_key, one.public_id) for one in rows.values()], document)


def refund_notes(paid: Sequence[Mapping[str, str]]) -> list[Document]:
    """Issue the credit notes of those of these refunds (`credited`) that have none, in the caller's transaction."""
    rows = {(one["order"], one["cause"]): one for one in paid}

    def document(order: str, cause: str) -> Document | None:
        one, books = rows[order, cause], Books(order, cause)
        if missed := _missed(cause, Decimal(one["amount"])):
            return books.note(books.keeping(books.goods(missed)), refund_number=one["number"])
        amount = Decimal(one["amount"]).quantize(vat.CENT, ROUND_FLOOR)
        if cause.startswith(ELSEWHERE):
            amount -= books.taken(cause.rpartition(":")[0] + ":")
        with speaking(books.invoice.body.get("language")):
            name = _("Money back without goods")
        return books.note(sharing.without_goods(amount, books.rest, books.unit, name), refund_number=one["number"])

    return issue(CREDIT_NOTE, list(rows), document)


def _paid_before_corrections(returns: Sequence[str]) -> dict[tuple[str, str, Decimal], int]:
    """The pieces that a return had paid for when its report was corrected first: those are its credit note's."""
    found: dict[tuple[str, str, Decimal], int] = {}
    for made in ReturnCorrection.objects.filter(return_key__in=returns, paid=True).order_by("number"):
        for line in made.lines:
            found.setdefault((made.return_key, line["sku"], Decimal(line["unit_price"])), line["paid"][0])
    return found


def _missed(refund: str, amount: Decimal) -> list[tuple[ReturnLine, int]]:
    """The pieces that this refund pays because the report had missed them; none if it pays less than they are worth."""
    made = ReturnCorrection.objects.filter(refund=refund).first()
    if made is None:
        return []
    rows = {(line.sku, line.unit_price): line for line in ReturnLine.objects.filter(of__public_id=made.return_key)}
    found = [(rows[line["sku"], Decimal(line["unit_price"])], line["paid"][1] - line["paid"][0]) for line in made.lines]
    worth = sum((line.unit_price * pieces for line, pieces in found), Decimal("0.00"))
    return [(line, pieces) for line, pieces in found if pieces] if worth == amount else []


def _invoice(orders: Iterable[str]) -> None:
    wanted = set(orders)
    if missing := wanted - with_invoice(wanted):
        invoices([view for view in map(order_view, sorted(missing)) if view is not None])


class Books:
    """The invoice of an order and its credit notes so far, for the next one of this cause. Raises LookupError without an invoice."""

    def __init__(self, order: str, cause: str) -> None:
        self.cause, earlier = cause, of_order(order)
        invoice = next((one for one in earlier if one.kind == INVOICE), None)
        if invoice is None:
            raise LookupError(f"order {order} has no invoice that the credit note of {cause} could name")
        self.invoice, self.notes = invoice, [one for one in earlier if one.kind == CREDIT_NOTE]
        self.credited = [line for note in self.notes for line in note.body["lines"]]
        self.rest = sharing.rests(invoice.body["lines"], self.credited)
        self.unit = vat.unit_of(invoice.currency)

    def keeping(self, lines: Sequence[vat.Line]) -> list[vat.Line]:
        """These lines of goods, with those that keep each rate within what is left of it."""
        with speaking(self.invoice.body.get("language")):
            names = {"before": _("Credited before"), "instead": _("Credited at this rate instead")}
        return sharing.of_goods(lines, self.rest, self.unit, **names)

    def goods(self, lines: Sequence[tuple[ReturnLine, int]]) -> list[vat.Line]:
        """The lines for these pieces of lines of a return."""

        def same(of: Sequence[vat.Line], line: ReturnLine) -> list[vat.Line]:
            return [one for one in of if one["sku"] == line.sku and Decimal(one["unit_price"]) == line.unit_price]

        return [
            vat.credit_line(
                line.sku,
                line.name,
                pieces,
                line.unit_price,
                same(self.invoice.body["lines"], line),
                same(self.credited, line),
                self.unit,
            )
            for line, pieces in lines
        ]

    def taken(self, causes: str) -> Decimal:
        """What credit notes took whose cause begins so."""
        return sum((one.total for one in self.notes if one.cause.startswith(causes)), Decimal("0.00"))

    def note(self, lines: Sequence[vat.Line], **facts: str) -> Document | None:
        """The credit note of these lines; None if they take nothing."""
        if not vat.total(lines):
            return None
        body = self.invoice.body
        same = {name: body[name] for name in ("order_number", "ordered_at", "to", "language") if name in body}
        facts = {"invoice": self.invoice.name, **facts}
        return new_document(CREDIT_NOTE, self.invoice.order_key, self.cause, self.invoice.currency, {**same, "lines": list(lines), **facts})
