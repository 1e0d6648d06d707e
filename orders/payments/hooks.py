"""`POST /hooks/stripe/`: the payment service's webhooks."""

from __future__ import annotations

import logging

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from orders.gateways.payment_events import NotGenuine, read
from orders.payments import events
from orders.responses import plain

log = logging.getLogger(__name__)

MOST_BYTES = 1_000_000


@csrf_exempt  # the signature is the proof  # nosemgrep: door-without-csrf
@require_POST
def stripe(request: HttpRequest) -> HttpResponse:
    """200 once the event is stored, or was stored before; 400 without a valid signature. Other errors: the service tells it again."""
    if len(request.body) > MOST_BYTES:
        return plain(413, "This event is too large.")
    try:
        event = read(request.body, request.headers.get("Stripe-Signature", ""))
    except NotGenuine as problem:
        log.warning("a webhook of the payment service was refused: %s", str(problem)[:200])
        return plain(400, "Stripe-Signature: expected a valid signature of this body that is at most five minutes old.")
    if event is None:
        return plain(200, "The shop has no use for this event.")
    return plain(200, "Stored." if events.receive(event) else "Stored before.")
