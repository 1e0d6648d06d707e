"""How long the carrier takes to a country. Pages ask a cache; a process asks the carrier only to refresh the cache."""

from __future__ import annotations

import time
from datetime import timedelta

from orders.gateways import carrier, http
from supervision.governance.response_cache import cached

ANSWER_SECONDS = 2.0  # short, because a customer may be waiting for the page


@cached(
    "delivery-days",
    service="shipping",
    refresh_after=timedelta(hours=1),
    max_age=timedelta(days=2),
    fetch_within=timedelta(seconds=ANSWER_SECONDS),
)
def delivery_days(country: str) -> list[int] | None:
    """`[least, most]` working days, or None if the carrier does not deliver there."""
    with http.budget(time.monotonic() + 2 * ANSWER_SECONDS):  # one call takes half of its budget at most
        days = carrier.rates(country).days
    return None if days is None else list(days)
