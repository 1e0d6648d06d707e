"""The mail that tells the customer of a refund."""

from __future__ import annotations

from django.conf import settings
from django.utils.translation import gettext as _

from orders.formats import money
from orders.payments import transfers
from orders.returns.codes import REFUND, amount_said
from supervision import StepRequest


def words(request: StepRequest) -> tuple[str, str]:
    """The subject and the text."""
    payload = request.payload
    result = request.results.get(REFUND) or {}
    said = _("we pay %(paid)s of your order back to your card.")
    if not payload.get("intent"):
        result = {"refunded": transfers.paid_out([request.run_key]).get(request.run_key, result.get("refunded"))}
        said = _("we have transferred %(paid)s of your order back to your bank account.")
    parts = [
        _("Hello,"),
        said % {"paid": money(amount_said(result.get("refunded")), payload["currency"])},
        _("Your order: %(link)s") % {"link": f"{settings.PUBLIC_URL}/orders/{payload['order']}/"},
    ]
    return _("A refund for your order %(number)s") % {"number": payload["number"]}, "\n\n".join(parts)
