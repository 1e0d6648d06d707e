"""An archived order looks the same to its owner and to operators as before: in the shop, API, console and commands."""

from __future__ import annotations

import json

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.utils import timezone

from orders.models import Order, OrderLine, StockReservation
from supervision import testing
from supervision.audit import registry
from supervision.execution import runner
from supervision.models import ArchivedRun, Notification, Run
from supervision.operations import operator_verbs
from supervision.store import step_verbs
from tests.engine.kit import said
from tests.shopping import a_client, a_product, a_request, an_account
from tests.support.console import person

from .conftest import let_pass, rows

pytestmark = pytest.mark.django_db

ORDERS = "/api/v1/orders/"


@pytest.fixture(autouse=True)
def _quiet(settings):
    settings.API_THROTTLE = None
    with testing.quiet():
        yield


@pytest.fixture
def owner():
    a_product(), a_product("TEAPOT-SAND", price="38.00")
    return an_account("ada", "customer")


@pytest.fixture
def order(owner) -> str:
    """An order that was Processed long ago."""
    return placed(owner)


def placed(owner, *, days: float = 100, undo: bool = False, **headers) -> str:
    lines = [{"sku": "MUG-BLUE", "quantity": 2}, {"sku": "TEAPOT-SAND", "quantity": 1}]
    answer = a_client(owner).post(ORDERS, a_request(lines=lines), headers=headers)
    public_id = answer.json()["id"]
    ((place, claims),) = testing.schedule()
    place, claims = runner.run(place, claims)
    if undo:
        operator_verbs.cancel(public_id, by="ada", reason="no longer wanted")
    while claims:  # no agent calls payment, carrier or mail here: the test writes their answers itself
        claims = step_verbs.finish_at(place)([(started, {"tracking_number": "T-1"}) for started in step_verbs.start(place, claims)]).claims
        place = place.following
    testing.make_due()
    testing.run_until_idle()
    Notification.objects.update(delivered_at=timezone.now())
    let_pass(days, public_id)
    assert testing.run_of(public_id).process_state == ("Cancelled" if undo else "Processed")
    return public_id


def archive(*options: str) -> dict:
    printed = said("archive", "--json", *options)
    assert list(registry.violations()) == []
    return json.loads(printed)


KEEPS = pytest.mark.parametrize("options", [(), ("--keep-orders",)], ids=["whole", "orders-kept"])


@KEEPS
@pytest.mark.parametrize("undo", [False, True], ids=["processed", "cancelled"])
def test_owner_and_operator_read_it_as_before_and_strangers_do_not(owner, options, undo):
    public_id = placed(owner, undo=undo)
    readers = [a_client(owner), a_client(an_account("olga", "operator")), a_client(an_account("bob", "customer"))]
    doors = [f"{ORDERS}{public_id}/", f"{ORDERS}{public_id}/events/", f"{ORDERS}{public_id}/events/?after=3"]
    before = [(answer.status_code, answer.content) for reader in readers for door in doors for answer in [reader.get(door)]]

    assert archive(*options)["runs"] == 1

    after = [(answer.status_code, answer.content) for reader in readers for door in doors for answer in [reader.get(door)]]
    assert not Run.objects.filter(key=public_id).exists()
    assert after == before
    assert [status for status, _ in after] == [200] * 6 + [404] * 3


@KEEPS
def test_the_command_shows_it_by_its_id_and_by_its_number(order, options):
    number = Order.objects.get(public_id=order).number
    asked = [("order", order), ("order", number), ("order", order, "--json")]
    before = [said(*words) for words in asked]

    archive(*options)

    assert [said(*words) for words in asked] == before
    assert "charge-payment" in before[0]


@KEEPS
def test_the_customers_page_shows_it(order, owner, options):
    visitor = Client()
    visitor.force_login(owner)
    before = visitor.get(f"/orders/{order}/")

    archive(*options)

    after = visitor.get(f"/orders/{order}/")
    assert (before.status_code, after.status_code) == (200, 200)
    assert b"T-1" in after.content


def test_an_order_leaves_the_tables_with_everything_the_shop_wrote_about_it(order):
    archive()

    assert not Order.objects.exists()
    assert not OrderLine.objects.exists()
    assert not StockReservation.objects.exists()


