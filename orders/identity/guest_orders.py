"""Orders without an account are limited, because each sends mails with texts and to an address that the visitor chooses."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from orders.api.throttling import address_of, counted, parse_rate

TO_ONE_ADDRESS = 5  # orders of one mail address, within the time of GUEST_ORDERS

if settings.GUEST_ORDERS:
    parse_rate(settings.GUEST_ORDERS, "GUEST_ORDERS")  # a wrong setting stops the process at its start


def refused(request: Any, mail: str) -> bool:
    """Count an order that a guest is about to place; whether there were too many from this network, or for this mail address."""
    if not settings.GUEST_ORDERS:
        return False
    most, seconds = parse_rate(settings.GUEST_ORDERS, "GUEST_ORDERS")
    of_network, of_mail = counted([f"guests:{address_of(request)}", f"guest:{mail.strip().lower()}"], seconds=seconds)
    return of_network > most or of_mail > TO_ONE_ADDRESS
