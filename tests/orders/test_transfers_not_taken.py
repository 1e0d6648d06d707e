"""Bank transfers that the shop accepted, and that no step has taken: they count as money that came, and the order is paid once."""

from __future__ import annotations

from functools import partial

import pytest
from django.core import mail
from django.db import transaction

from orders.models import Product
from orders.payments import codes
from orders.payments.again import pay_again
from orders.payments.beside import TRANSFER_CAME
from orders.queries import order_view
from supervision import testing
from supervision.errors import PermanentFailure, Refused
from supervision.models import Alert, DeadLetter, Incident, Notification, Signal, Submission
from supervision.operations import operator_verbs, pauses, previews
from supervision.signals.sending import Sent, send_signal
from supervision.testkit.run import Run
from tests.engine.kit import incidents
from tests.orders.test_bank_transfer import shop, waiting
from tests.orders.test_overpaid import beside_a_sender
from tests.shopping import DECLINED, NOWHERE, later, paying, place

__all__ = ["shop", "waiting"]


@pytest.fixture(autouse=True)
def _mails_are_kept(settings) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"


@pytest.fixture
def missed(shop, waiting) -> str:
    """The same; the transfer came a day too late, and the order stands in Error."""
    shop.advance("7d")
    assert told(waiting) == Sent.ACCEPTED
    Run(waiting).assert_state("Error")
    return waiting


def told(key: str, reference: str = "T1", amount: str = "25.80") -> Sent:
    """Tell the order of a transfer."""
    return send_signal(key, codes.TRANSFER, {"amount": amount, "currency": "EUR", "reference": reference}, sent_by="the bank")


def assert_to_return(shop, key: str, *said: str) -> None:
    """The undo stands in Error and names these transfers; once they are paid back, the order ends."""
    Run(key).assert_state("Error")
    alert = Alert.objects.get(run__key=key, direction="undo", closed_at=None)
    assert alert.code == "transfer_to_return"
    assert alert.message.endswith(f": {', '.join(said)}")
    Run(key).skip("paid back")
    shop.run()
    Run(key).assert_state("Cancelled")
    assert Product.objects.get().available == 50
    shop.assert_healthy()


def test_a_late_transfer_pays_the_order_at_the_end_of_its_patience(shop, missed):
    later(shop, "25h")
    assert [one.subject for one in mail.outbox] == [], "a mail would ask the customer to pay once more"
    later(shop, "48h")

    Run(missed).assert_state("Processed")
    assert paying(missed)["paid"] == "25.80"
    assert any("a bank transfer has come" in line for line in Run(missed).history)
    shop.assert_healthy()


def test_a_late_transfer_of_too_little_waits_for_the_rest(shop, waiting):
    shop.advance("7d")
    told(waiting, amount="10")
    later(shop, "73h")

    assert (Run(waiting).state, paying(waiting)["paid"]) == ("Processing", "10.00")
    told(waiting, "T2", "15.80")
    shop.run()
    Run(waiting).assert_state("Processed")


def test_a_signal_that_tells_of_no_transfer_does_not_keep_an_order(shop, waiting):
    shop.advance("7d")
    send_signal(waiting, codes.TRANSFER, {"amount": "many"})
    later(shop, "73h")

    Run(waiting).assert_state("Cancelled")


def test_an_order_with_a_declined_card_is_paid_by_the_transfer_that_came_for_it(shop, services):
    key = place(payment_method=DECLINED)
    shop.run()
    told(key)
    later(shop, "73h")

    Run(key).assert_state("Processed")
    assert (paying(key)["paid"], services.charged(key)) == ("25.80", 0)


def test_a_late_transfer_is_not_paid_again_by_card(shop, missed, services, client):
    page = client.post(f"/orders/{missed}/payment/", {"payment_method": "pm_card_visa"}, follow=True).text
    with pytest.raises(Refused, match="A bank transfer has come for this order") as refused:
        pay_again(order_view(missed), "pm_card_visa", by="customer")
    shop.run()

    assert refused.value.code == TRANSFER_CAME
    assert "A bank transfer has come for this order" in page
    assert services.charged(missed) == 0

    pay_again(order_view(missed), codes.BANK_TRANSFER, by="customer")
    shop.run()
    Run(missed).assert_state("Processed")
    assert services.charged(missed) == 0


def test_an_operator_charges_no_card_beside_a_late_transfer(shop, missed, services):
    with pytest.raises(Refused, match="Resubmit the payment with the payment method bank_transfer") as refused:
        Run(missed).resubmit(amend={"payment_method": "pm_card_visa"})
    assert refused.value.code == TRANSFER_CAME
    assert (Run(missed).state, order_view(missed).payment_method) == ("Error", codes.BANK_TRANSFER)

    Run(missed).resubmit()
    shop.run()
    Run(missed).assert_state("Processed")
    assert services.charged(missed) == 0


