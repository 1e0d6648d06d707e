"""Shipments: compares our books with the carrier's list, and settles differences.

The list shows which orders to check. Each order that does not clearly agree is checked on its own: read the books, ask the
carrier (by key, which does not lag behind), read the books again. `orders.reconciliation.payment` works the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from orders.agents.calls import retried
from orders.gateways import carrier
from orders.gateways.carrier import Booking, Broken, Unavailable
from orders.gateways.http import NoAnswer, NotSent
from orders.reconciliation import books, listing
from orders.reconciliation.asking import SETTLING_SECONDS, asking, batched, patiently
from orders.reconciliation.books import Book
from orders.reconciliation.parcels import AGENT, SERVICE, Parcel, agrees, judge, known_ids, known_keys
from supervision import adoption
from supervision.reconciliation import ADOPT, CANCEL, CannotSettle, Found, register

CLOCKS = timedelta(minutes=5)
CLOSELY = 50


@dataclass
class Suspect:
    """An order to check closely, and the shipments that the list or a finding gives it: keys by shipment id."""

    order: str
    parcels: dict[str, str] = field(default_factory=dict)


class CarrierSource:
    """The carrier's API."""

    service = SERVICE
    look_back = timedelta(days=3)

    def look(self, since: datetime) -> Iterator[Found]:
        """Every difference between the shipments since then and our books."""
        with asking():
            listing.begin()
            for batch in batched(carrier.listed(since - CLOCKS)):
                listing.see((booking.id, booking.order, booking.key) for booking in batch if booking.live)
                listing.suspect(_suspects(batch))
            for keys in listing.unseen(AGENT, "shipment", since):
                listing.suspect(keys)
            for suspects in listing.suspects():
                shown = listing.seen(order for order, _ in suspects)
                yield from _closely(Suspect(order, dict(shown[order])) for order, _ in suspects)
            listing.forget()

    def again(self, found: Sequence[Found]) -> list[Found]:
        """The findings among these that still exist."""
        suspects: dict[str, Suspect] = {}
        for one in found:
            suspect = suspects.setdefault(one.order, Suspect(one.order))
            if one.key:
                suspect.parcels[one.external_id] = one.key
        wanted = {one.identity for one in found}
        with asking():
            return [one for one in _closely(suspects.values()) if one.identity in wanted]

    def settle(self, found: Found, verb: str, *, by: str, reason: str, tries: int) -> str:
        """Check the finding again, do what the verb says, and check that the difference is gone."""
        now = next(iter(self.again([found])), None)
        if now is None:
            return "gone: the difference no longer exists"
        if verb not in now.verbs:
            raise CannotSettle(f"it has changed: {now.detail}; what settles it now: {', '.join(now.verbs) or '-'}")
        with asking(SETTLING_SECONDS):
            said, changed = _adopt(now, by) if verb == ADOPT else _cancel(now, verb, by)
        if changed and any(one.identity == now.identity for one in self.again([now])):
            raise CannotSettle(f"it is still there after this: {said}")
        return said


def _closely(suspects: Iterable[Suspect]) -> Iterator[Found]:
    for batch in batched(suspects, CLOSELY):
        before = books.of(one.order for one in batch)
        seen = {one.order: _parcels(one, before[one.order]) for one in batch if before[one.order].judged}
        after = books.of(seen)
        for order, parcels in seen.items():
            if after[order].state == before[order].state:
                yield from judge(after[order], parcels)


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


def _adopt(found: Found, by: str) -> tuple[str, bool]:
    """Accept the difference. A shipment of this order that our books do not have is written into them."""
    if found.kind != "orphan_shipment":
        return f"accepted: {found.detail}", False
    book = books.of([found.order])[found.order]
    steps = book.done(AGENT)
    if book.run_id is None or not steps:
        raise CannotSettle("there is no order to adopt it into")
    noted = adoption.note_done(
        book.run_id, steps[-1]["position"], key=found.key, service=SERVICE, operation="create", external_id=found.external_id, by=by
    )
    if not noted:
        return "accepted: the order is archived, and its books stay as they are", False
    return f"{found.external_id} is the order's shipment now", True


def _cancel(found: Found, verb: str, by: str) -> tuple[str, bool]:
    """Delete the shipment: by its key, or by its id if the order's own shipment has the same key."""
    if verb != CANCEL:
        raise CannotSettle(f"a shipment cannot be settled by {verb}")
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
        adoption.note_undone(book.run_id, service=SERVICE, external_id=found.external_id, by=by)
    return "deleted", True


register(CarrierSource())
