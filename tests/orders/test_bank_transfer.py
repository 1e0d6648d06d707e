"""A payment by bank transfer: too little, too much, twice, late, unreadable; and money that has to be paid back by people."""

from __future__ import annotations

from contextlib import suppress

import pytest
from django.core.management import call_command

from orders.agents.payment_transfer import Unreadable, read
from orders.forms import PayForm, payment_methods
from orders.models import Product
from orders.payments import codes, state
from orders.queries import order_view
from supervision.errors import Refused
from supervision.models import Alert, Effect
from supervision.operations import completing, pauses
from supervision.signals.sending import Sent, send_signal
from supervision.testkit.run import Run
from tests.shopping import a_client, a_product, a_request, an_account, later, paying, place


@pytest.fixture
def shop(sas, services, transactional_db, settings):
    a_product()
    settings.API_THROTTLE = None
    settings.BANK_ACCOUNT = "Shop, IT00 TEST"
    return sas


@pytest.fixture
def waiting(shop) -> str:
    """The public id of an order over 25.80 EUR that waits for a transfer."""
    key = place(payment_method=codes.BANK_TRANSFER)
    shop.run()
    return key


def transfer(shop, key: str, amount: str, reference: str, *, currency: str = "EUR", name: str | None = None) -> Sent:
    payload = {"amount": amount, "currency": currency, "reference": reference}
    sent = send_signal(key, codes.TRANSFER, payload, key=name, sent_by="the bank")
    shop.run()
    return sent


def outside(key: str) -> list[tuple[str, str]]:
    """The order's rows in the effect ledger that concern its payment."""
    return list(Effect.objects.filter(run__key=key, position=1).values_list("operation", "outcome"))


def test_the_page_says_where_to_transfer_how_much(waiting, client):
    page = client.get(f"/orders/{waiting}/").text

    assert paying(waiting)["state"] == state.PENDING
    for words in ("Please transfer €25.80", "Shop, IT00 TEST", order_view(waiting).number, "Waiting for your transfer"):
        assert words in page


def test_the_whole_total_completes_the_order(shop, waiting, services, client):
    transfer(shop, waiting, "25.80", "T1")

    Run(waiting).assert_state("Processed")
    assert paying(waiting) == {"state": "paid", "action_url": None, "paid": "25.80", "refunded": "0.00"}
    assert Run(waiting).results["charge-payment"]["surplus"] == "0.00"
    assert services.ledger("payment", waiting) == []
    assert outside(waiting) == [("receive", "done")]
    assert "Your transfer has come" in client.get(f"/orders/{waiting}/").text
    shop.assert_healthy()


def test_too_little_waits_on_for_the_rest(shop, waiting, client):
    shop.advance("5d")
    transfer(shop, waiting, "10", "T1")
    assert (Run(waiting).state, paying(waiting)["paid"]) == ("Processing", "10.00")
    assert "Please transfer €15.80" in client.get(f"/orders/{waiting}/").text
    shop.advance("1d")

    transfer(shop, waiting, "15.80", "T2")

    Run(waiting).assert_state("Processed")


def test_the_rest_has_the_rest_of_the_time(shop, waiting):
    shop.advance("6d")
    transfer(shop, waiting, "10", "T1")
    shop.advance("25h")

    Run(waiting).assert_state("Error")
    assert Alert.objects.get(run__key=waiting, closed_at=None).code == codes.TRANSFER_INCOMPLETE
    assert paying(waiting)["state"] == state.PENDING, "the customer has paid a part: an operator decides"


def test_too_much_is_paid_and_says_what_to_pay_back(shop, waiting, client):
    transfer(shop, waiting, "30", "T1")

    Run(waiting).assert_state("Processed")
    assert Run(waiting).results["charge-payment"]["surplus"] == "4.20"
    assert paying(waiting)["paid"] == "30.00"
    assert "We pay €4.20" in client.get(f"/orders/{waiting}/").text