@pytest.mark.parametrize("step", ["", "charge-payment", "reserve-stock"])
def test_an_operator_does_not_try_a_declined_card_again_beside_a_transfer(shop, services, step):
    key = place(payment_method=DECLINED)
    shop.run()
    told(key)
    with pytest.raises(Refused) as refused:
        Run(key).resume_from(step) if step else Run(key).resubmit()
    assert (refused.value.code, Run(key).state) == (TRANSFER_CAME, "Error")

    Run(key).resubmit(amend={"payment_method": codes.BANK_TRANSFER})
    shop.run()
    Run(key).assert_state("Processed")
    assert (paying(key)["paid"], services.charged(key)) == ("25.80", 0)


def test_a_card_is_charged_beside_a_signal_that_tells_of_no_transfer(shop, services):
    key = place(payment_method=DECLINED)
    shop.run()
    send_signal(key, codes.TRANSFER, {"amount": "many"})
    Run(key).resubmit(amend={"payment_method": "pm_card_visa"})
    shop.run()

    Run(key).assert_state("Processed")
    assert services.charged(key) == 2580


def test_what_the_checkout_has_reserved_is_charged_beside_a_transfer_too(shop, services, settings):
    settings.SHOP_CAPTURE = codes.AFTER_BOOKING
    key = place()
    shop.fake(codes.CAPTURE, raises=PermanentFailure("no"), times=1)
    shop.run()
    told(key)
    Run(key).resubmit()
    shop.run()

    Run(key).assert_state("Processed")
    assert services.charged(key) == 2580


def test_a_late_transfer_of_a_cancelled_order_is_paid_back_by_people(shop, missed):
    Run(missed).cancel()
    shop.run()

    assert_to_return(shop, missed, "25.80 EUR (T1)")


@pytest.mark.parametrize("begun", [True, False])
def test_a_transfer_that_came_while_payments_were_paused_is_paid_back_by_people(shop, begun):
    if not begun:
        pauses.pause("agent", "payment", reason="maintenance", by="olga")
    key = place(payment_method=codes.BANK_TRANSFER)
    shop.run()
    if begun:
        pauses.pause("agent", "payment", reason="maintenance", by="olga")
    told(key)
    shop.run()
    assert "undo charge-payment run" in [f"{one.direction} {one.name} {one.action}" for one in previews.plan(key, "cancel").steps]

    Run(key).cancel()
    pauses.lift("agent", "payment", by="olga")
    shop.run()

    assert_to_return(shop, key, "25.80 EUR (T1)")


def test_a_transfer_that_came_before_the_order_was_taken_up_is_paid_back_by_people(shop):
    key = place(payment_method=codes.BANK_TRANSFER)
    told(key)
    Run(key).cancel()
    shop.run()

    assert_to_return(shop, key, "25.80 EUR (T1)")


def test_a_transfer_for_an_order_with_a_declined_card_is_paid_back_by_people(shop):
    key = place(payment_method=DECLINED)
    shop.run()
    told(key)
    Run(key).cancel()
    shop.run()

    assert_to_return(shop, key, "25.80 EUR (T1)")


def test_a_transfer_that_is_told_while_its_order_is_cancelled_is_paid_back_by_people(shop):
    key = place(payment_method=DECLINED)
    shop.run()
    with transaction.atomic():
        told(key)
        assert testing.at_once(Run(key).cancel) == [None]
    shop.run()

    assert_to_return(shop, key, "25.80 EUR (T1)")


def test_a_transfer_for_an_order_whose_payment_was_skipped_is_paid_back_by_people(shop):
    key = place(payment_method=DECLINED)
    shop.run()
    told(key)
    pauses.pause("agent", "shipping", reason="stocktaking", by="olga")
    Run(key).skip("it is paid by invoice")
    shop.run()
    Run(key).cancel()
    pauses.lift("agent", "shipping", by="olga")
    shop.run()

    assert_to_return(shop, key, "25.80 EUR (T1)")


def test_a_transfer_that_an_agent_took_before_it_died_is_paid_back_by_people(shop, waiting):
    shop.kill("charge-payment", at="agent.before_call")
    told(waiting)
    shop.run()
    assert Signal.objects.get(run_key=waiting).taken_by == "charge-payment"
    Run(waiting).cancel()
    shop.advance("5m")

    assert_to_return(shop, waiting, "25.80 EUR (T1)")


