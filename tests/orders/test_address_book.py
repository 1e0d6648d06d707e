"""The address book, and the checkout that is filled in from it."""

from __future__ import annotations

import re
from threading import Thread

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from orders.accounts import book
from orders.accounts.tables import SavedAddress
from orders.models import Order
from supervision import testing
from supervision.models import Submission
from tests.engine.kit import BLOCKED
from tests.shopping import ADDRESS
from tests.support.shop import until

pytestmark = pytest.mark.usefixtures("no_hints")

HOME = {**ADDRESS, "country_area": ""}
WORK = {**HOME, "name": "Ada at work", "line1": "Via Po 2"}


@pytest.fixture
def shopper(client, ada, mug):
    client.force_login(ada)
    client.post("/cart/MUG-BLUE/add/")
    return client


def hidden(page: str) -> dict[str, str]:
    return {name: re.search(rf'name="{name}" value="([^"]*)"', page).group(1) for name in ("token", "seen", "expected_total")}


def check_out(client, **given: str):
    page = client.get("/checkout/").text
    return client.post("/checkout/", {"email": "ada@example.com", "payment_method": "pm_card_visa", **hidden(page), **given})


def goes_to() -> dict[str, str]:
    testing.schedule()
    return Order.objects.get().run.payload["shipping_address"]


def test_the_first_address_is_the_default_and_another_one_can_become_it(ada) -> None:
    home, work = book.add(ada, HOME), book.add(ada, WORK)
    assert [one.pk for one in book.addresses(ada)] == [home.pk, work.pk]

    assert book.make_default(ada, work.pk)
    assert [one.pk for one in book.addresses(ada)] == [work.pk, home.pk]
    assert book.delete(ada, work.pk)

    assert [(one.pk, one.is_default) for one in book.addresses(ada)] == [(home.pk, True)]


def test_an_address_is_in_the_book_once_and_no_more_than_twenty_fit_in(ada) -> None:
    for number in range(book.MOST):
        book.add(ada, {**HOME, "line1": f"Via Roma {number}"})
    same = book.add(ada, {**HOME, "line1": "Via Roma 3"})

    assert SavedAddress.objects.count() == book.MOST
    assert same.line1 == "Via Roma 3"
    with pytest.raises(book.BookFull):
        book.add(ada, WORK)


@pytest.mark.django_db(transaction=True)
def test_a_second_change_waits_until_the_first_one_is_committed() -> None:
    ada = User.objects.create_user("ada")
    for number in range(book.MOST - 1):
        book.add(ada, {**HOME, "line1": f"Via Roma {number}"})
    results: list[str] = []

    def add() -> None:
        try:
            book.add(ada, WORK)
            results.append("added")
        except book.BookFull:
            results.append("full")
        finally:
            connection.close()

    def waits() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(BLOCKED)
            return bool(cursor.fetchall())

    thread = Thread(target=add)
    with transaction.atomic():
        book.add(ada, {**HOME, "line1": "the last that fits in"})
        thread.start()
        until(lambda: results or waits(), what="the second change")
    thread.join()

    assert results == ["full"]


def test_the_pages_add_change_and_delete(client, ada) -> None:
    client.force_login(ada)

    assert "No address yet" in client.get("/accounts/addresses/").text
    client.post("/accounts/addresses/new/", HOME)
    client.post("/accounts/addresses/new/", {**WORK, "is_default": "on"})
    home, work = SavedAddress.objects.order_by("id")
    assert (home.is_default, work.is_default) == (False, True)

    client.post(f"/accounts/addresses/{home.pk}/", {**HOME, "city": "Milano", "postal_code": "20121"})
    client.post(f"/accounts/addresses/{home.pk}/change/")
    home.refresh_from_db()
    assert (home.city, home.is_default) == ("Milano", True)
    assert "Milano" in client.get("/accounts/").text

    client.post(f"/accounts/addresses/{home.pk}/change/", {"delete": "1"})
    page = client.get("/accounts/addresses/").text
    assert "Milano" not in page
    assert "Ada at work" in page


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"postal_code": "x"}, "postal_code"), ({"country": "XX"}, "country"), ({"name": ""}, "name"), ({"line1": "y" * 201}, "line1")],
)
def test_a_wrong_address_is_refused_at_its_field(client, ada, changes, field) -> None:
    client.force_login(ada)

    answer = client.post("/accounts/addresses/new/", {**HOME, **changes})

    assert answer.status_code == 400
    assert f'id="wrong_{field}"' in answer.text
    assert not SavedAddress.objects.exists()


