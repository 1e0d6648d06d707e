"""The services' listings, like the real ones: paged, without the search's lag, and with objects that failed later."""

from __future__ import annotations

import smtplib
import time
from datetime import UTC, datetime, timedelta

import pytest

from orders.agents import listings
from orders.agents.listings import Listing
from orders.gateways import carrier, http, payment
from tests.support.simulators import KEY, Simulators

HOME = {"name": "Ada L.", "line1": "Via Roma 1", "city": "Torino", "postal_code": "10121", "country": "IT"}
ITEMS = [{"sku": "MUG-BLUE", "quantity": 1}]


@pytest.fixture
def since() -> datetime:
    return datetime.now(UTC) - timedelta(seconds=1)


@pytest.fixture(autouse=True)
def budget():
    """Give the gateways a time budget."""
    with http.budget(time.monotonic() + 60):
        yield


@pytest.fixture
def charge(services, order):
    """Charge this test's order; returns the intent."""

    def call(name: str = "first", method: str = "pm_card_visa", of: str | None = None) -> payment.Intent:
        key = f"{order}:{name}"
        made = payment.create(amount=2580, currency="EUR", order=of or order, step_key=key, key=f"{key}:create")
        return payment.confirm(made.id, payment_method=method, key=f"{key}:confirm")

    return call


def test_what_a_broken_reading_did_not_reach_is_read_the_next_time(monkeypatch):
    """A service lists the newest first, and fails between two pages."""
    began = datetime.now(UTC)
    old, new = (began - timedelta(minutes=30), "old"), (began, "new")
    asked, fails = [], [False]

    def read(since):
        asked.append(since)
        yield new
        if fails[0]:
            raise payment.Broken("no second page")
        if since <= old[0]:
            yield old

    listing = Listing(read, order_of=lambda one: "order", name_of=lambda one: one[1], created_of=lambda one: one[0])
    monkeypatch.setattr(listings, "FRESH_SECONDS", -1.0)
    listing._from, listing._newest = began - timedelta(hours=2), began - timedelta(hours=1)  # read until an hour ago
    fails[0] = True
    with pytest.raises(payment.Broken):
        listing.of("order", began)
    fails[0] = False

    assert {name for _, name in listing.of("order", began)} == {"old", "new"}
    assert asked[0] == asked[1]


def page(services: Simulators, path: str, **query):
    return services.http.get(f"{services.url}/v1/{path}", params=query, headers=KEY)


def ours(found, order):
    return [one for one in found if one.order == order]


def test_every_payment_is_listed_newest_first_over_as_many_pages_as_it_takes(services, order, charge, since, monkeypatch):
    monkeypatch.setattr(payment, "LIST_PAGE", 2)
    charged = [charge(str(number)).id for number in range(5)]

    found = ours(payment.listed(since), order)

    assert [one.id for one in found] == charged[::-1]
    assert {(one.status, one.received, one.currency) for one in found} == {("succeeded", 2580, "eur")}
    assert all(one.created >= since - timedelta(seconds=1) for one in found)


def test_a_list_begins_where_it_is_asked_to_and_not_before(services, order, charge):
    charge()

    assert ours(payment.listed(datetime.now(UTC) + timedelta(minutes=1)), order) == []
    first = page(services, "payment_intents", limit=1).json()
    assert (first["object"], first["url"], len(first["data"])) == ("list", "/v1/payment_intents", 1)
    assert page(services, "payment_intents", **{"created[lt]": "1"}).json()["data"] == []


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"limit": "0"}, 400),
        ({"limit": "101"}, 400),
        ({"created[gte]": "yesterday"}, 400),
        ({"starting_after": "pi_unknown"}, 404),
        ({"colour": "red"}, 400),
    ],
)
def test_a_list_that_cannot_be_understood_is_refused(services, query, status):
    answer = page(services, "payment_intents", **query)

    assert answer.status_code == status
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_the_search_lags_behind_and_the_list_does_not(services, order, charge, since):
    services.behave(search_lag=60)
    intent = charge()

    assert payment.of_order(order) == []
    assert [one.id for one in ours(payment.listed(since), order)] == [intent.id]
    assert payment.get(intent.id).status == "succeeded"
    services.behave(search_lag=0)
    assert [one.id for one in payment.of_order(order)] == [intent.id]


