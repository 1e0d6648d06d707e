"""Books a shipment once, and deletes it by key.

Used by the `book-shipment` step. The carrier gives the same shipment for the same key, and none after the key was
deleted. So a deletion stops even a booking that a frozen agents process sends later. An order has one live shipment:

1. The agent writes every booking into the effect ledger before it calls. The first attempt books under the step's key.
2. Each later attempt first asks the carrier for the shipment under that key, and adopts it.
3. A new generation has a new key, and perhaps another address. The agent deletes every earlier key before it books.
4. The undo step deletes every key: those of all generations, those of the ledger and, if the database has lost its last
   transactions, those that the carrier lists for the order.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.utils.translation import gettext as _

from orders.agents.calls import evidence, retried
from orders.agents.listings import Listing
from orders.gateways import carrier, http
from orders.gateways.carrier import AddressNotServiceable, Booking, Broken, Deleted, Rejected, Shipment, Unavailable
from orders.gateways.http import GatewayError, NoAnswer, NotSent
from orders.parcels.splitting import order_of
from supervision import Agent, EffectOutcome, Intention, Operation, OutcomeUnknown, PermanentFailure, StepRequest, TransientFailure

HARMLESS = (NotSent, NoAnswer, Broken, Unavailable)  # after these errors a read or a deletion may be repeated
SERVICE = "carrier"
BOOK, DELETE = "book", "delete"

listing: Listing[Booking] = Listing(carrier.listed, lambda one: one.order, lambda one: one.id, lambda one: one.created)


class ShippingAgent(Agent):
    """Books and deletes shipments at the carrier: for an order, or for one parcel of an order that is split."""

    name = "shipping"

    def opens_with(self, request: StepRequest) -> Intention:
        """The booking under the step's own key."""
        return Intention(BOOK, request.idempotency_key, SERVICE)

    def perform(self, request: StepRequest) -> Mapping[str, Any]:
        """Book the order's shipment once; `{"shipment", "tracking_number"}`."""
        with http.budget(request.deadline, request.pace, partial(request.exchanged, SERVICE)):
            try:
                shipment = _booked(request)
            except AddressNotServiceable as problem:
                raise PermanentFailure(
                    _("The carrier does not deliver to this address."),
                    code="address_not_serviceable",
                    public_message=_("We cannot deliver to your address."),
                    for_customer=True,
                ) from problem
            except Deleted as problem:
                raise PermanentFailure(_("The shipment was cancelled: nothing can be booked under its key."), code="deleted") from problem
            except Rejected as problem:
                raise PermanentFailure(_("The carrier: %(problem)s") % {"problem": problem}, code="rejected") from problem
            except GatewayError as problem:
                raise _told(problem) from problem
        return {"shipment": shipment.id, "tracking_number": shipment.tracking_number}

    def compensate(self, request: StepRequest) -> Mapping[str, Any]:
        """Delete the order's shipments, so that nothing can be booked under their keys. Succeeds too if nothing was booked."""
        with http.budget(request.deadline, request.pace, partial(request.exchanged, SERVICE)):
            try:
                deleted = _delete(request, request.perform_keys)
            except GatewayError as problem:
                raise _told(problem) from problem
        return {"deleted": deleted[-1], **({"deleted_too": deleted[:-1]} if len(deleted) > 1 else {})}


def _booked(request: StepRequest) -> Shipment:
    booking = request.intend(BOOK, key=request.idempotency_key, service=SERVICE)
    try:
        shipment = _adopted(request) or _book(request)
    except (AddressNotServiceable, Rejected):
        booking.settle(EffectOutcome.REFUSED)
        raise
    except Deleted:
        booking.settle(EffectOutcome.UNDONE)
        raise
    booking.settle(EffectOutcome.DONE, shipment.id)
    return shipment


def _adopted(request: StepRequest) -> Shipment | None:
    """The shipment that an earlier attempt booked under this key. Shipments of other generations are deleted."""
    if request.generation > 1 or request.look_first:
        _delete(request, request.perform_keys[:-1], keep=request.idempotency_key)
    if request.attempt > 1 or request.generation > 1:
        return retried(lambda: carrier.find(request.idempotency_key, order_of(request.run_key)), on=HARMLESS)
    return None


def _delete(request: StepRequest, keys: list[str], *, keep: str | None = None) -> list[str]:
    """Delete these keys of the step and all others that are known to have been used, except `keep`."""
    booked: dict[str, list[Operation]] = {key: [] for key in keys}
    for one in request.effects():
        if one.operation == BOOK:
            booked.setdefault(one.key, []).append(one)
    if request.look_first:
        stem = request.perform_key.rpartition(":")[0] + ":"
        for shipment in listing.of(order_of(request.run_key), request.ordered_at()):
            if shipment.live and shipment.key.startswith(stem):
                booked.setdefault(shipment.key, [])
    booked.pop(keep or "", None)
    # The newest key last. With `keep`, keys are skipped whose rows an earlier attempt settled as never booked or deleted.
    wanted = sorted(booked, key=lambda key: (key == request.perform_key, key))
    for key in wanted:
        if keep is not None and booked[key] and not any(one.may_exist for one in booked[key]):
            continue
        deletion = request.intend(DELETE, key=key, service=SERVICE) if keep is None else None
        retried(partial(carrier.delete, key, order_of(request.run_key)), on=HARMLESS)
        if deletion is not None:
            deletion.settle(EffectOutcome.DONE)
        for one in booked[key]:
            one.settle(EffectOutcome.UNDONE)
    return wanted


def _book(request: StepRequest) -> Shipment:
    key, order = request.idempotency_key, order_of(request.run_key)
    items = [{"sku": line["sku"], "quantity": line["quantity"]} for line in request.payload["lines"]]

    def book() -> Shipment:
        return carrier.book(key, order, request.payload["shipping_address"], items)

    try:
        return retried(book, on=(NotSent, Unavailable))
    except (NoAnswer, Broken) as lost:
        # The booking may have been made. The look-up is cheap and certain. If it finds nothing, the agent may book again:
        # under the same key the carrier books once.
        try:
            found = retried(lambda: carrier.find(key, order), on=HARMLESS)
        except GatewayError:
            raise lost from None  # the result stays unknown: the look-up failed too
        try:
            return found or retried(book, on=(NotSent, Unavailable))
        except (NotSent, Unavailable):
            raise lost from None  # the first call may still be under way


def _told(problem: GatewayError) -> TransientFailure:
    """The engine's failure for a gateway's error."""
    text = _("The carrier %(problem)s.") % {"problem": problem}
    if isinstance(problem, NotSent | Unavailable):
        return TransientFailure(text, **evidence(problem))
    return OutcomeUnknown(text, **evidence(problem))
