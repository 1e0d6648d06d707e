"""Which shipments an order ought to have: pure rules on our books and on the present shipments.

Processed: one live shipment for each shipping step, known to the books. The steps of its parcels' runs count. Cancelled or unknown
to the books: none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from orders.agents.shipping import ShippingAgent
from orders.gateways.carrier import Booking
from orders.parcels.splitting import BOOKING
from orders.reconciliation.books import Book
from supervision.ledger.reconciliation import ADOPT, CANCEL, Found
from supervision.states import RunState

SERVICE = "carrier"
AGENT = ShippingAgent.name


@dataclass(frozen=True)
class Parcel:
    """One live shipment."""

    id: str
    key: str


def known_ids(book: Book) -> set[str]:
    """The shipments that our books name, by the carrier's id."""
    named = {str((step.get("result") or {}).get("shipment") or "") for step in book.all_of(AGENT)}
    return (named | {str(effect["external_id"]) for effect in book.effects_of(SERVICE) if effect["outcome"] != "undone"}) - {""}


def known_keys(book: Book) -> set[str]:
    """Every key under which our books may have booked something, of all generations."""
    keys = {str(step["idempotency_key"]) for step in book.all_of(AGENT) if step["direction"] == "do"}
    keys |= {
        f"{str(step['idempotency_key']).rpartition(':')[0]}:{generation}"
        for step in book.all_of(AGENT)
        if step["direction"] == "do"
        for generation in range(1, int(step["generation"]) + 1)
    }
    return keys | {str(effect["key"]) for effect in book.effects_of(SERVICE) if effect["direction"] == "do"}


def agrees(booking: Booking, book: Book) -> bool:
    """Whether a listed shipment clearly agrees with the books, so that it needs no closer check."""
    if not booking.live or (book.known and not book.ended):
        return True
    return book.state == RunState.PROCESSED and booking.id in known_ids(book) and len(known_ids(book)) <= len(book.done(AGENT))


def judge(book: Book, parcels: Sequence[Parcel]) -> Iterator[Found]:
    """Every difference of one order. parcels: all of its live shipments."""
    if book.state != RunState.PROCESSED:
        cancelled = book.state == RunState.CANCELLED
        if cancelled and book.left(BOOKING):
            known, said = known_ids(book), _("the order was cancelled without undo, and its shipment stays booked")
            yield from (_found("kept_by_decision", book, one, (ADOPT, CANCEL), said) for one in parcels if one.id in known)
            parcels = [one for one in parcels if one.id not in known]
        kind = "live_after_cancel" if cancelled else "orphan_shipment"
        detail = _("the order is cancelled and the shipment was not") if cancelled else _("our books have no such order")
        yield from (_found(kind, book, parcel, (CANCEL,), detail) for parcel in parcels)
        return
    steps = book.done(AGENT)
    results = {str((step.get("result") or {}).get("shipment")) for step in steps}
    known = known_ids(book)
    # One shipment for each step, and no more: those in the steps' results first, then the adopted ones.
    ranked = sorted(parcels, key=lambda one: (one.id not in results, one.id not in known, one.id))
    own = [parcel for parcel in ranked if parcel.id in known][: len(steps)]
    missing = len(steps) - len(own)
    for parcel in ranked:
        if parcel in own:
            continue
        verbs = (ADOPT, CANCEL) if missing > 0 else (CANCEL,)
        missing -= 1
        yield _found("orphan_shipment", book, parcel, verbs, _("booked for this order, and not in our books"))
    lost = sorted(results - {parcel.id for parcel in own} - {"None"})
    for name in lost[: max(0, missing)] or [""] * max(0, missing):
        detail = _("the order was fulfilled and its shipment does not exist")
        yield Found(kind="missing_shipment", order=book.key, external_id=name, run_id=book.run_id, verbs=(ADOPT,), detail=detail)


def _found(kind: str, book: Book, parcel: Parcel, verbs: tuple[str, ...], detail: str) -> Found:
    return Found(kind=kind, order=book.key, external_id=parcel.id, key=parcel.key, run_id=book.run_id, verbs=verbs, detail=detail)
