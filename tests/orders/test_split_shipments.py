"""Orders whose products come from several warehouses: a parcel each, side by side, with its own key, tracking number and undo."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from django.core import mail
from django.core.management import call_command

from orders import services as shop_services
from orders.models import Order, Product
from orders.queries import answer, order_view
from orders.reconciliation import books
from supervision import testing
from supervision.models import ArchivedRun, Child, Submission
from supervision.models import Run as RunRow
from supervision.operations import archive
from supervision.testkit.run import Run
from tests.shopping import ADDRESS, a_product, a_request, place, signed_in
from tests.support.console import page
from tests.support.parcels import event, parcels, state, tell
from tests.support.simulators import CARRIER_SECRET

LINES = [{"sku": "MUG-BLUE", "quantity": 2}, {"sku": "PLANT", "quantity": 1}, {"sku": "TOTE", "quantity": 1}]


@pytest.fixture
def shop(sas, services, transactional_db, settings):
    settings.CARRIER_WEBHOOK_SECRET = CARRIER_SECRET
    a_product()
    a_product("TOTE")
    a_product("PLANT", warehouse="greenhouse")
    a_product("TREE", warehouse="nursery")
    return sas


def split(**changes) -> str:
    return place(lines=LINES, **changes)


def parcel(key: str, index: int) -> Run:
    return Run(f"{key}:book-shipment[{index}]:child")


def key_of(key: str, index: int) -> str:
    return testing.step(parcel(key, index).key, "book-shipment").idempotency_key


def booked(services, key: str) -> list[dict]:
    return [entry for entry in services.ledger("carrier", key) if entry["operation"] == "create" and entry["effect"]]


# ------------------------------------------------------------------------------------------------ the plan


def test_an_order_of_one_warehouse_has_the_usual_plan_and_payload(shop, services):
    keys = [place(), place(lines=[{"sku": "PLANT", "quantity": 1}])]
    shop.run()

    for key in keys:
        run = RunRow.objects.get(key=key)
        Run(key).assert_state("Processed")
        assert (run.workflow, run.version) == ("fulfil-order", 1)
        assert "warehouse" not in json.dumps(run.payload)
        assert [step["name"] for step in steps(key)] == ["reserve-stock", "charge-payment", "book-shipment", "notify-customer"]
        assert [one["warehouse"] for one in parcels(key)] == [None]
    assert not Child.objects.exists()


def steps(key: str) -> list[dict]:
    view = order_view(key)
    assert view is not None
    return answer(view)["steps"]


def test_products_of_two_warehouses_travel_in_two_parcels(shop, services, client, operator, capsys):
    key = split()
    shop.run()

    Run(key).assert_state("Processed")
    run = RunRow.objects.get(key=key)
    assert (run.workflow, run.version) == ("fulfil-order", 101)
    assert [step["name"] for step in steps(key)] == ["reserve-stock", "charge-payment", "book-shipment", "notify-customer"]
    one, two = parcels(key)
    assert (one["warehouse"], two["warehouse"], one["state"], two["state"]) == ("main", "greenhouse", "booked", "booked")
    assert one["tracking_number"] != two["tracking_number"]
    assert len(booked(services, key)) == len({entry["key"] for entry in booked(services, key)}) == 2
    assert services.charged(key) == 4 * 1290
    shown = client.get(f"/orders/{key}/").text
    assert all(each["tracking_number"] in shown for each in (one, two))
    assert all(each["tracking_number"] in operator.get(page(Order.objects.get())).text for each in (one, two))
    call_command("order", key)
    assert two["tracking_number"] in capsys.readouterr().out
    shop.assert_healthy()


def test_each_parcel_holds_the_lines_of_its_warehouse(shop, services):
    key = place(lines=[*LINES, {"sku": "TREE", "quantity": 3}])
    shop.run()

    held = [json.loads(text)["item"] for text in Child.objects.order_by("number").values_list("payload", flat=True)]
    assert held == [
        {"warehouse": "main", "lines": [{"sku": "MUG-BLUE", "quantity": 2}, {"sku": "TOTE", "quantity": 1}]},
        {"warehouse": "greenhouse", "lines": [{"sku": "PLANT", "quantity": 1}]},
        {"warehouse": "nursery", "lines": [{"sku": "TREE", "quantity": 3}]},
    ]
    Run(key).assert_state("Processed")


def test_an_order_that_reserves_the_money_first_is_split_likewise(shop, services, settings):
    settings.SHOP_CAPTURE = "after-booking"
    key, usual = split(), place()
    shop.run()

    for one, version in ((key, 102), (usual, 2)):
        Run(one).assert_state("Processed")
        assert RunRow.objects.get(key=one).version == version
    assert len(booked(services, key)) == len(parcels(key)) == 2
    assert services.charged(key) == 4 * 1290
    shop.assert_healthy()


def test_the_mail_lists_every_tracking_number(shop, services, settings):
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    key, other = split(), place()
    shop.run()

    by_order = {message.extra_headers["X-Order-ID"]: message for message in mail.outbox}
    for text in (by_order[key].body, by_order[key].alternatives[0][0]):
        assert all(each["tracking_number"] in text for each in parcels(key))
        assert "2 parcels" in text
    assert "parcel" not in by_order[other].body


def test_a_warehouse_that_changes_after_the_order_changes_no_plan(shop, services):
    key = split()
    Product.objects.update(warehouse="main")
    shop.run()

    Run(key).assert_state("Processed")
    assert len(parcels(key)) == 2


def test_a_repeated_request_is_the_same_order(shop):
    request = a_request(lines=LINES)

    first, again = (shop_services.place_order(request, account=None, idempotency_key="k") for _ in range(2))

    assert first.answer == again.answer
    assert Submission.objects.count() == 1


# ---------------------------------------------------------------------------------------------- one parcel fails


@pytest.fixture
def half(shop, services) -> str:
    """An order whose first parcel was refused once, and whose second one is booked."""
    key = split(shipping_address={**ADDRESS, "postal_code": "00000"})
    shop.run()
    assert [parcel(key, index).state for index in (0, 1)] == ["Error", "Error"]
    correct(key, 1)
    shop.run()
    return key


def correct(key: str, index: int, **more):
    api = signed_in(f"operator-{index}", "operator")
    body = {"amend": {"shipping_address": ADDRESS}, "reason": "the customer called", **more}
    answered = api.post(f"/api/v1/orders/{parcel(key, index).key}/resubmit/", body)
    assert answered.status_code == 202, answered.content


def test_one_failed_parcel_is_resubmitted_alone_with_another_address(shop, services, half, client):
    assert [each["state"] for each in parcels(half)] == ["preparing", "booked"]
    assert Run(half).state == "Processing"
    assert "Being packed" in client.get(f"/orders/{half}/").text
    first = booked(services, half)

    correct(half, 0)
    shop.run()

    Run(half).assert_state("Processed")
    assert booked(services, half)[:1] == first
    assert len(booked(services, half)) == 2
    shop.assert_healthy()


def test_a_cancelled_order_deletes_the_parcels_that_were_booked(shop, services, half):
    Run(half).cancel()
    shop.run()

    Run(half).assert_state("Cancelled")
    assert [parcel(half, index).state for index in (0, 1)] == ["Cancelled", "Cancelled"]
    assert services.effects("carrier", "create", half) == services.effects("carrier", "delete", half) == 1
    assert services.charged(half) == 0
    assert {each["state"] for each in parcels(half)} <= {"cancelled"}
    assert not Order.objects.filter(run__process_state="Processed").exists()
    shop.assert_healthy()


@pytest.mark.parametrize("place_of_death", ["agent.before_call", "agent.after_effect", "agent.after_finish"])
def test_a_process_that_dies_books_no_parcel_twice(shop, services, place_of_death):
    shop.kill("book-shipment", place_of_death)
    key = split()
    shop.run()
    shop.advance("15m")

    Run(key).assert_state("Processed")
    assert len(booked(services, key)) == 2
    assert services.charged(key) == 4 * 1290
    shop.assert_healthy()


def test_a_cancellation_while_one_booking_is_unknown_deletes_it(shop, services):
    shop.kill("book-shipment", "agent.after_effect")
    key = split()
    shop.run()
    Run(key).cancel()
    shop.advance("15m")

    Run(key).assert_state("Cancelled")
    created = [entry["key"] for entry in booked(services, key)]
    deleted = [entry["key"] for entry in services.ledger("carrier", key) if entry["operation"] == "delete"]
    assert set(created) <= set(deleted)
    assert services.charged(key) == 0


# --------------------------------------------------------------------------------------------------- afterwards


def test_each_parcel_is_moved_by_its_own_webhooks(shop, services, client):
    key = split()
    shop.run()

    tell(event(key_of(key, 1), "delivered"))
    assert [each["state"] for each in parcels(key)] == ["booked", "delivered"]
    assert "Your order is delivered" not in client.get(f"/orders/{key}/").text
    tell(event(key_of(key, 0), "delivered"))
    assert "Your order is delivered" in client.get(f"/orders/{key}/").text
    assert state(key) == "delivered"


def test_the_books_agree_with_the_carrier(shop, services, half, capsys):
    correct(half, 0)
    whole = split()
    shop.run()
    assert differences(capsys, half, whole) == set()

    gone = testing.step(parcel(whole, 0).key, "book-shipment").result["shipment"]
    services.http.delete(f"{services.url}/v1/shipments/{gone}").raise_for_status()
    extra = services.http.post(
        f"{services.url}/v1/shipments",
        json={"reference": half, "to": ADDRESS, "items": [{"sku": "A", "quantity": 1}]},
        headers={"Idempotency-Key": "a-stranger"},
    ).json()["id"]
    found = {("missing_shipment", whole, gone), ("orphan_shipment", half, extra)}
    assert differences(capsys, half, whole) == found


def differences(capsys, *orders: str) -> set[tuple[str, str, str]]:
    """What differs for these orders. The simulated carrier also holds the shipments of other tests."""
    with suppress(SystemExit):
        call_command("reconcile", "--service", "carrier", "--json")
    found = json.loads(capsys.readouterr().out)
    found = found["findings"] if isinstance(found, dict) else found
    return {(one["kind"], one["order"], one["external_id"]) for one in found if one["order"].startswith(orders)}


def test_an_archived_order_keeps_its_parcels_and_agrees_with_the_carrier(shop, services, capsys):
    key = split()
    shop.run()
    before = parcels(key)
    testing.let_pass(100 * 86_400)
    for _ in range(3):
        list(archive.batches(archive.timedelta(days=90), keep_orders=True))

    assert ArchivedRun.objects.filter(key=key).exists()
    book = books.of([key])[key]
    assert {step["result"]["tracking_number"] for step in book.done("shipping")} == {each["tracking_number"] for each in before}
    assert len([one for one in book.effects_of("carrier") if one["outcome"] == "done"]) == 2
    assert [each["tracking_number"] for each in parcels(key)] == [each["tracking_number"] for each in before]
    assert tell(event(f"{key}:book-shipment[0]:child:book-shipment:do:1", "delivered")).text == "Stored.\n"
    assert parcels(key)[0]["state"] == "delivered"