def test_refunds_are_listed_with_the_payment_they_belong_to(order, charge, since):
    intent, bystander = charge(), charge("other")
    payment.refund(intent.id, key=f"{order}:refund")

    found = {one.intent: (one.status, one.amount) for one in payment.refunds_listed(since)}

    assert found[intent.id] == ("succeeded", 2580)
    assert bystander.id not in found
    assert payment.refunded(intent.id) == 2580


def test_a_refund_that_fails_later_gave_nothing_back_and_its_key_still_replays_the_old_success(services, order, charge):
    intent = charge()
    payment.refund(intent.id, key=f"{order}:refund")
    [refund] = payment.refunds_of(intent.id)

    services.fail_refund(refund.id)

    payment.refund(intent.id, key=f"{order}:refund")  # as Stripe does: the stored answer says "succeeded"
    [failed] = payment.refunds_of(intent.id)
    assert (failed.id, failed.status, failed.gives_back) == (refund.id, "failed", False)
    assert payment.refunded(intent.id) == 0
    assert services.charged(order) == 2580
    payment.refund(intent.id, key=f"{order}:refund:again")
    assert payment.refunded(intent.id) == 2580


@pytest.mark.parametrize(("method", "at_first"), [("pm_card_refundFail", "succeeded"), ("pm_card_visa", "pending")])
def test_a_refund_fails_by_itself_when_the_card_or_the_fault_says_so(services, order, charge, eventually, method, at_first):
    services.behave(refund_settles=0.3)
    if at_first == "pending":
        services.faults("payment", "refund_fails")
    intent = charge(method=method)
    payment.refund(intent.id, key=f"{order}:refund")

    assert payment.refunds_of(intent.id)[0].status == at_first
    eventually(lambda: payment.refunds_of(intent.id)[0].status == "failed")
    assert services.charged(order) == 2580


def test_a_refund_under_way_succeeds_by_itself(services, order, charge, eventually):
    services.behave(refund_settles=0.3)
    intent = charge(method="pm_card_pendingRefund")
    payment.refund(intent.id, key=f"{order}:refund")

    assert payment.refunds_of(intent.id)[0].status == "pending"
    eventually(lambda: payment.refunds_of(intent.id)[0].status == "succeeded")
    assert services.charged(order) == 0


def test_disputes_are_listed_until_and_after_the_bank_has_decided(services, charge, since):
    told, by_card = charge(), charge("card", "pm_card_createDispute")
    dispute = services.dispute(told.id)

    found = {one.intent: one for one in payment.disputes_listed(since)}

    assert (found[told.id].id, found[told.id].over, found[told.id].amount) == (dispute, False, 2580)
    assert found[by_card.id].status == "needs_response"
    services.close_dispute(dispute, "lost")
    assert {one.id: one.over for one in payment.disputes_listed(since)}[dispute]


def test_a_service_that_forgot_its_keys_does_again_what_it_did(services, order, charge):
    first = charge()
    services.forget("payment")
    assert charge().id != first.id
    assert services.charged(order) == 2 * 2580

    booked = carrier.book(f"{order}:k", order, HOME, ITEMS)
    assert carrier.book(f"{order}:k", order, HOME, ITEMS) == booked
    carrier.delete(f"{order}:barred", order)
    services.forget("carrier")
    assert carrier.book(f"{order}:k", order, HOME, ITEMS).id != booked.id
    with pytest.raises(carrier.Deleted):
        carrier.book(f"{order}:barred", order, HOME, ITEMS)


