"""The delivery estimate at checkout: a separate page fragment, so that the checkout page never waits for the carrier."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_cache_control, patch_vary_headers
from django.views.decorators.http import require_safe

from orders.accounts.checkout import country_of
from orders.agents.rates import delivery_days
from orders.countries import country_name, delivery_countries
from supervision.governance.response_cache import NotAvailable

PATIENCE = 2.0


@require_safe
def estimate(request: HttpRequest) -> HttpResponse:
    """The days until an order reaches `?country=`, or the saved address `?address=`; empty if they are not known now."""
    country = country_of(request)
    facts: dict[str, Any] = {"known": False}
    if country in delivery_countries():
        try:
            days = delivery_days.get(country, patience=PATIENCE).value
        except NotAvailable:
            pass  # the estimate is optional
        else:
            facts = {"known": True, "days": days, "name": country_name(country)}
    response = render(request, "orders/_delivery.html", facts)
    patch_cache_control(response, private=True, max_age=300 if facts["known"] else 0)
    patch_vary_headers(response, ["Cookie"])  # it holds the language
    return response
