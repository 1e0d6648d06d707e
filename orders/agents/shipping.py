"""Books a shipment once, and deletes it by key.

Used by the `book-shipment` step. The carrier gives the same shipment for the same key, and none after the key was
deleted: a deletion stops even a booking that a frozen worker sends afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext as _

from orders.agents.calls import retried
from orders.gateways import carrier, http
from orders.gateways.carrier import AddressNotServiceable, Broken, Deleted, Rejected, Shipment, Unavailable
from orders.gateways.http import GatewayError, NoAnswer, NotSent
from supervision import Agent, OutcomeUnknown, PermanentFailure, StepRequest, TransientFailure

HARMLESS = (NotSent, NoAnswer, Broken, Unavailable)  # to repeat: for reads and deletions


class ShippingAgent(Agent):
    """Books and deletes shipments at the carrier."""

    name = "shipping"

    def perform(self, request: StepRequest) -> Mapping[str, Any]:
        """Book the order's shipment once; `{"shipment", "tracking_number"}`."""
        with http.budget(request.deadline, request.pace):
            try:
                shipment = _book(request)
            except AddressNotServiceable as problem:
                raise PermanentFailure(
                    _("The carrier does not deliver to this address."),
                    code="address_not_serviceable",
                    public_message=_("We cannot deliver to your address."),
                ) from problem
            except Deleted as problem:
                raise PermanentFailure(_("The shipment was cancelled: nothing can be booked under its key."), code="deleted") from problem
            except Rejected as problem:
                raise PermanentFailure(_("The carrier: %(problem)s") % {"problem": problem}, code="rejected") from problem
            except GatewayError as problem:
                raise _told(problem) from problem
        return {"shipment": shipment.id, "tracking_number": shipment.tracking_number}

    def compensate(self, request: StepRequest) -> Mapping[str, Any]:
        """Delete the shipment, and bar its key; success too where it was never booked."""
        with http.budget(request.deadline, request.pace):
            try:
                retried(lambda: carrier.delete(request.perform_key, request.run_key), on=HARMLESS)
            except GatewayError as problem:
                raise _told(problem) from problem
        return {"deleted": request.perform_key}


def _book(request: StepRequest) -> Shipment:
    key, order = request.idempotency_key, request.run_key
    items = [{"sku": line["sku"], "quantity": line["quantity"]} for line in request.payload["lines"]]

    def book() -> Shipment:
        return carrier.book(key, order, request.payload["shipping_address"], items)

    try:
        return retried(book, on=(NotSent, Unavailable))
    except (NoAnswer, Broken) as lost:
        # What became of it? The look-up is cheap and tells for sure; where it shows nothing, the key makes a second
        # booking as harmless as the first.
        try:
            found = retried(lambda: carrier.find(key, order), on=HARMLESS)
        except GatewayError:
            raise lost from None  # still in doubt, whatever kept us from looking
    return found or retried(book, on=(NotSent, Unavailable))


def _told(problem: GatewayError) -> TransientFailure:
    """The engine's word for it."""
    text = _("The carrier %(problem)s.") % {"problem": problem}
    if isinstance(problem, NotSent):
        return TransientFailure(text)
    if isinstance(problem, Unavailable):
        return TransientFailure(text, retry_after=problem.retry_after)
    return OutcomeUnknown(text)