def test_a_transfer_of_which_a_failed_agent_noted_nothing_counts_when_the_step_is_done_again(shop, waiting, services):
    shop.fake("charge-payment", raises=PermanentFailure("a bug"), times=1)
    told(waiting)
    shop.run()
    Run(waiting).assert_state("Error")
    assert Signal.objects.get(run_key=waiting).taken_by == "charge-payment"
    with pytest.raises(Refused, match="A bank transfer has come for this order"):
        Run(waiting).resubmit(amend={"payment_method": "pm_card_visa"})

    Run(waiting).resubmit()
    shop.run()
    Run(waiting).assert_state("Processed")
    assert (paying(waiting)["paid"], services.charged(waiting)) == ("25.80", 0)


@pytest.fixture
def unreadable(shop) -> tuple[str, int]:
    """An order by bank transfer that became a dead letter, and the letter's number."""
    key = place(payment_method=codes.BANK_TRANSFER)
    Submission.objects.filter(public_id=key).update(payload="{")
    shop.run()
    return key, DeadLetter.objects.get(public_id=key).pk


def test_operators_are_told_once_of_the_money_of_an_order_that_is_discarded(shop, unreadable):
    key, letter = unreadable
    told(key), told(key, "T2", "4.20")
    operator_verbs.discard_dead_letter(letter, by="olga", reason="a test order")

    assert [incidents(), incidents()] == [[f"discarded_evidence:{key}"]] * 2
    row = Incident.objects.get(kind="discarded_evidence")
    assert row.title == f"The order {key} was discarded, and what had come for it stays: transfer-received (25.80 EUR, 4.20 EUR)."
    events = [one.payload["event"] for one in Notification.objects.filter(kind="incident") if row.pk in one.payload["incidents"]]
    assert events == ["opened"]

    operator_verbs.acknowledge_incident(row.pk, by="olga", reason="paid back")
    assert incidents() == []


def test_a_transfer_that_is_told_while_its_order_is_discarded_is_told_to_operators(shop, unreadable):
    key, letter = unreadable
    with beside_a_sender(partial(operator_verbs.discard_dead_letter, letter, by="olga", reason="a test order")):
        told(key)

    assert incidents() == [f"discarded_evidence:{key}"]
    assert "transfer-received (25.80 EUR)" in Incident.objects.get(kind="discarded_evidence").title


def test_an_order_for_which_no_money_has_come_is_discarded_without_a_word(shop, unreadable):
    key, letter = unreadable
    send_signal(key, codes.ANSWERED)
    operator_verbs.discard_dead_letter(letter, by="olga", reason="a test order")

    assert incidents() == []


def test_two_full_transfers_at_once_leave_a_surplus(shop, waiting, client):
    told(waiting, "T1")
    told(waiting, "T2")
    told(waiting, "T1")
    shop.run()

    Run(waiting).assert_state("Processed")
    result = Run(waiting).results["charge-payment"]
    assert (result["received"], result["surplus"], sorted(result["transfers"])) == ("51.60", "25.80", ["T1", "T2"])
    assert "We pay €25.80" in client.get(f"/orders/{waiting}/").text
    shop.assert_healthy()


def test_a_transfer_that_came_after_the_payment_is_paid_back_with_it(shop, services):
    services.faults("carrier", "error_before")
    key = place(payment_method=codes.BANK_TRANSFER)
    shop.run()
    told(key, "T1")
    shop.run()
    assert told(key, "T2") == Sent.LATE
    Run(key).cancel()
    services.clear()
    shop.advance("10m")

    assert_to_return(shop, key, "25.80 EUR (T1)", "25.80 EUR (T2)")


def test_a_transfer_beside_a_card_is_paid_back_by_people_and_the_card_by_the_shop(shop, services):
    key = place(shipping_address=NOWHERE)
    shop.run()
    assert (told(key), services.charged(key)) == (Sent.LATE, 2580)
    Run(key).cancel()
    shop.run()

    assert services.charged(key) == 0
    assert_to_return(shop, key, "25.80 EUR (T1)")


def test_a_transfer_beside_a_reserved_amount_stops_one_undo_and_not_both(shop, settings):
    settings.SHOP_CAPTURE = codes.AFTER_BOOKING
    key = place(shipping_address=NOWHERE)
    shop.run()
    assert told(key) == Sent.ACCEPTED
    Run(key).cancel()
    shop.run()

    assert_to_return(shop, key, "25.80 EUR (T1)")


def test_a_run_that_goes_back_takes_the_transfer_that_no_step_has_taken(shop):
    key = place(payment_method=codes.BANK_TRANSFER, shipping_address=NOWHERE)
    shop.run()
    told(key, "T1")
    shop.run()
    told(key, "T2")
    Run(key).resume_from("charge-payment")
    shop.run()

    assert Alert.objects.get(run__key=key, direction="undo", closed_at=None).message.endswith(": 25.80 EUR (T1)")
    Run(key).complete({}, reason="paid back")
    shop.run()
    assert list(Run(key).results["charge-payment"]["transfers"]) == ["T2"]