def test_the_same_reference_counts_once_however_often_it_is_told(shop, waiting):
    for number in range(3):
        transfer(shop, waiting, "12.90", "T1", name=f"statement {number}")

    assert (Run(waiting).state, paying(waiting)["paid"]) == ("Processing", "12.90")
    transfer(shop, waiting, "12.90", "T2")
    Run(waiting).assert_state("Processed")


def test_signals_that_come_together_all_count(shop, waiting):
    for number in range(4):
        payload = {"amount": "6.45", "currency": "EUR", "reference": f"T{number}"}
        send_signal(waiting, codes.TRANSFER, payload)
    shop.run()

    Run(waiting).assert_state("Processed")
    assert len(Run(waiting).results["charge-payment"]["transfers"]) == 4


def test_a_shop_without_an_account_takes_no_transfers(shop, settings, client):
    settings.BANK_ACCOUNT = ""
    ada = an_account("ada", "customer")
    key = place(ada, payment_method="pm_card_visa_chargeDeclined")
    shop.run()

    answers = [
        a_client(ada).post("/api/v1/orders/", a_request(payment_method=codes.BANK_TRANSFER)),
        a_client(ada).post(f"/api/v1/orders/{key}/payment/", {"payment_method": codes.BANK_TRANSFER}),
    ]

    assert [(one.status_code, list(one.json()["errors"])) for one in answers] == [(400, ["payment_method"])] * 2
    assert codes.BANK_TRANSFER not in [value for value, *_ in payment_methods()]
    assert codes.BANK_TRANSFER not in [value for value, _ in PayForm().fields["payment_method"].choices]


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({}, "reference"),
        ({"reference": "T1", "currency": "EURO", "amount": "1"}, "currency"),
        *[({"reference": "T1", "currency": "EUR", "amount": one}, "amount") for one in ("x", "-1", 0, None, True, "NaN", "1e99", "1.2345")],
    ],
)
def test_what_is_no_transfer_is_refused_by_the_name_of_its_field(payload, field):
    with pytest.raises(Unreadable, match=field):
        read(payload)


def test_what_cannot_be_read_or_is_of_another_currency_does_not_count(shop, waiting):
    send_signal(waiting, codes.TRANSFER, {"amount": "many"})
    shop.run()
    transfer(shop, waiting, "25.80", "T1", currency="USD")
    assert (Run(waiting).state, paying(waiting)["paid"]) == ("Processing", "0.00")

    transfer(shop, waiting, "25.80", "T2")
    Run(waiting).assert_state("Processed")


def test_a_transfer_that_does_not_come_is_refused_and_then_the_order_is_cancelled(shop, waiting, services):
    shop.advance("7d")
    Run(waiting).assert_state("Error")
    assert paying(waiting)["state"] == state.REFUSED
    later(shop, "73h")

    Run(waiting).assert_state("Cancelled")
    assert Product.objects.get().available == 50
    with pytest.raises(Refused):
        transfer(shop, waiting, "25.80", "T1")
    shop.assert_healthy()


def test_a_late_transfer_is_kept_and_completes_an_order_that_is_tried_again(shop, waiting):
    shop.advance("7d")
    assert transfer(shop, waiting, "25.80", "T1") == Sent.ACCEPTED
    Run(waiting).assert_state("Error")

    Run(waiting).resubmit()
    shop.run()

    Run(waiting).assert_state("Processed")


def test_a_cancelled_order_without_money_just_ends(shop, waiting):
    Run(waiting).cancel()
    shop.run()

    Run(waiting).assert_state("Cancelled")
    shop.assert_healthy()


def test_money_that_has_come_for_a_cancelled_order_is_an_operators_task(shop, waiting, client):
    transfer(shop, waiting, "10", "T1")
    Run(waiting).cancel()
    shop.run()

    Run(waiting).assert_state("Error")
    assert "10 EUR (T1)" in Alert.objects.get(run__key=waiting, closed_at=None).message
    Run(waiting).skip("paid back")
    shop.run()
    Run(waiting).assert_state("Cancelled")
    assert Product.objects.get().available == 50
    shop.assert_healthy()


