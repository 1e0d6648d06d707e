"""A payout at the bank that came back counts no more, and is paid again where its step is done anew."""

from __future__ import annotations

import pytest

from orders.models import PaymentAdjustment
from orders.returns import answers, shown
from supervision.operations import completing, operator_verbs
from supervision.testkit.run import Run
from tests.orders.test_invoices import issue
from tests.orders.test_payouts_kept import books, pay, waiting
from tests.orders.test_payouts_told import by_hand, hold, in_error, lift, notes, signal
from tests.orders.test_refund_payouts import given, paid_out, transferred
from tests.orders.test_return_corrections import correct, report
from tests.orders.test_returns import ada, asked, goods, olga, paying, shop, told

__all__ = ["ada", "olga", "shop", "transferred"]


def came_back(made: str) -> None:
    completing.complete(made, by="olga", reason="it came back", step="refund-part", result={})


def done_anew(shop, made: str) -> None:
    """Its payout comes back, and its step is done anew."""
    Run(made).resume_from("refund-part")
    shop.advance("5m")
    Run(made).assert_state("Error")
    came_back(made)
    shop.advance("5m")


def test_a_payout_that_came_back_counts_no_more_although_no_attempt_knew_of_it(shop, transferred):
    made = waiting(shop, transferred)
    for _ in range(5):
        shop.kill("refund-part", at="agent.after_start")
    signal(made, "79.80")
    shop.advance("2h")
    Run(made).assert_state("Error")
    for _ in range(5):
        shop.kill("undo:refund-part", at="agent.after_start")
    operator_verbs.cancel(made, by="olga", reason="oops")
    shop.advance("2h")
    completing.complete(made, by="olga", reason="it came back", step="refund-part", result={})
    shop.advance("5m")
    Run(made).assert_state("Cancelled")
    assert (books(), paying(transferred)["refunded"]) == ([], "0.00")
    given(transferred, "79.80", once="two")


@pytest.mark.parametrize("door", ["api", "signal", "hand"])
def test_a_payout_that_came_back_is_paid_again_when_the_step_is_done_anew(shop, transferred, olga, door):
    issue()
    made = waiting(shop, transferred, "10.00")
    hold("email")
    by_hand(made, "10.00") if door == "hand" else pay(olga, made, "10.00", door)
    shop.run()
    Run(made).resume_from("refund-part")
    shop.advance("5m")
    Run(made).assert_state("Error")
    completing.complete(made, by="olga", reason="it came back", step="refund-part", result={})
    lift("email")
    shop.advance("5m")
    [one] = olga.get(f"/api/v1/orders/{transferred}/refunds/").json()["results"]
    assert (Run(made).state, one["owed"], paying(transferred)["refunded"]) == ("Processing", "10.00", "0.00")

    assert paid_out(olga, "refunds", made, "10.00", "OUT-2").status_code == 202
    shop.run()
    issue()
    Run(made).assert_state("Processed")
    assert (books(), paying(transferred)["refunded"], notes()) == (["10.00"], "10.00", ["10.00"])
    assert sorted(PaymentAdjustment.objects.values_list("gives_back", flat=True)) == [False, True]
    shop.assert_healthy()


@pytest.mark.parametrize("door", ["api", "signal", "hand"])
def test_a_refund_whose_payout_came_back_ends_without_money(shop, transferred, olga, door):
    issue()
    made = waiting(shop, transferred, "10.00")
    hold("email")
    by_hand(made, "10.00") if door == "hand" else pay(olga, made, "10.00", door)
    shop.run()
    operator_verbs.cancel(made, by="olga", reason="oops")
    shop.advance("5m")
    came_back(made)
    lift("email")
    shop.advance("5m")
    issue()
    assert (Run(made).state, paying(transferred)["refunded"], books(), notes()) == ("Cancelled", "0.00", [], [])
    shop.assert_healthy()


@pytest.mark.parametrize("how", ["cancel", "abandon", "by hand"])
def test_the_payout_that_came_back_is_not_recorded_again_when_its_run_ends(shop, transferred, olga, how):
    issue()
    made = waiting(shop, transferred, "10.00")
    hold("email")
    signal(made, "10.00")
    shop.run()
    done_anew(shop, made)
    if how == "by hand":
        by_hand(made, "0.00")
    elif how == "abandon":
        Run(made).abandon()
    else:
        operator_verbs.cancel(made, by="olga", reason="oops")
    lift("email")
    shop.advance("5m")
    issue()
    assert (paying(transferred)["refunded"], notes()) == ("0.00", [])
    Run(made).assert_state("Processed" if how == "by hand" else "Cancelled")
    shop.assert_healthy()


def test_a_signal_that_no_step_has_taken_is_no_new_payout(shop, transferred, olga):
    made = in_error(shop, transferred)
    hold("email")
    signal(made, "79.80")
    by_hand(made, "79.80")
    shop.run()
    done_anew(shop, made)
    lift("email")
    shop.advance("5m")
    assert (Run(made).state, paying(transferred)["refunded"]) == ("Processing", "0.00")


def test_the_bank_s_reference_may_be_the_same_again(shop, transferred, olga):
    made = waiting(shop, transferred, "10.00")
    hold("email")
    assert paid_out(olga, "refunds", made, "10.00", "REFUND 1").status_code == 202
    shop.run()
    done_anew(shop, made)
    lift("email")
    assert paid_out(olga, "refunds", made, "10.00", "REFUND 1").status_code == 202
    assert paid_out(olga, "refunds", made, "10.00", "REFUND 1").status_code == 202, "the same again"
    shop.run()
    assert (Run(made).state, paying(transferred)["refunded"]) == ("Processed", "10.00")


def test_a_key_of_the_client_s_own_is_of_one_payout(shop, transferred, olga):
    made = waiting(shop, transferred, "10.00")
    hold("email")
    said = {"amount": "10.00", "reference": "R", "reason": "paid"}
    address = f"/api/v1/refunds/{made}/payout/"
    assert olga.post(address, said, headers={"Idempotency-Key": "one"}).status_code == 202
    shop.run()
    done_anew(shop, made)
    again = olga.post(address, said, headers={"Idempotency-Key": "one"})
    assert (again.status_code, again.json()["code"]) == (409, "signal_key_reused")
    assert olga.post(address, said, headers={"Idempotency-Key": "two"}).status_code == 202


def test_a_return_whose_payout_came_back_can_be_corrected(shop, transferred, olga):
    back = asked(shop, transferred, totes=2)
    goods(shop, back, ("TOTE-OCHRE", 1))
    hold("email")
    by_hand(back, "18.00")
    shop.run()
    done_anew(shop, back)
    assert told(olga, back)["owed"] == "18.00"
    correct(back, report(totes=2))
    assert told(olga, back)["owed"] == "36.00"


def test_the_customer_reads_that_nothing_was_paid_of_what_came_back(shop, transferred, olga):
    back = asked(shop, transferred, totes=1)
    goods(shop, back, ("TOTE-OCHRE", 1))
    hold("email")
    assert paid_out(olga, "returns", back, "18.00").status_code == 202
    shop.run()
    operator_verbs.cancel(back, by="olga", reason="oops")
    shop.advance("5m")
    came_back(back)
    shop.advance("5m")
    assert (Run(back).state, paying(transferred)["refunded"], told(olga, back)["refunded"]) == ("Cancelled", "0.00", "0.00")
    assert "Nothing was paid back" in shown.card(answers.return_view(back)).note
