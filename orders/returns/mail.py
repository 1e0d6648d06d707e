"""The mail that tells the customer the result of a return."""

from __future__ import annotations

from django.conf import settings
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from orders.formats import money
from orders.payments import transfers
from orders.returns import codes
from supervision import StepRequest


def words(request: StepRequest) -> tuple[str, str]:
    """The subject and the text."""
    payload = request.payload
    came = request.results.get(codes.AWAIT) or {}
    refund = request.results.get(codes.REFUND) or {}
    accepted, refused = (sum((came.get(name) or {}).values()) for name in ("accepted", "refused"))
    parts = [
        _("Hello,"),
        ngettext("we have accepted %(count)d piece of your return.", "we have accepted %(count)d pieces of your return.", accepted)
        % {"count": accepted},
    ]
    if refused:
        back = ngettext(
            "We cannot accept %(count)d piece and send it back to you.",
            "We cannot accept %(count)d pieces and send them back to you.",
            refused,
        )
        parts.append(back % {"count": refused})
    out = {} if payload.get("intent") else transfers.paid_out([request.run_key])
    if paid := out.get(request.run_key, codes.amount_said(refund.get("refunded"))):
        parts.append(_("We pay %(paid)s back to you.") % {"paid": money(paid, payload["currency"])})
    if codes.amount_said(refund.get("short")):
        parts.append(_("The rest of its worth was never paid, went back to you before, or your bank decides about it."))
    parts.append(_("Your order: %(link)s") % {"link": f"{settings.PUBLIC_URL}/orders/{payload['order']}/"})
    return _("Your return for order %(number)s") % {"number": payload["number"]}, "\n\n".join(parts)
