"""Checkout over plain HTTP: a form becomes one order at the price that the visitor saw, or shows its errors."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.test import Client
from django.utils.crypto import salted_hmac

from orders import services
from orders.models import Product
from supervision import testing
from supervision.models import Submission
from tests.shopping import ADDRESS, place

pytestmark = pytest.mark.usefixtures("no_hints")

FILLED_IN = {"email": "ada@example.com", "payment_method": "pm_card_visa", **ADDRESS}


def fields_of(html: str) -> dict[str, str]:
    """The checkout form's hidden fields, as a browser would send them back."""
    pairs = re.findall(r'<input type="hidden" name="(token|seen|expected_total)" value="([^"]*)"', html)
    return {name: unescape(value) for name, value in pairs}


def a_checkout(client: Client) -> dict[str, str]:
    """A visitor with mugs in the cart, and the data of a filled-in checkout form."""
    client.post("/cart/MUG-BLUE/add/", {"quantity": 2})
    return FILLED_IN | fields_of(client.get("/checkout/").text)


def test_a_guest_checks_out_and_lands_on_the_order_page(client, mug) -> None:
    form = a_checkout(client)

    answer = client.post("/checkout/", form)

    public_id = Submission.objects.get().public_id
    assert answer.headers["Location"] == f"/orders/{public_id}/"
    assert "We have your order" in client.get(answer.headers["Location"]).text
    assert "Nothing in it yet" in client.get("/cart/").text


def test_a_form_sent_twice_places_one_order(client, mug) -> None:
    form = a_checkout(client)

    first = client.post("/checkout/", form)
    second = client.post("/checkout/", form)

    assert Submission.objects.count() == 1
    assert first.headers["Location"] == second.headers["Location"]


def test_a_form_sent_twice_at_once_places_one_order(client, mug) -> None:
    form = a_checkout(client)
    before = dict(client.session)

    first = client.post("/checkout/", form)
    session = client.session  # the second request loads the session before the first one saves it
    session.pop("placed")
    session.update(before)
    session.save()
    second = client.post("/checkout/", form)

    assert Submission.objects.count() == 1
    assert first.headers["Location"] == second.headers["Location"]


@pytest.mark.parametrize("first_by", ["restarted", "not restarted yet"])
def test_a_form_sent_twice_places_one_order_while_the_secret_key_is_replaced(client, mug, settings, first_by) -> None:
    keys = [settings.SECRET_KEY, "another key of this installation, which is long enough"]
    form = a_checkout(client)
    before = dict(client.session)

    settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS = reversed(keys) if first_by == "restarted" else keys
    first = client.post("/checkout/", form)
    session = client.session  # the second request loads the session before the first one saves it
    session.pop("placed")
    session.update(before)
    session.save()
    settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS = keys if first_by == "restarted" else reversed(keys)
    second = client.post("/checkout/", form)

    assert Submission.objects.count() == 1
    assert first.headers["Location"] == second.headers["Location"]


def test_a_form_that_the_release_before_has_taken_places_one_order(client, mug) -> None:
    form = a_checkout(client)
    of_then = salted_hmac("orders.checkout", f"{client.session.session_key}:{form['token']}", algorithm="sha256").hexdigest()
    request = {name: form[name] for name in ("email", "payment_method")}
    lines = [{"sku": "MUG-BLUE", "quantity": 2}]
    address = {name: form[name] for name in ADDRESS}
    services.place_order(
        {**request, "shipping_address": address, "lines": lines, "language": "en", "expected_total": form["expected_total"]},
        account=None,
        idempotency_key=of_then,
    )

    client.post("/checkout/", form)

    assert Submission.objects.count() == 1


def test_two_visitors_with_the_same_token_place_two_orders(mug) -> None:
    one, other = Client(), Client()
    form, theirs = a_checkout(one), a_checkout(other)

    one.post("/checkout/", form)
    other.post("/checkout/", theirs | {"token": form["token"]})

    assert Submission.objects.count() == 2


