"""The rate limiter: requests are counted per account and per address, in the database, for all web processes together.

One statement counts a request in both buckets and returns both counts. A cache could not do that in one step: two
processes that read before they write would let too many requests through.
"""

from __future__ import annotations

import math
import random
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from orders.api.authentication import PATIENCE_SECONDS
from supervision.postgres import db

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_FORGET_ONE_IN = 1000

_COUNT = """
INSERT INTO orders_requestcount AS c (bucket, hits, until)
SELECT bucket, 1, now() + %(seconds)s::int * interval '1 s' FROM unnest(%(buckets)s::text[]) bucket ORDER BY bucket
ON CONFLICT (bucket) DO UPDATE
SET hits = CASE WHEN c.until <= now() THEN 1 ELSE c.hits + 1 END,
    until = CASE WHEN c.until <= now() THEN EXCLUDED.until ELSE c.until END
RETURNING hits, extract(epoch FROM until - now())::float8
"""
_COUNT_NAMED = _COUNT.replace("RETURNING hits", "RETURNING bucket, hits")
_GIVE_BACK = "UPDATE orders_requestcount SET hits = hits - 1 WHERE bucket = ANY (%(buckets)s::text[]) AND hits > 0"
_FORGET = """
DELETE FROM orders_requestcount WHERE bucket IN (
    SELECT bucket FROM orders_requestcount WHERE until < now() LIMIT 5000 FOR UPDATE SKIP LOCKED)
"""


@lru_cache
def parse_rate(rate: str, name: str = "API_THROTTLE") -> tuple[int, int]:
    """`120/min` -> (120, 60). name: the setting, for the error."""
    count, _, period = rate.partition("/")
    seconds = _SECONDS.get(period.strip()[:1].lower())
    if not count.strip().isdecimal() or int(count) < 1 or seconds is None:
        raise ImproperlyConfigured(f"{name} must look like 120/min, or be off, not {rate!r}.")
    return int(count), seconds


if settings.API_THROTTLE:
    parse_rate(settings.API_THROTTLE)  # a wrong setting stops the process at its start, not at the first request


def address_of(request: Any) -> str:
    """The client's address. X-Forwarded-For counts only with TRUST_PROXY, behind a proxy that we trust."""
    address = request.META.get("REMOTE_ADDR", "")
    if settings.TRUST_PROXY:
        address = _without_port(request.META.get("HTTP_X_FORWARDED_FOR", "").rpartition(",")[2].strip()) or address
    try:
        parsed = ip_address(address)
    except ValueError:
        return str(address)[:64]
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped:
        return str(parsed.ipv4_mapped)  # as a socket that listens on :: names an IPv4 client
    if isinstance(parsed, IPv6Address):
        # A client usually has a whole /64 network: it could evade a count of single addresses.
        return f"{parsed.exploded[:19]}::/64"
    return str(parsed)


def _without_port(address: str) -> str:
    """Some proxies add the client's port, which is another one for each connection: 192.0.2.1:4711, [2001:db8::1]:4711."""
    if address.startswith("["):
        return address[1:].partition("]")[0]
    return address.partition(":")[0] if address.count(":") == 1 else address


def counted(buckets: list[str], *, seconds: int) -> list[int]:
    """Count something in each of these buckets; how often it was within their windows of so many seconds, this time included."""
    found = counted_until(buckets, seconds=seconds)
    return [found[bucket][0] for bucket in buckets]


def counted_until(buckets: list[str], *, seconds: int) -> dict[str, tuple[int, float]]:
    """As `counted`, by bucket, with the seconds until its window ends."""
    found = db.run(_COUNT_NAMED, {"seconds": seconds, "buckets": buckets}, patience=PATIENCE_SECONDS)
    _forget_now_and_then()
    return {bucket: (hits, wait) for bucket, hits, wait in found}


def beyond_rate(account: Any) -> bool:
    """Count a request of this account that does not come through the API; whether it has more than API_THROTTLE allows."""
    if not settings.API_THROTTLE:
        return False
    most, seconds = parse_rate(settings.API_THROTTLE)
    return counted([f"user:{account.pk}"], seconds=seconds)[0] > most


def give_back(buckets: list[str]) -> None:
    """Take one off the count of each of these buckets."""
    db.run(_GIVE_BACK, {"buckets": buckets}, patience=PATIENCE_SECONDS)


def _forget_now_and_then() -> None:
    if random.randrange(_FORGET_ONE_IN) == 0:  # noqa: S311 - only chooses when to clean up
        db.run(_FORGET, patience=PATIENCE_SECONDS)


class Quota(NamedTuple):
    """What a request has left of its rate: requests, until the window ends in `wait` seconds."""

    most: int
    seconds: int
    left: int
    wait: int


class AccountAndAddressThrottle(BaseThrottle):
    """Allows API_THROTTLE requests per account, and as many per address."""

    remaining_seconds: float | None = None

    def allow_request(self, request: Request, view: Any) -> bool:
        """Count the request; False if there were too many in this window."""
        if not settings.API_THROTTLE:
            return True
        most, seconds = parse_rate(settings.API_THROTTLE)
        buckets = [f"address:{address_of(request)}"]
        if request.user is not None and request.user.is_authenticated:
            buckets.append(f"user:{request.user.pk}")
        counted = db.run(_COUNT, {"seconds": seconds, "buckets": buckets}, patience=PATIENCE_SECONDS)
        waits = [wait for hits, wait in counted if hits > most]
        hits, wait = max(counted)
        request._request.quota = Quota(most, seconds, max(0, most - hits), math.ceil(wait))  # type: ignore[attr-defined]  # `orders.middleware` writes it
        _forget_now_and_then()
        self.remaining_seconds = max(waits, default=None)
        return not waits

    def wait(self) -> float | None:
        """Seconds until the window ends: the answer's Retry-After."""
        return self.remaining_seconds