def test_the_carrier_lists_what_it_booked_and_what_was_deleted(services, order, since):
    keys = [f"{order}:{number}" for number in range(5)]
    booked = [carrier.book(key, order, HOME, ITEMS) for key in keys]
    carrier.delete(keys[1], order)

    found = ours(carrier.listed(since), order)

    assert [(one.id, one.key, one.tracking_number) for one in found] == [
        (shipment.id, key, shipment.tracking_number) for shipment, key in zip(booked, keys, strict=True)
    ]
    assert [one.live for one in found] == [True, False, True, True, True]
    assert all(since <= one.created <= datetime.now(UTC) for one in found)
    assert ours(carrier.listed(datetime.now(UTC) + timedelta(minutes=1)), order) == []


def test_the_carriers_pages_follow_one_another(services, order, since):
    keys = [f"{order}:{number}" for number in range(5)]
    for key in keys:
        carrier.book(key, order, HOME, ITEMS)

    query, found = {"since": since.isoformat(), "limit": "2"}, []
    while query:
        got = services.http.get(f"{services.url}/v1/shipments", params=query).json()
        found += got["results"]
        query = {"cursor": got["next"], "limit": "2"} if got["next"] else None

    assert [one["key"] for one in found if one["reference"] == order] == keys
    assert set(found[0]) >= {"id", "key", "reference", "state", "created_at"}


@pytest.mark.parametrize("query", [{"since": "yesterday"}, {"limit": "0"}, {"cursor": "x"}])
def test_a_listing_that_the_carrier_does_not_understand_is_refused(services, query):
    assert services.http.get(f"{services.url}/v1/shipments", params=query).status_code == 400


def test_a_mail_server_delivers_what_comes_again_unless_it_is_told_to_drop_it(services, order):
    for repeated in ("deliver", "drop"):
        services.behave(repeated_mail=repeated)
        with smtplib.SMTP(*services.smtp, timeout=5) as smtp:
            for _time in range(2):
                text = f"Message-ID: <{order}.{repeated}@shop.example>\r\nX-Order-ID: {order}\r\n\r\nHi\r\n"
                smtp.sendmail("a@shop.example", ["b@example.com"], text)

    assert [entry["effect"] for entry in services.ledger("mail", order)] == [True, True, True, False]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("behaviour", {"search_lag": -1}, 400),
        ("behaviour", {"repeated_mail": "burn"}, 400),
        ("behaviour", {"colour": "red"}, 400),
        ("behaviour", [], 400),
        ("disputes", {}, 400),
        ("disputes", {"payment_intent": "pi_unknown"}, 404),
        ("refunds/re_unknown/fail", {}, 404),
        ("forget/mail", {}, 404),
    ],
)
def test_a_control_call_that_is_wrong_changes_nothing_and_is_told_why(services, path, body, status):
    before = services.http.get(f"{services.url}/behaviour").json()

    answer = services.http.post(f"{services.url}/{path}", json=body)

    assert answer.status_code == status
    assert answer.json()["error"]
    assert services.http.get(f"{services.url}/behaviour").json() == before


def test_listings_and_what_is_still_to_happen_survive_kill_9(tmp_path, settings, eventually):
    with Simulators.started(tmp_path / "ledger.jsonl") as own:
        for name, value in own.settings().items():
            setattr(settings, name, value)
        since = datetime.now(UTC) - timedelta(seconds=1)
        own.behave(refund_settles=1)
        made = payment.create(amount=100, currency="EUR", order="o", step_key="k", key="k:create")
        payment.confirm(made.id, payment_method="pm_card_refundFail", key="k:confirm")
        payment.refund(made.id, key="k:refund")
        dispute = own.dispute(made.id)
        carrier.book("k", "o", HOME, ITEMS)
        carrier.delete("k", "o")
        own.forget("carrier")

        own.restart()

        assert [(one.id, one.status) for one in payment.listed(since)] == [(made.id, "succeeded")]
        assert [one.id for one in payment.disputes_listed(since)] == [dispute]
        assert [(one.key, one.live) for one in carrier.listed(since)] == [("k", False)]
        eventually(lambda: [one.status for one in payment.refunds_listed(since)] == ["failed"])