def test_the_same_form_with_other_details_is_not_taken_for_the_first(client, mug) -> None:
    form = a_checkout(client)
    before = dict(client.session)
    client.post("/checkout/", form)
    session = client.session
    session.pop("placed")
    session.update(before)
    session.save()

    answer = client.post("/checkout/", form | {"city": "Milano"})

    assert answer.status_code == 409
    assert "sent twice with different details" in answer.text
    assert len(fields_of(answer.text)["token"]) == len(form["token"])
    assert fields_of(answer.text)["token"] != form["token"]
    assert Submission.objects.count() == 1


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("email", "no-address", "Enter a valid email address."),
        ("name", "", "This field is required."),
        ("country", "XX", "Select a valid choice."),
        ("payment_method", "pm_other", "Select a valid choice."),
        ("city", "Tor\x07ino", "Control characters are not allowed."),
        ("postal_code", "1" * 21, "at most 20 characters"),
    ],
)
def test_a_wrong_field_is_explained_beside_it_and_the_rest_is_kept(client, mug, field, value, complaint) -> None:
    form = a_checkout(client)

    answer = client.post("/checkout/", form | {"line1": "Kept Street 5", field: value})

    assert answer.status_code == 400
    assert re.search(rf'id="wrong_{field}">[^<]*{re.escape(complaint)}', answer.text)
    assert "Kept Street 5" in answer.text
    assert not Submission.objects.exists()


def test_a_price_change_is_shown_with_both_prices_before_anything_is_ordered(client, mug) -> None:
    form = a_checkout(client)
    Product.objects.update(price="13.50")

    answer = client.post("/checkout/", form)

    assert answer.status_code == 409
    assert re.search(r"Blue mug: <s>€12\.90</s> → <strong>€13\.50", answer.text)
    assert "The total is now €27.00" in answer.text
    assert not Submission.objects.exists()

    again = client.post("/checkout/", FILLED_IN | fields_of(answer.text))

    assert again.status_code == 302
    assert '"total":"27.00"' in Submission.objects.get().payload


def test_a_total_in_another_currency_than_the_page_showed_is_not_charged(client, mug) -> None:
    form = a_checkout(client)
    Product.objects.update(currency="USD")

    answer = client.post("/checkout/", form)

    assert answer.status_code == 409
    assert "The total is now $25.80" in answer.text
    assert not Submission.objects.exists()

    assert client.post("/checkout/", FILLED_IN | fields_of(answer.text)).status_code == 302


def test_a_cart_that_was_changed_in_another_tab_is_no_change_of_a_price(client, mug) -> None:
    form = a_checkout(client)
    client.post("/cart/MUG-BLUE/add/", {"quantity": 1})

    answer = client.post("/checkout/", form)

    assert answer.status_code == 409
    assert "The total has changed since you looked. Nothing was ordered yet." in answer.text
    assert "A price has changed" not in answer.text
    assert "The total is now €38.70" in answer.text


def test_a_total_that_was_tampered_with_is_not_the_price(client, mug) -> None:
    form = a_checkout(client)

    answer = client.post("/checkout/", form | {"expected_total": "0.01"})

    assert answer.status_code == 409
    assert not Submission.objects.exists()


def test_what_is_out_of_stock_is_named_before_anything_is_ordered(client, mug) -> None:
    form = a_checkout(client)
    Product.objects.update(available=1)

    answer = client.post("/checkout/", form)

    assert answer.status_code == 409
    assert "Blue mug: you want 2, we have 1" in answer.text
    assert not Submission.objects.exists()


def test_an_account_is_offered_its_last_address(client, mug, ada) -> None:
    place(ada, shipping_address=ADDRESS | {"line1": "Corso Francia 9"})
    testing.schedule()
    client.force_login(ada)
    client.post("/cart/MUG-BLUE/add/")

    page = client.get("/checkout/").text

    assert "Corso Francia 9" in page
    assert "ada@example.com" in page


def test_an_empty_cart_does_not_check_out(client, mug) -> None:
    assert client.get("/checkout/").headers["Location"] == "/cart/"