def test_a_full_book_says_so(client, ada) -> None:
    client.force_login(ada)
    for number in range(book.MOST):
        book.add(ada, {**HOME, "line1": f"Via Roma {number}"})

    assert "no more fit in" in client.post("/accounts/addresses/new/", WORK).text
    assert "Add an address" not in client.get("/accounts/addresses/").text


def test_another_accounts_addresses_do_not_exist(client, ada, bob) -> None:
    row = book.add(bob, HOME)
    client.force_login(ada)

    assert client.get(f"/accounts/addresses/{row.pk}/").status_code == 404
    assert client.post(f"/accounts/addresses/{row.pk}/", WORK).status_code == 404
    assert client.post(f"/accounts/addresses/{row.pk}/change/", {"delete": "1"}).status_code == 404
    assert client.post(f"/accounts/addresses/{row.pk}/change/").status_code == 404
    row.refresh_from_db()
    assert row.line1 == HOME["line1"]


def test_an_account_can_be_deleted_with_its_addresses(ada) -> None:
    book.add(ada, HOME)
    ada.delete()

    assert not SavedAddress.objects.exists()


def test_the_checkout_is_filled_in_with_mail_and_default_address(shopper, ada) -> None:
    book.add(ada, HOME)
    work = book.add(ada, WORK, as_default=True)

    page = shopper.get("/checkout/").text

    assert 'value="ada@example.com"' in page
    assert re.search(rf'name="address" value="{work.pk}" checked', page)
    assert check_out(shopper, address=str(work.pk)).status_code == 302
    assert goes_to()["line1"] == "Via Po 2"


def test_another_saved_address_or_a_new_one_can_be_chosen(shopper, ada) -> None:
    home = book.add(ada, HOME)
    book.add(ada, WORK, as_default=True)

    assert check_out(shopper, address=str(home.pk), line1="typed and not meant").status_code == 302

    assert goes_to()["line1"] == HOME["line1"]


def test_a_new_address_is_saved_if_asked_for(shopper, ada) -> None:
    book.add(ada, WORK)
    check_out(shopper, address="new", **HOME)
    assert SavedAddress.objects.count() == 1

    shopper.post("/cart/MUG-BLUE/add/")
    check_out(shopper, address="new", save_address="on", **{**HOME, "postal_code": " 10121 "})
    shopper.post("/cart/MUG-BLUE/add/")
    check_out(shopper, address="new", save_address="on", **HOME)

    assert [one.line1 for one in book.addresses(ada)] == [WORK["line1"], HOME["line1"]]
    assert Submission.objects.count() == 3


def test_a_full_book_holds_no_order_up(shopper, ada) -> None:
    for number in range(book.MOST):
        book.add(ada, {**HOME, "line1": f"Via Po {number}"})

    assert check_out(shopper, address="new", save_address="on", **HOME).status_code == 302
    assert SavedAddress.objects.count() == book.MOST


def test_another_accounts_address_is_not_sent_to(shopper, ada, bob) -> None:
    row = book.add(bob, HOME)

    answer = check_out(shopper, address=str(row.pk))

    assert answer.status_code == 400
    assert HOME["line1"] not in answer.text


def test_a_saved_address_that_is_no_longer_delivered_to_is_shown_in_the_fields(shopper, ada, settings) -> None:
    row = book.add(ada, HOME)
    settings.DELIVERY_COUNTRIES = ["DE"]

    answer = check_out(shopper, address=str(row.pk))

    assert answer.status_code == 400
    assert re.search(r'name="address" value="new" checked', answer.text)
    assert 'value="Via Roma 1"' in answer.text
    assert 'id="wrong_country"' in answer.text


def test_a_guest_sees_nothing_of_address_books(client, mug) -> None:
    client.post("/cart/MUG-BLUE/add/")

    page = client.get("/checkout/").text

    assert "saved-addresses" not in page
    assert "Save this address" not in page
