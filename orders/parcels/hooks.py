"""`POST /hooks/carrier/`: the carrier's webhooks."""

from __future__ import annotations

import logging

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from orders.gateways.carrier_events import BadEvent, NotGenuine, read
from orders.parcels import events
from orders.responses import plain

log = logging.getLogger(__name__)

MOST_BYTES = 100_000


@csrf_exempt  # the signature is the proof  # nosemgrep: door-without-csrf
@require_POST
def carrier(request: HttpRequest) -> HttpResponse:
    """200 once the event is stored, or was stored before; 400 without a valid signature or with a body that is no event."""
    if len(request.body) > MOST_BYTES:
        return plain(413, "This event is too large.")
    try:
        event = read(request.body, request.headers.get("X-Signature", ""))
    except (NotGenuine, BadEvent) as problem:
        log.warning("a webhook of the carrier was refused: %s", problem)
        return plain(400, f"{problem}.")
    return plain(200, events.receive(event))
