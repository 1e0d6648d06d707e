"""Shipments: compares our books with the carrier's list, and settles differences.

The list shows which orders to check, and the carrier is asked by key, which does not lag behind; `comparing` says how they
are checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial

from orders.agents.calls import retried
from orders.gateways import carrier
from orders.gateways.carrier import Booking, Broken, Unavailable
from orders.gateways.http import NoAnswer, NotSent
from orders.parcels.splitting import BOOKING, order_of
from orders.reconciliation import books, listing
from orders.reconciliation.asking import asking, patiently
from orders.reconciliation.books import Book
from orders.reconciliation.comparing import CLOCKS, Comparison, Done
from orders.reconciliation.parcels import AGENT, SERVICE, Parcel, agrees, judge, known_ids, known_keys
from supervision.ledger import adoption
from supervision.ledger.reconciliation import ADOPT, CANCEL, CannotSettle, Found, batched, register


@dataclass
class Suspect:
    """An order to check closely, and the shipments that the list or a finding gives it: keys by shipment id."""

    order: str
    parcels: dict[str, str] = field(default_factory=dict)


class CarrierSource(Comparison[Suspect, Parcel]):
    """The carrier's API."""

    service = SERVICE

    def look(self, since: datetime) -> Iterator[Found]:
        """Every difference between the shipments since then and our books."""
        with asking():
            listing.begin()
            for batch in batched(carrier.listed(since - CLOCKS)):
                listing.see((booking.id, booking.order, booking.key) for booking in batch if booking.live)
                listing.suspect(_suspects(batch))
            for keys in listing.unseen(AGENT, "shipment", since):
                listing.suspect(map(order_of, keys))
            for keys in listing.ended_late([BOOKING], since - CLOCKS):
                listing.suspect(map(order_of, keys))
            for suspects in listing.suspects():
                shown = listing.seen(order for order, _ in suspects)
                yield from self.closely(Suspect(order, dict(shown[order])) for order, _ in suspects)
            listing.forget()

    def suspects(self, found: Sequence[Found]) -> Iterable[Suspect]:
        """The orders of these findings, with the shipments that the findings name."""
        suspects: dict[str, Suspect] = {}
        for one in found:
            suspect = suspects.setdefault(one.order, Suspect(one.order))
            if one.key:
                suspect.parcels[one.external_id] = one.key
        return suspects.values()

    def held(self, suspect: Suspect, book: Book) -> list[Parcel]:
        """Every live shipment of this order that the list or the books name."""
        return _parcels(suspect, book)

    def judge(self, book: Book, held: Sequence[Parcel]) -> Iterator[Found]:
        """How the books and these shipments of one order differ."""
        return iter(judge(book, held))

    def act(self, found: Found, verb: str, *, by: str, tries: int) -> Done:
        """Delete or adopt it."""
        if verb == ADOPT:
            return _adopt(found, by)
        if verb == CANCEL:
            return _cancel(found, by)
        raise CannotSettle(f"a shipment cannot be settled by {verb}")


def _parcels(suspect: Suspect, book: Book) -> list[Parcel]:
    """Every live shipment of this order that the list or the books name."""
    live: dict[str, Parcel] = {}
    for key in sorted(known_keys(book) | set(suspect.parcels.values())):
        found = patiently(partial(carrier.find, key, suspect.order), Broken, Unavailable)
        if found is not None:
            live[found.id] = Parcel(found.id, key)
    # A carrier that forgot a key has booked under it twice. Asked by key it shows only one of the two.
    for name in sorted(suspect.parcels.keys() - live.keys()):
        if patiently(partial(carrier.stands, name), Broken, Unavailable):
            live[name] = Parcel(name, suspect.parcels[name])
    return list(live.values())


def _suspects(bookings: Sequence[Booking]) -> list[str]:
    """The orders of these shipments that do not clearly agree with the books."""
    known = books.of(booking.order for booking in bookings)
    return [booking.order for booking in bookings if not agrees(booking, known[booking.order])]


# --------------------------------------------------------------------------------------------------- settling


def _adopt(found: Found, by: str) -> Done:
    """Accept the difference. A shipment of this order that our books do not have is written into them."""
    if found.kind != "orphan_shipment":
        return Done(f"accepted: {found.detail}", changed=False)
    book = books.of([found.order])[found.order]
    steps = book.done(AGENT)
    if book.run_id is None or not steps:
        raise CannotSettle("there is no order to adopt it into")
    stem = found.key.rpartition(":")[0]
    step = next((one for one in steps if str(one["idempotency_key"]).rpartition(":")[0] == stem), steps[-1])
    run_id = int(step.get("run_id") or book.run_id)  # the archive's steps have none
    noted = adoption.note_done(
        run_id, step["position"], key=found.key, service=SERVICE, operation="create", external_id=found.external_id, by=by
    )
    if not noted:
        return Done("accepted: the order is archived, and its books stay as they are", changed=False)
    return Done(f"{found.external_id} is the order's shipment now")


def _cancel(found: Found, by: str) -> Done:
    """Delete the shipment: by its key, or by its id if the order's own shipment has the same key."""
    book = books.of([found.order])[found.order]
    own = [name for name in known_ids(book) if name != found.external_id] if found.key in known_keys(book) else []
    standing = any(patiently(partial(carrier.stands, name), Broken, Unavailable) for name in own)

    def delete() -> None:
        if standing:
            carrier.delete_one(found.external_id, found.order)
        else:
            carrier.delete(found.key, found.order)

    retried(delete, on=(NotSent, NoAnswer, Broken, Unavailable))
    if book.run_id is not None:
        for run_id in {book.run_id, *(int(one["run_id"]) for one in book.effects_of(SERVICE) if "run_id" in one)}:
            adoption.note_undone(run_id, service=SERVICE, external_id=found.external_id, by=by)
    return Done("deleted")


register(CarrierSource())
