"""`POST /hooks/stripe/`: genuine events are stored once and have their effect once; all others change nothing."""

from __future__ import annotations

import json
import time

import pytest
import stripe
from django.core.management import call_command
from django.db import connection
from django.test import Client

from orders.gateways import payment as gateway
from orders.models import Order, PaymentAdjustment, PaymentEvent
from orders.payments import events, state
from supervision import testing
from supervision.models import Notification, Signal
from supervision.outbox import notifications
from supervision.testkit.run import Run
from tests.shopping import a_product, paying, place
from tests.support.console import page
from tests.support.simulators import SECOND_FACTOR, WEBHOOK_SECRET

PATH = "/hooks/stripe/"


@pytest.fixture
def shop(sas, services, transactional_db, settings):
    a_product()
    settings.PAYMENT_ACTION_WITHIN, settings.PAYMENT_LOOK_AFTER = 3600.0, 3600.0
    return sas


@pytest.fixture
def waiting(shop) -> str:
    key = place(payment_method=SECOND_FACTOR)
    shop.run()
    return key


def intent_of(key: str) -> str:
    return testing.step(key, "charge-payment").checkpoint["intent"]


def event(kind: str, thing: dict, name: str = "evt_1") -> dict:
    return {"id": name, "object": "event", "type": kind, "created": int(time.time()), "data": {"object": thing}}


def intent_event(key: str, kind: str = "payment_intent.succeeded", name: str = "evt_1") -> dict:
    return event(kind, {"id": intent_of(key), "object": "payment_intent", "metadata": {"order": key}}, name)


def tell(what: dict | bytes, *, secret: str = WEBHOOK_SECRET, at: int | None = None, client: Client | None = None, **headers: str):
    body = what if isinstance(what, bytes) else json.dumps(what).encode()
    signed = stripe.WebhookSignature.generate_signature_header(body.decode("latin-1"), secret, at)
    headers = headers or {"Stripe-Signature": signed}
    return (client or Client(enforce_csrf_checks=True)).post(PATH, body, content_type="application/json", headers=headers)


# ------------------------------------------------------------------------------------------------- signatures


@pytest.mark.django_db
def test_only_what_the_payment_service_has_signed_is_believed(settings):
    settings.STRIPE_WEBHOOK_SECRET = WEBHOOK_SECRET
    good = event("payment_intent.succeeded", {"id": "pi_1", "metadata": {"order": "x"}})
    refused = [
        tell(good, secret="whsec_another"),
        tell(good, at=int(time.time()) - 301),
        tell(good, **{"X-Other": "1"}),
        tell(good, **{"Stripe-Signature": "t=1,v1=ä"}),
        tell(good, **{"Stripe-Signature": f"t={'9' * 5000},v1=1"}),
        tell(b"\xff\xfe"),
        tell(b"[]"),
        tell(b"no json"),
        tell(b"[" * 200_000),
        tell({"id": 3, "type": "x"}),
        tell({"id": "evt_1\x00", "type": "payment_intent.succeeded"}),
        tell({"id": "e" * 256, "type": "payment_intent.succeeded"}),
    ]

    assert {one.status_code for one in refused} == {400}, [(one.status_code, one.content) for one in refused]
    assert not PaymentEvent.objects.exists()
    assert tell(good).status_code == 200
    assert PaymentEvent.objects.get().outcome == "nothing waits for it"


@pytest.mark.django_db
def test_without_a_secret_every_event_is_refused(settings):
    settings.STRIPE_WEBHOOK_SECRET = ""

    assert tell(event("payment_intent.succeeded", {"id": "pi_1"}), secret="").status_code == 400


@pytest.mark.django_db
@pytest.mark.parametrize("thing", [None, [], {}, {"id": 3}, {"payment_intent": None}, {"id": "pi_1", "metadata": [1]}])
def test_signed_events_of_any_shape_get_an_answer(settings, thing):
    settings.STRIPE_WEBHOOK_SECRET = WEBHOOK_SECRET
    for number, kind in enumerate(["payment_intent.succeeded", "charge.refund.updated", "customer.created"]):
        assert tell(event(kind, thing, f"evt_{number}")).status_code == 200


@pytest.mark.django_db
def test_the_path_takes_posts_alone_and_bounded_ones(settings, client):
    settings.STRIPE_WEBHOOK_SECRET = WEBHOOK_SECRET

    assert client.get(PATH).status_code == 405
    assert tell(b"x" * 1_000_001).status_code == 413


