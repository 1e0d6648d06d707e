"""What is no payout is refused at every door, and says why; what was recorded stays as it is."""

from __future__ import annotations

import pytest

from orders.models import Order, PaymentAdjustment
from orders.payments import codes as payments
from orders.queries import order_view
from orders.returns.asking import ask
from orders.services import InvalidOrder
from supervision.errors import Refused
from supervision.operations import completing, operator_verbs
from supervision.signals.sending import send_signal
from supervision.testkit.run import Run
from tests.orders.test_invoices import issue
from tests.orders.test_payouts_kept import books, waiting
from tests.orders.test_payouts_told import by_hand, hold, in_error, lift, notes, signal
from tests.orders.test_refund_parts import findings
from tests.orders.test_refund_payouts import given, paid_out, transferred
from tests.orders.test_return_corrections import correct, report
from tests.orders.test_returns import LINES, ada, asked, goods, olga, paying, shop, told
from tests.shopping import a_product, place

__all__ = ["ada", "olga", "shop", "transferred"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("10.01", "amount: expected 10.00"),
        ("9.99", "amount: expected 10.00"),
        ("10.001", "amount: expected 10.00"),
        ("10.00 USD", "currency: expected EUR"),
        ("much", "amount: expected a positive amount"),
    ],
)
def test_a_signal_of_another_payout_is_refused_and_not_kept(shop, transferred, said, why):
    made = waiting(shop, transferred, "10.00")
    amount, _space, currency = said.partition(" ")
    with pytest.raises(Refused, match=why) as problem:
        send_signal(made, "money-returned", {"amount": amount, "currency": currency or "EUR", "reference": "OUT-1"})
    assert problem.value.code == "wrong_payout"
    operator_verbs.cancel(made, by="olga", reason="oops")
    shop.advance("5m")
    Run(made).assert_state("Cancelled")
    assert not PaymentAdjustment.objects.exists()


def test_a_signal_is_refused_before_anything_is_owed_and_after_it_was_paid(shop, transferred, olga):
    back = asked(shop, transferred, totes=3)
    with pytest.raises(Refused, match="Nothing waits here"):
        signal(back, "54.00")
    goods(shop, back, ("TOTE-OCHRE", 3))
    hold("payment")
    signal(back, "54.00")
    with pytest.raises(Refused, match="Nothing waits here"):
        signal(back, "54.00")  # under another key
    lift("payment")
    shop.advance("1m")
    assert (Run(back).state, told(olga, back)["refunded"]) == ("Processed", "54.00")


@pytest.mark.parametrize("how", ["complete", "skip"])
def test_a_payout_is_refused_once_an_operator_has_said_that_nothing_is_paid(shop, transferred, olga, how):
    made = in_error(shop, transferred)
    hold("email")
    by_hand(made, "0.00") if how == "complete" else operator_verbs.skip(made, by="olga", reason="never paid")
    shop.run()
    with pytest.raises(Refused, match="Nothing waits here"):
        signal(made, "79.80")
    late = paid_out(olga, "refunds", made, "79.80")
    assert (late.status_code, late.json()["code"]) == (409, "no_payout")
    assert not PaymentAdjustment.objects.exists()


@pytest.mark.parametrize("result", [{}, {"refunded": "0.00"}, {"refunded": "79.80"}])
def test_a_recorded_payout_counts_whatever_the_step_s_result_by_hand_leaves_out(shop, transferred, olga, result):
    issue()
    made = in_error(shop, transferred)
    [one] = olga.get(f"/api/v1/orders/{transferred}/refunds/").json()["results"]
    assert one["owed"] == "79.80"
    signal(made, "79.80")
    completing.complete(made, by="olga", reason="as recorded", step="refund-part", result=result)
    shop.advance("5m")
    issue()
    assert (books(), paying(transferred)["refunded"], notes()) == (["79.80"], "79.80", ["79.80"])
    shop.assert_healthy()


def test_a_return_that_stopped_after_30_days_still_says_what_it_owes(shop, transferred, olga):
    back = asked(shop, transferred, totes=1)
    goods(shop, back, ("TOTE-OCHRE", 1))
    shop.advance("31d")
    shop.advance("10m")
    assert (Run(back).state, told(olga, back)["owed"]) == ("Error", "18.00")
    assert paid_out(olga, "returns", back, "18.00").status_code == 202
    assert told(olga, back)["owed"] == "0.00"


