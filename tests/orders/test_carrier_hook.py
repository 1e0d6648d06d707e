"""`POST /hooks/carrier/`: a parcel's state goes forward, and never twice, back or by forgery."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import connection

from orders.gateways.carrier_events import signature
from orders.models import Order, Parcel, ParcelEvent
from orders.parcels import events
from supervision import testing
from supervision.operations import archive
from supervision.testkit.run import Run
from tests.shopping import place
from tests.support.console import page
from tests.support.parcels import PATH, causes, event, gather, parcels, sent, shop, state, step_of, tell
from tests.support.simulators import CARRIER_SECRET

__all__ = ["sent", "shop"]


# ------------------------------------------------------------------------------------------------- signatures


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"no json", "the body"),
        (b"\xff\xfe", "the body"),
        (b"[]", "the body"),
        (b"[" * 50_000, "the body"),
        ({**event("k"), "id": 3}, "id"),
        ({**event("k"), "id": ""}, "id"),
        ({**event("k"), "key": "k\x00"}, "key"),
        ({**event("k"), "key": "k" * 256}, "key"),
        ({**event("k"), "state": "lost"}, "state"),
        ({**event("k"), "state": "deleted"}, "state"),
        ({**event("k"), "state": None}, "state"),
        ({**event("k"), "at": "yesterday"}, "at"),
        ({**event("k"), "at": "2026-11-23T18:30:00"}, "at"),
        ({**event("k"), "at": "0001-01-01T00:00:00+23:59"}, "at"),
        ({"id": "x"}, "state"),
    ],
)
def test_a_body_that_is_no_event_is_refused_by_its_field(settings, body, field):
    settings.CARRIER_WEBHOOK_SECRET = CARRIER_SECRET

    refused = tell(body)

    assert refused.status_code == 400
    assert refused.text.startswith(f"{field}: ")
    assert not ParcelEvent.objects.exists()


@pytest.mark.django_db
def test_only_what_the_carrier_has_signed_is_believed(settings):
    settings.CARRIER_WEBHOOK_SECRET = CARRIER_SECRET
    body = json.dumps(event("k")).encode()
    good = signature(CARRIER_SECRET, body)
    wrong = ("", "sha256=", "sha256=ä", good[7:], good[:-1], good + "0")
    forged = [tell(body, secret="another"), *(tell(body, signed=text) for text in wrong)]
    other = tell(json.dumps(event("k", "returned")).encode(), signed=good)

    assert {one.status_code for one in [*forged, other]} == {400}
    assert all("X-Signature" in one.text for one in forged)
    assert not ParcelEvent.objects.exists()
    settings.CARRIER_WEBHOOK_SECRET = ""
    assert tell(body, secret="").status_code == 400


@pytest.mark.django_db
def test_the_path_takes_posts_alone_and_bounded_ones(settings, client):
    settings.CARRIER_WEBHOOK_SECRET = CARRIER_SECRET

    assert client.get(PATH).status_code == 405
    assert tell(b"x" * 100_001).status_code == 413


# ------------------------------------------------------------------------------------------------------ events


def test_events_move_the_orders_page_the_answer_and_the_console(shop, sent, client, operator, capsys):
    result = step_of(sent).result
    assert parcels(sent) == [
        {
            "id": result["shipment"],
            "state": "booked",
            "tracking_number": result["tracking_number"],
            "changed_at": None,
            "warehouse": None,
        }
    ]
    assert "Waiting for the carrier" in client.get(f"/orders/{sent}/").text

    assert tell(event(step_of(sent).idempotency_key)).text == "Stored.\n"
    assert parcels(sent)[0]["state"] == "picked_up"
    assert parcels(sent)[0]["changed_at"].startswith("2026-11-23T18:30:00")
    assert "On its way to you" in client.get(f"/orders/{sent}/").text

    tell(event(step_of(sent).idempotency_key, "delivered"))
    shown = client.get(f"/orders/{sent}/").text
    assert "Your order is delivered" in shown
    assert result["tracking_number"] in shown
    told = f"{result['tracking_number']} delivered since Nov 23, 2026 18:30 UTC"
    call_command("order", sent)
    assert told in capsys.readouterr().out
    assert told in operator.get(page(Order.objects.get())).text


def test_a_repeated_event_is_stored_once_and_does_nothing(shop, sent):
    body = event(step_of(sent).idempotency_key)

    assert [tell(body).text for _ in range(3)] == ["Stored.\n", "Stored before.\n", "Stored before.\n"]

    assert ParcelEvent.objects.count() == 1
    assert state(sent) == "picked_up"


def test_the_same_event_at_the_same_moment_is_stored_once(shop, sent):
    body = event(step_of(sent).idempotency_key)

    assert testing.at_once(*[lambda: tell(body).status_code] * 4) == [200] * 4

    assert ParcelEvent.objects.count() == 1


@pytest.mark.parametrize("order", [("delivered", "picked_up"), ("returned", "delivered", "picked_up"), ("picked_up", "delivered")])
def test_events_that_overtook_each_other_end_in_the_last_state(shop, sent, order):
    for name in order:
        tell(event(step_of(sent).idempotency_key, name))

    assert state(sent) == ("returned" if "returned" in order else "delivered")
    assert Parcel.objects.get().look_at is None


def test_events_at_the_same_moment_end_in_the_last_state(shop, sent):
    key = step_of(sent).idempotency_key

    testing.at_once(*[lambda name=name: tell(event(key, name)) for name in ("delivered", "picked_up", "returned", "picked_up")])

    assert state(sent) == "returned"


def test_the_event_of_a_key_that_was_never_used_is_kept_and_said(shop, sent):
    unknown = [f"{sent}:book-shipment:do:2", "unknown:book-shipment:do:1", "x", f"{sent}:charge-payment:do:1"]

    said = {tell(event(key)).text for key in unknown}

    assert said == {f"{events.UNKNOWN}\n"}
    assert set(ParcelEvent.objects.values_list("outcome", flat=True)) == {"moved, unknown key"}
    assert state(sent) == "booked"
    assert len(causes()) == 4
    assert all(one.look_at is None for one in Parcel.objects.filter(order_key=""))


def test_an_event_before_the_bookings_answer_counts(shop, services):
    """The carrier has booked and told, and the agent's process died before it recorded the answer."""
    shop.kill("book-shipment")
    key = place()
    shop.run()
    assert step_of(key).process_state == "Processing"
    assert services.effects("carrier", "create", key) == 1

    assert tell(event(step_of(key).idempotency_key)).text == "Stored.\n"
    assert state(key) == "picked_up"

    shop.advance("15m")
    Run(key).assert_state("Processed")
    assert services.effects("carrier", "create", key) == 1
    gather()
    assert parcels(key)[0] == {**parcels(key)[0], "state": "picked_up", "id": step_of(key).result["shipment"]}
    assert Parcel.objects.get().shipment == step_of(key).result["shipment"]