# --------------------------------------------------------------------------------------- a payment that waits


def test_an_event_wakes_the_order_that_waits(shop, waiting, services):
    services.answer_bank(paying(waiting)["action_url"])

    assert tell(intent_event(waiting)).status_code == 200
    shop.run()

    Run(waiting).assert_state("Processed")
    assert services.charged(waiting) == 2580
    assert PaymentEvent.objects.get().outcome == "signal accepted"


def test_a_repeated_event_has_one_effect(shop, waiting):
    assert [tell(intent_event(waiting)).content for _ in range(3)] == [b"Stored.\n", b"Stored before.\n", b"Stored before.\n"]

    assert Signal.objects.filter(run_key=waiting).count() == 1
    assert PaymentEvent.objects.count() == 1


def test_the_same_event_twice_at_the_same_moment_has_one_effect(shop, waiting):
    body = intent_event(waiting)

    answers = testing.at_once(*[lambda: tell(body).status_code] * 4)

    assert answers == [200] * 4
    assert Signal.objects.filter(run_key=waiting).count() == 1


def test_an_event_that_lies_about_the_payment_changes_nothing(shop, waiting, services):
    """The service says `requires_action`: the step waits on, also if an event says something else."""
    tell(intent_event(waiting))
    shop.run()

    assert paying(waiting)["state"] == state.ACTION_REQUIRED
    services.answer_bank(paying(waiting)["action_url"])
    tell(intent_event(waiting, name="evt_2"))
    shop.run()
    Run(waiting).assert_state("Processed")


def test_events_that_overtook_each_other_end_in_the_present_state(shop, waiting, services):
    services.answer_bank(paying(waiting)["action_url"])
    tell(intent_event(waiting, "payment_intent.succeeded", "evt_2"))
    tell(intent_event(waiting, "payment_intent.payment_failed", "evt_1"))
    shop.run()

    Run(waiting).assert_state("Processed")
    assert services.charged(waiting) == 2580


def test_an_event_about_a_foreign_payment_or_an_unknown_order_is_kept_and_does_nothing(shop, waiting):
    other = intent_event(waiting)
    other["data"]["object"]["id"] = "pi_of_someone_else"
    stranger = event("payment_intent.succeeded", {"id": "pi_x", "metadata": {"order": "unknown"}}, "evt_2")

    assert [tell(one).status_code for one in (other, stranger)] == [200, 200]
    assert not Signal.objects.exists()
    assert set(PaymentEvent.objects.values_list("outcome", flat=True)) == {"nothing waits for it"}


def test_an_order_that_was_paid_at_once_or_has_ended_gets_no_signal(shop, services):
    key = place()
    shop.run()

    assert tell(intent_event(key)).status_code == 200
    assert not Signal.objects.exists()


def test_an_event_after_the_cancellation_is_too_late(shop, waiting, services):
    body = intent_event(waiting)
    Run(waiting).cancel()
    shop.run()

    assert tell(body).status_code == 200
    assert not Signal.objects.exists()
    Run(waiting).assert_state("Cancelled")
    assert services.charged(waiting) == 0


def test_the_event_and_its_signal_are_stored_together_or_not_at_all(shop, waiting):
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE supervision_signal ADD CONSTRAINT broken CHECK (false) NOT VALID")
    try:
        assert tell(intent_event(waiting)).status_code == 200
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE supervision_signal DROP CONSTRAINT broken")
    assert not Signal.objects.exists()
    assert PaymentEvent.objects.get().applied_at is None
    assert Notification.objects.filter(kind=events.NEWS).count() == 1

    notifications.deliver_due()

    assert Signal.objects.filter(run_key=waiting).count() == 1
    assert PaymentEvent.objects.get().outcome == "signal accepted"


def test_an_event_whose_process_dies_before_its_effect_is_stored_when_it_is_told_again(shop, waiting, monkeypatch):
    def dies(event):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(events, "signal", dies)
        with pytest.raises(KeyboardInterrupt):
            tell(intent_event(waiting))

    assert tell(intent_event(waiting)).content == b"Stored.\n"
    assert Signal.objects.filter(run_key=waiting).count() == 1


# ------------------------------------------------------------------------------------- refunds and disputes


@pytest.fixture
def paid(shop) -> str:
    key = place()
    shop.run()
    return key


def refund(services, intent: str, amount: int) -> str:
    headers = {"Authorization": "Bearer sk_test_simulator"}
    made = services.http.post(f"{services.url}/v1/refunds", data={"payment_intent": intent, "amount": str(amount)}, headers=headers)
    return made.json()["id"]


