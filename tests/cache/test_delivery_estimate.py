"""The delivery estimate, a cached answer of the carrier: a page never waits for it and never fails for it."""

from __future__ import annotations

import pytest
from django.contrib.sessions.models import Session

from orders.agents.rates import delivery_days
from orders.gateways import carrier
from orders.models import Product
from supervision.governance.response_cache import NotAvailable
from supervision.models import CachedResult, Resource
from tests.support.simulators import Simulators

pytestmark = pytest.mark.usefixtures("service")


@pytest.fixture
def shop(services: Simulators, client):
    """A healthy carrier and an empty cache."""
    return client


def estimate(client, country: str) -> str:
    answer = client.get("/delivery-estimate/", {"country": country})
    assert answer.status_code == 200
    return answer.text.strip()


@pytest.mark.parametrize(("country", "words"), [("IT", "1 to 2"), ("DE", "2 to 4"), ("JP", "5 to 10")])
def test_a_visitor_sees_in_how_many_days_the_order_comes(shop, country, words):
    assert estimate(shop, country) == f"Arrives in {words} working days."


def test_a_browser_keeps_the_sentence_for_one_language(shop):
    answer = shop.get("/delivery-estimate/", {"country": "IT"})

    assert "max-age=300" in answer["Cache-Control"]
    assert "Cookie" in answer["Vary"]  # it holds the language


def test_the_carrier_is_asked_once_for_all_visitors(shop, services):
    before = services.stats()["carrier"]["calls"]

    assert {estimate(shop, "FR") for _ in range(5)} == {"Arrives in 2 to 4 working days."}

    assert services.stats()["carrier"]["calls"] == before + 1


@pytest.mark.parametrize("country", ["", "XX", "it", "<b>", "IT" * 1000])
def test_the_carrier_is_not_asked_about_countries_that_we_do_not_serve(shop, services, country):
    before = services.stats()["carrier"]["calls"]

    assert estimate(shop, country) == ""
    assert services.stats()["carrier"]["calls"] == before


@pytest.mark.parametrize("mode", ["down", "error_before"])
def test_a_carrier_that_is_down_leaves_the_page_without_an_estimate(shop, services, mode):
    services.faults("carrier", mode)

    assert estimate(shop, "ES") == ""
    assert CachedResult.objects.get(key="ES").last_error


def test_a_slow_carrier_does_not_hold_a_visitor_for_long(shop, services, monkeypatch):
    monkeypatch.setattr("orders.agents.rates.ANSWER_SECONDS", 0.2)
    services.faults("carrier", "slow", latency_ms=5000)

    assert estimate(shop, "PT") == ""


def test_a_carrier_that_is_down_is_not_asked_and_its_last_answer_holds(shop, services):
    estimate(shop, "IT")
    services.faults("carrier", "down")
    Resource.objects.update_or_create(
        name="shipping", defaults={"service": "shipping", "breaker_state": "open", "retry_at": "2999-01-01T00:00Z"}
    )
    try:
        assert estimate(shop, "IT") == "Arrives in 1 to 2 working days."
        assert estimate(shop, "AT") == ""
    finally:
        Resource.objects.filter(name="shipping").update(breaker_state="closed", retry_at=None)


def test_the_estimate_counts_neither_for_nor_against_the_carriers_breaker(shop, services):
    services.faults("carrier", "error_before")
    for country in ("AT", "BE", "BG", "CH", "CY", "CZ", "DE", "DK"):
        estimate(shop, country)

    assert not Resource.objects.filter(name="shipping").exclude(breaker_state="closed", failures=0).exists()


def test_a_country_the_carrier_does_not_serve_is_said(shop, settings):
    settings.DELIVERY_COUNTRIES = ["AQ"]

    assert "does not deliver to Antarctica at present" in estimate(shop, "AQ")


def test_the_carrier_simulator_answers_for_countries(services):
    assert carrier.Delivery(None) == _rates("BV")
    assert carrier.Delivery((1, 2)) == _rates("it")
    assert services.http.get(f"{services.url}/v1/rates?country=ITA").status_code == 400


def _rates(country: str) -> carrier.Delivery:
    found = delivery_days._fetch(country)
    return carrier.Delivery(None if found is None else tuple(found))


def test_an_answer_that_makes_no_sense_is_none(services, monkeypatch):
    monkeypatch.setattr("orders.gateways.carrier._call", lambda *_: carrier.http.Reply(200, {}, b'{"serviceable": true}'))

    with pytest.raises(NotAvailable, match="cannot be read"):
        delivery_days.get("NL")


def test_the_checkout_page_asks_for_the_estimate_by_itself(shop):
    Product.objects.create(sku="MUG", name="Mug", price="12.90", available=5)
    try:
        shop.post("/cart/MUG/add/", {"quantity": 1})
        assert 'hx-get="/delivery-estimate/"' in shop.get("/checkout/").text
    finally:
        Product.objects.all().delete()
        Session.objects.all().delete()