def written_by_hand_and_cancelled(shop, key: str, received: str) -> None:
    """An operator completes the payment by this result, and the order is cancelled before its shipment is booked."""
    pauses.pause("agent", "shipping", reason="stocktaking", by="olga")
    completing.complete(key, by="olga", reason="by our account", result={"received": received, "method": "bank_transfer"})
    shop.run()
    Run(key).cancel()
    pauses.lift("agent", "shipping", by="olga")
    shop.run()


@pytest.mark.parametrize(
    ("by_signal", "said", "words"),
    [
        ("", "25.80", ": 25.80 EUR in all, by the step's result"),
        ("10", "25.80", ": 10 EUR (T1), 25.80 EUR in all, by the step's result"),
        ("", "all of it", ": all of it EUR in all, by the step's result"),
    ],
)
def test_a_transfer_that_was_written_by_hand_is_paid_back_by_people_too(shop, waiting, by_signal, said, words):
    if by_signal:
        transfer(shop, waiting, by_signal, "T1")
    written_by_hand_and_cancelled(shop, waiting, said)

    Run(waiting).assert_state("Error")
    assert Alert.objects.get(run__key=waiting, closed_at=None).message.endswith(words)
    Run(waiting).skip("paid back")
    shop.run()
    Run(waiting).assert_state("Cancelled")


def test_a_transfer_that_was_written_by_hand_for_an_order_with_a_card_is_paid_back_by_people_too(shop, services):
    key = place(payment_method="pm_card_visa_chargeDeclined")
    shop.run()
    written_by_hand_and_cancelled(shop, key, "25.80")

    Run(key).assert_state("Error")
    assert "25.80 EUR" in Alert.objects.get(run__key=key, closed_at=None).message


def test_a_result_by_hand_that_says_that_nothing_came_lets_the_order_end(shop, waiting):
    written_by_hand_and_cancelled(shop, waiting, "0.00")

    Run(waiting).assert_state("Cancelled")


def test_a_paid_order_that_is_cancelled_keeps_its_money_in_the_books_until_it_is_paid_back(shop, waiting, services):
    services.faults("carrier", "error_before")
    transfer(shop, waiting, "25.80", "T1")
    Run(waiting).cancel()
    services.clear()
    shop.advance("10m")

    Run(waiting).assert_state("Error")
    assert outside(waiting) == [("receive", "done")]
    Run(waiting).skip("paid back")
    shop.run()
    Run(waiting).assert_state("Cancelled")
    shop.assert_healthy()


@pytest.mark.parametrize("at", ["agent.before_call", "agent.after_effect"])
def test_an_agent_that_dies_while_it_hears_of_a_transfer_counts_it_once(shop, waiting, at):
    transfer(shop, waiting, "10", "T1")
    shop.kill("charge-payment", at=at)
    transfer(shop, waiting, "15.80", "T2")
    shop.advance("5m")

    Run(waiting).assert_state("Processed")
    assert Run(waiting).results["charge-payment"]["received"] == "25.80"
    shop.assert_healthy()


def test_a_declined_card_can_be_replaced_by_a_transfer_and_back(shop, services):
    ada = an_account("ada", "customer")
    key = place(ada, payment_method="pm_card_visa_chargeDeclined")
    shop.run()
    path = f"/api/v1/orders/{key}/payment/"
    assert a_client(ada).post(path, {"payment_method": codes.BANK_TRANSFER}).status_code == 202
    shop.run()
    assert order_view(key).payment.transfer
    shop.advance("7d")
    assert a_client(ada).post(path, {"payment_method": "pm_card_visa"}).status_code == 202
    shop.run()

    Run(key).assert_state("Processed")
    assert services.charged(key) == 2580
    shop.assert_healthy()


def test_reconcile_misses_no_charge_of_an_order_paid_by_transfer(shop, waiting, capsys):
    transfer(shop, waiting, "25.80", "T1")
    with suppress(SystemExit):  # the simulators hold payments of other tests, too
        call_command("reconcile", "--service", "payment")

    assert waiting not in capsys.readouterr().out