@pytest.mark.parametrize(("how", "paid"), [("cancelled", "36.00"), ("nothing", "18.00"), ("skipped", "18.00")])
def test_what_a_correction_paid_further_is_what_was_paid(shop, transferred, olga, how, paid):
    back = asked(shop, transferred, totes=2)
    goods(shop, back, ("TOTE-OCHRE", 1))
    signal(back, "18.00")
    shop.run()
    further = correct(back, report(totes=2)).refund
    shop.run()
    if how == "cancelled":
        signal(further, "18.00")
        operator_verbs.cancel(further, by="olga", reason="oops")
    elif how == "nothing":
        by_hand(further, "0.00")
    else:
        shop.advance("31d")
        shop.advance("10m")
        operator_verbs.skip(further, by="olga", reason="never paid")
    shop.advance("5m")
    Run(further).assert_state("Cancelled" if how == "cancelled" else "Processed")
    assert (told(olga, back)["refunded"], paying(transferred)["refunded"]) == (paid, paid)


def test_a_return_of_an_order_that_was_paid_in_cash_is_paid_out_too(shop, ada, olga):
    key = place(ada, lines=LINES, payment_method=payments.BANK_TRANSFER)
    shop.run()
    completing.complete(key, by="olga", reason="cash", step="charge-payment", result={"cash": "79.80"})
    shop.run()
    back = asked(shop, key, totes=1)
    goods(shop, back, ("TOTE-OCHRE", 1))
    assert told(olga, back)["owed"] == "18.00"
    signal(back, "18.00")
    shop.run()
    Run(back).assert_state("Processed")
    shop.assert_healthy()


def test_a_result_by_hand_does_not_say_another_amount_than_was_recorded(shop, transferred, olga):
    back = asked(shop, transferred, totes=2)
    goods(shop, back, ("TOTE-OCHRE", 2))
    for _ in range(5):
        shop.kill("refund-part", at="agent.after_start")
    assert paid_out(olga, "returns", back, "36.00").status_code == 202
    shop.advance("2h")
    Run(back).assert_state("Error")
    with pytest.raises(Refused, match=r"refunded: 36.00 EUR were recorded as paid out."):
        by_hand(back, "18.00")
    completing.complete(back, by="olga", reason="as recorded", step="refund-part", result={})
    shop.run()
    Run(back).assert_state("Processed")
    assert (told(olga, back)["refunded"], paying(transferred)["refunded"]) == ("36.00", "36.00")
    shop.assert_healthy()


def test_a_refund_is_an_amount_that_its_currency_has(shop, ada, olga, admin_client):
    a_product("YEN", price="1800", currency="JPY")
    key = place(ada, lines=[{"sku": "YEN", "quantity": 2}], payment_method=payments.BANK_TRANSFER)
    shop.run()
    send_signal(key, payments.TRANSFER, {"amount": "3600", "currency": "JPY", "reference": "T1"})
    shop.run()
    with pytest.raises(InvalidOrder) as problem:
        given(key, "10.50")
    assert problem.value.errors == {"amount": ["JPY has no such amount."]}
    made = given(key, "1000")
    shop.run()
    assert paid_out(olga, "refunds", made, "1000").status_code == 202
    page = admin_client.get(f"/admin/orders/order/{Order.objects.get(public_id=key).pk}/change/", follow=True).content.decode()
    assert "1,000 JPY" in page
    assert "1,000.00 JPY" not in page
    back = ask(order_view(key), [{"sku": "YEN", "quantity": 1}], "too small", by="customer").public_id
    shop.run()
    goods(shop, back, ("YEN", 1))
    with pytest.raises(Refused, match="expected an amount"):
        by_hand(back, "10.50")
    by_hand(back, "1800")


def test_a_transfer_by_hand_that_is_no_amount_leaves_page_and_books_whole(shop, ada, client, capsys):
    key = place(ada, lines=LINES, payment_method=payments.BANK_TRANSFER)
    shop.run()
    completing.complete(key, by="olga", reason="came", step="charge-payment", result={"received": "79,80"})
    shop.run()
    client.force_login(ada)
    assert client.get(f"/orders/{key}/").status_code == 200
    assert findings(capsys, key) == "", "it is no order without a charge"