def test_the_shops_lists_go_on_showing_orders_that_it_keeps(order, owner):
    recent = placed(owner, days=1)
    visitor = Client()
    visitor.force_login(owner)
    asked = [ORDERS, f"{ORDERS}?process_state=Processed", f"{ORDERS}?process_state=Error"]
    before = [a_client(owner).get(door).json()["results"] for door in asked]
    assert [len(results) for results in before] == [2, 2, 0]

    archive("--keep-orders")

    assert [a_client(owner).get(door).json()["results"] for door in asked] == before
    assert {row["id"] for row in json.loads(said("orders", "--json"))} == {order, recent}
    assert visitor.get("/orders/").content.count(b"On its way") == 2
    assert StockReservation.objects.count() == 2


def test_lists_show_what_the_tables_hold_and_no_more(order, owner):
    recent = placed(owner, days=1)

    archive()

    assert [row["id"] for row in a_client(owner).get(ORDERS).json()["results"]] == [recent]


@KEEPS
def test_the_console_shows_it_and_offers_nothing_to_do(order, options):
    pk = Order.objects.get(public_id=order).pk
    number = Order.objects.get(public_id=order).number
    operator = Client()
    operator.force_login(person("olga", "operator"))

    archive(*options)

    found = operator.get("/admin/supervision/archivedrun/", {"q": number})
    page = operator.get(f"/admin/supervision/archivedrun/{order}/change/")
    assert number in found.content.decode()
    assert (page.status_code, b"charge-payment" in page.content, b"sc-verb-" in page.content) == (200, True, False)
    assert operator.get(f"/admin/orders/order/{pk}/change/").status_code == (200 if options else 404)
    assert operator.post(f"/admin/supervision/archivedrun/{order}/change/").status_code == 405
    client = Client()
    client.force_login(person("ada2", "customer", staff=False))
    assert client.get(f"/admin/supervision/archivedrun/{order}/change/").status_code == 302


def test_a_repeated_request_still_gets_the_first_answer_and_no_second_order(owner):
    key = {"Idempotency-Key": "k-1"}
    first = placed(owner, days=31, **key)
    lines = [{"sku": "MUG-BLUE", "quantity": 2}, {"sku": "TEAPOT-SAND", "quantity": 1}]

    archive()
    again = a_client(owner).post(ORDERS, a_request(lines=lines), headers=key)
    other = a_client(owner).post(ORDERS, a_request(), headers=key)

    assert (again.status_code, again.json()["id"]) == (202, first)
    assert other.status_code == 422
    assert testing.schedule() == []
    assert a_client(owner).get(f"{ORDERS}{first}/").json()["process_state"] == "Processed"


def test_an_archived_order_is_refused_to_be_cancelled(order, owner):
    archive()

    answer = a_client(owner).post(f"{ORDERS}{order}/cancel/", {"reason": "too late"})

    assert (answer.status_code, answer.json()["code"]) == (409, "archived")


def test_a_dry_run_says_what_there_is(order):
    before = rows()

    words = said("archive", "--dry-run")

    assert "1 orders would be archived" in words
    assert rows() == before


def test_the_command_says_what_it_did_and_what_it_left(order, owner):
    stays = placed(owner)
    db_alert(stays)

    words = said("archive", "--batch", "1")

    assert "1 orders archived with 4 steps" in words
    assert "1 left where they are" in words


def db_alert(public_id: str) -> None:
    testing.run_of(public_id).alerts.create(position=3, direction="do", generation=1, kind="skipped")


@pytest.mark.parametrize("wrong", [("--older-than", "soon"), ("--older-than", "-1"), ("--batch", "0")])
def test_a_mistake_is_answered_by_one_line(wrong):
    with pytest.raises(CommandError, match=wrong[0]):
        call_command("archive", *wrong)


def test_an_archived_order_takes_little_room(order):
    archive()

    size = ArchivedRun.objects.extra(select={"size": "pg_column_size(supervision_archivedrun.*)"}).get().size  # type: ignore[attr-defined]
    assert size < 2500