def test_a_parcel_that_comes_back_is_told_to_the_operator_once(shop, sent, client):
    tell(event(step_of(sent).idempotency_key, "returned"))
    assert "comes back" in client.get(f"/orders/{sent}/").text
    [(cause, title)] = causes().items()
    assert sent in title
    assert causes() == {cause: title}

    tell(event(step_of(sent).idempotency_key, "returned", "2026-11-24T18:30:00Z"))
    assert causes() == {cause: title}
    with connection.cursor() as cursor:
        cursor.execute("UPDATE supervision_incident SET acknowledged_at = now()")
    assert causes() == {}
    assert causes() == {}


def test_a_parcel_of_a_cancelled_order_that_travels_is_told_to_the_operator(shop, services):
    key = place(shipping_address={"name": "A", "line1": "x", "city": "y", "postal_code": "00000", "country": "IT"})
    shop.run()
    Run(key).assert_state("Error")
    booked = step_of(key).idempotency_key
    Run(key).cancel()
    shop.run()
    Run(key).assert_state("Cancelled")

    assert tell(event(booked)).text == "Stored.\n"

    [title] = causes().values()
    assert "is cancelled" in title
    Run(key).assert_state("Cancelled")
    shop.assert_healthy()


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("undone", [False, True])
def test_a_parcel_that_an_operator_left_booked_may_travel(shop, services, undone, archived):
    services.faults("mail", "error_before")
    key = place()
    shop.run()
    assert step_of(key).process_state == "Processed"
    booked = step_of(key).idempotency_key
    if undone:
        Run(key).cancel()
    else:
        Run(key).abandon()
    shop.run()
    Run(key).assert_state("Cancelled")
    if archived:
        list(archive.batches(timedelta(0)))

    assert tell(event(booked)).text == "Stored.\n"

    assert [("is cancelled" in title) for title in causes().values()] == ([True] if undone else [])


def test_old_events_are_deleted(shop, sent):
    for name in ("picked_up", "delivered"):
        tell(event(step_of(sent).idempotency_key, name))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orders_parcelevent SET received_at = now() - interval '31 days' WHERE state = 'picked_up'")

    events.forget_old()

    assert list(ParcelEvent.objects.values_list("state", flat=True)) == ["delivered"]


# --------------------------------------------------------------------------------------------- the service itself


def test_the_simulated_carrier_moves_the_page_by_itself(shop, sent, services, live_server, eventually):
    services.tell(f"{live_server.url}{PATH}", "carrier")
    services.behave(webhooks_repeated=2, webhooks_late=0.2)
    for name in ("picked_up", "delivered"):
        services.move(step_of(sent).result["shipment"], name)

    eventually(lambda: ParcelEvent.objects.count() == 2 and state(sent) == "delivered")
    services.tell("", "carrier")