def hear(kind: str, intent: str, name: str) -> None:
    assert tell(event(kind, {"id": "x", "payment_intent": intent}, name)).status_code == 200
    notifications.deliver_due()


def test_refunds_made_at_the_service_are_shown(shop, paid, services, client):
    intent = testing.step(paid, "charge-payment").result["intent"]
    refund(services, intent, 580)
    hear("charge.refund.updated", intent, "evt_1")
    assert paying(paid) == {"state": "partly_refunded", "action_url": None, "paid": "25.80", "refunded": "5.80"}
    assert "5.80" in client.get(f"/orders/{paid}/").text

    last = refund(services, intent, 2000)
    hear("charge.refund.updated", intent, "evt_2")
    assert paying(paid) == {"state": "refunded", "action_url": None, "paid": "25.80", "refunded": "25.80"}

    services.fail_refund(last)
    hear("charge.refund.updated", intent, "evt_3")
    assert paying(paid)["state"] == "partly_refunded"
    assert PaymentEvent.objects.filter(applied_at__isnull=False).count() == 3


def test_a_look_that_is_overtaken_by_a_later_one_brings_no_old_state_back(shop, paid, services, monkeypatch):
    intent = testing.step(paid, "charge-payment").result["intent"]
    made = refund(services, intent, 580)
    real = gateway.refunds_of

    def overtaken(name):
        seen = real(name)
        monkeypatch.setattr(gateway, "refunds_of", real)
        services.fail_refund(made)
        hear("charge.refund.updated", intent, "evt_2")
        return seen

    monkeypatch.setattr(gateway, "refunds_of", overtaken)
    hear("charge.refund.updated", intent, "evt_1")

    assert PaymentAdjustment.objects.get().status == "failed"
    assert paying(paid)["state"] == "paid"


def test_disputes_are_shown_to_operators(shop, paid, services, operator, capsys):
    intent = testing.step(paid, "charge-payment").result["intent"]
    dispute = services.dispute(intent)
    hear("charge.dispute.created", intent, "evt_1")
    services.close_dispute(dispute, "lost")
    hear("charge.dispute.closed", intent, "evt_2")

    told = f"dispute {dispute}: 25.8 EUR lost (fraudulent)"
    call_command("order", paid)
    assert told in capsys.readouterr().out
    assert told in operator.get(page(Order.objects.get())).text
    assert paying(paid)["state"] == "paid"


def test_a_look_names_the_order_of_an_event_that_names_none(shop, paid, services):
    hear("charge.refund.updated", testing.step(paid, "charge-payment").result["intent"], "evt_1")

    assert PaymentEvent.objects.get().order_key == paid


def test_a_look_while_the_service_is_away_is_repeated(shop, paid, services):
    intent = testing.step(paid, "charge-payment").result["intent"]
    refund(services, intent, 580)
    services.faults("payment", "error_before")
    hear("charge.refund.updated", intent, "evt_1")
    assert not PaymentAdjustment.objects.exists()
    services.clear()
    testing.let_pass(60)
    notifications.deliver_due()

    assert PaymentAdjustment.objects.count() == 1


def test_a_refund_of_no_payment_of_ours_is_noted_as_such(shop):
    assert tell(event("charge.refund.updated", {"id": "re_1", "payment_intent": "pi_unknown"})).status_code == 200
    notifications.deliver_due()

    assert PaymentEvent.objects.get().outcome == "not a payment of this shop"


def test_old_events_are_deleted(shop, settings):
    tell(event("payment_intent.succeeded", {"id": "pi_1"}, "evt_old"))
    tell(event("payment_intent.succeeded", {"id": "pi_1"}, "evt_new"))
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orders_paymentevent SET received_at = now() - interval '31 days' WHERE event_id = 'evt_old'")

    events.forget_old()

    assert list(PaymentEvent.objects.values_list("event_id", flat=True)) == ["evt_new"]


# ---------------------------------------------------------------------------------------- the service itself


def test_the_simulated_service_wakes_the_order_by_itself(shop, waiting, services, live_server, eventually):
    services.tell(f"{live_server.url}{PATH}")
    services.behave(webhooks_repeated=2)
    services.answer_bank(paying(waiting)["action_url"])

    eventually(lambda: Signal.objects.filter(run_key=waiting).exists())
    shop.run()

    Run(waiting).assert_state("Processed")
    assert services.charged(waiting) == 2580
