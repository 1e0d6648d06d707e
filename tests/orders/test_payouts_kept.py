"""A payout at the bank that was recorded counts for ever: through cancels, corrections, dead processes and results by hand."""

from __future__ import annotations

import json
import threading

import pytest
from django.db import connection

from orders.documents.tables import Document
from orders.models import PaymentAdjustment
from orders.payments import transfers
from orders.refunds import ending
from orders.services import Conflict
from supervision.errors import Refused
from supervision.models import Effect, JournalEntry
from supervision.operations import completing, operator_verbs
from supervision.postgres import db
from supervision.signals.sending import send_signal
from supervision.testkit.run import Run
from tests.engine.kit import BLOCKED, at_once
from tests.orders.test_invoices import issue
from tests.orders.test_refund_payouts import given, paid_out, refused, transferred
from tests.orders.test_return_corrections import code_of, correct, report
from tests.orders.test_returns import ada, asked, goods, olga, paying, shop, told

__all__ = ["ada", "olga", "shop", "transferred"]
DOORS = ["api", "signal"]


def pay(olga, made: str, amount: str, door: str = "api") -> None:
    """Record the payout of a refund; nothing takes it yet."""
    if door == "api":
        assert paid_out(olga, "refunds", made, amount).status_code == 202
    else:
        send_signal(made, "money-returned", {"amount": amount, "currency": "EUR", "reference": "OUT-1"})


def owes(olga, back: str) -> str:
    return told(olga, back)["owed"]


def books() -> list[str]:
    return [
        json.loads(body)["refunded"]
        for body in JournalEntry.objects.filter(event_type="order.partly_refunded").values_list("body", flat=True)
    ]


def waiting(shop, transferred: str, amount: str = "79.80") -> str:
    made = given(transferred, amount)
    shop.run()
    return made


# ------------------------------------------------------------------------------------------------------------- cancels


@pytest.mark.parametrize("door", DOORS)
def test_a_refund_that_is_cancelled_after_its_payout_counts_and_is_in_the_books(shop, transferred, olga, door):
    issue()
    made = waiting(shop, transferred)
    pay(olga, made, "79.80", door)
    operator_verbs.cancel(made, by="olga", reason="oops")
    shop.advance("5m")
    issue()

    Run(made).assert_state("Cancelled")
    assert refused(transferred, "0.01").startswith("beyond_charge")
    assert (paying(transferred)["refunded"], books()) == ("79.80", ["79.80"])
    assert [str(note.total) for note in Document.objects.filter(kind="credit_note")] == ["79.80"]
    shop.assert_healthy()


@pytest.mark.parametrize("door", DOORS)
def test_a_return_that_is_cancelled_after_its_payout_keeps_its_pieces(shop, transferred, olga, door):
    issue()
    back = asked(shop, transferred, totes=3)
    goods(shop, back, ("TOTE-OCHRE", 3))
    if door == "api":
        assert paid_out(olga, "returns", back, "54.00").status_code == 202
    else:
        send_signal(back, "money-returned", {"amount": "54.00", "currency": "EUR", "reference": "O"})
    operator_verbs.cancel(back, by="olga", reason="oops")
    shop.advance("5m")
    issue()

    Run(back).assert_state("Cancelled")
    assert refused(transferred, "25.81").startswith("beyond_charge")
    with pytest.raises(Conflict):
        asked(shop, transferred, totes=1)
    assert [str(note.total) for note in Document.objects.filter(kind="credit_note")] == ["54.00"]
    shop.assert_healthy()


def test_a_cancel_without_a_payout_stops_nowhere(shop, transferred):
    made = waiting(shop, transferred)
    operator_verbs.cancel(made, by="olga", reason="oops")
    shop.advance("5m")
    Run(made).assert_state("Cancelled")
    assert not PaymentAdjustment.objects.exists()


@pytest.mark.parametrize("stays", [True, False], ids=["stays paid", "came back"])
def test_a_result_by_hand_counts_although_its_run_is_cancelled(shop, transferred, stays):
    issue()
    made = waiting(shop, transferred)
    shop.kill("notify-refund", at="agent.after_start")
    completing.complete(made, by="olga", reason="paid", step="refund-part", result={"refunded": "79.80"})
    shop.run()
    operator_verbs.cancel(made, by="olga", reason="oops")
    shop.advance("30m")
    Run(made).assert_state("Error")
    assert refused(transferred, "0.01").startswith("beyond_charge")
    if stays:
        operator_verbs.skip(made, by="olga", reason="the customer keeps it")
    else:
        completing.complete(made, by="olga", reason="it came back", step="refund-part", result={})
    shop.run()
    issue()
    Run(made).assert_state("Cancelled")
    assert paying(transferred)["refunded"] == ("79.80" if stays else "0.00")
    assert (books(), Document.objects.filter(kind="credit_note").count()) == ((["79.80"], 1) if stays else ([], 0))
    if not stays:
        given(transferred, "79.80", once="two")


def test_a_result_by_hand_counts_before_the_hook_of_its_end_has_run(shop, transferred, monkeypatch):
    made = waiting(shop, transferred)

    def away(*_arguments: object) -> None:
        raise RuntimeError("the books are away")

    monkeypatch.setattr(ending.entries, "append", away)
    completing.complete(made, by="olga", reason="paid", step="refund-part", result={"refunded": "79.80"})
    shop.run()
    Run(made).assert_state("Processed")
    assert refused(transferred, "0.01").startswith("beyond_charge")


# --------------------------------------------------------------------------------------------------------- corrections


@pytest.mark.parametrize("door", DOORS)
def test_a_return_whose_payout_is_on_its_way_is_not_corrected(shop, transferred, olga, door):
    back = asked(shop, transferred, totes=2)
    goods(shop, back, ("TOTE-OCHRE", 1))
    if door == "api":
        assert paid_out(olga, "returns", back, "18.00").status_code == 202
    else:
        send_signal(back, "money-returned", {"amount": "18.00", "currency": "EUR", "reference": "O"})
    assert code_of(back, report(totes=2)) == "return_under_way"
    shop.run()
    made = correct(back, report(totes=2))
    assert (made.paid, str(made.further)) == (True, "18.00")


def test_a_payout_counts_although_another_return_is_corrected_before_it_is_taken(shop, transferred, olga):
    given(transferred, "40.00")
    first, second = asked(shop, transferred, mugs=2), asked(shop, transferred, totes=3)
    goods(shop, first, ("MUG-BLUE", 1))
    goods(shop, second, ("TOTE-OCHRE", 3))
    assert paid_out(olga, "returns", second, "26.90").status_code == 202
    correct(first, report(mugs=2))
    shop.run()
    Run(second).assert_state("Processed")
    assert (told(olga, second)["refunded"], owes(olga, first)) == ("26.90", "12.90")


@pytest.mark.parametrize("at", ["agent.after_intention", "agent.after_effect"])
def test_a_process_that_died_with_the_payout_is_not_overtaken_by_a_correction(shop, transferred, olga, at):
    back = asked(shop, transferred, totes=2)
    goods(shop, back, ("TOTE-OCHRE", 1))
    shop.kill("refund-part", at=at)
    assert paid_out(olga, "returns", back, "18.00").status_code == 202
    shop.run()
    assert code_of(back, report(totes=2)) == "return_under_way"
    shop.advance("10m")
    Run(back).assert_state("Processed")
    assert (told(olga, back)["refunded"], paying(transferred)["refunded"]) == ("18.00", "18.00")
    shop.assert_healthy()


def test_a_return_that_stopped_with_its_payout_is_not_corrected(shop, transferred, olga):
    back = asked(shop, transferred, totes=2)
    goods(shop, back, ("TOTE-OCHRE", 1))
    for _ in range(5):
        shop.kill("refund-part", at="agent.after_effect")
    assert paid_out(olga, "returns", back, "18.00").status_code == 202
    shop.advance("2h")
    Run(back).assert_state("Error")
    assert code_of(back, report(totes=2)) == "return_under_way"
    operator_verbs.resubmit(back, by="olga", reason="once more")
    shop.run()
    assert (told(olga, back)["refunded"], paying(transferred)["refunded"]) == ("18.00", "18.00")


def test_what_is_owed_does_not_change_between_its_comparison_and_its_payout(shop, transferred, olga, monkeypatch):
    given(transferred, "40.00")
    first, second = asked(shop, transferred, mugs=2), asked(shop, transferred, totes=3)
    goods(shop, first, ("MUG-BLUE", 1))
    goods(shop, second, ("TOTE-OCHRE", 3))
    assert owes(olga, second) == "26.90"
    record, threads, answers = transfers.record, [], []

    def beside(order: str, back: str, *facts: object) -> None:
        if threads:
            return record(order, back, *facts)

        def correction() -> None:
            try:
                correct(first, report(mugs=2))
                answers.append(paid_out(olga, "returns", first, "25.80").status_code)
            finally:
                connection.close()

        threads.append(threading.Thread(target=correction))
        threads[0].start()
        while threads[0].is_alive() and not db.fetch(BLOCKED):
            threads[0].join(0.05)
        return record(order, back, *facts)

    with monkeypatch.context() as patch:
        patch.setattr(transfers, "record", beside)
        send_signal(second, "money-returned", {"amount": "26.90", "currency": "EUR", "reference": "B"})
    threads[0].join(60)
    shop.run()
    assert answers == [400]
    assert (told(olga, second)["refunded"], owes(olga, first)) == ("26.90", "12.90")


# -------------------------------------------------------------------------------------------------- doors and processes


def test_of_several_operators_who_record_a_payout_one_is_answered_and_the_others_are_told(shop, transferred, olga):
    made = waiting(shop, transferred, "10.00")
    tries = [lambda number=number: paid_out(olga, "refunds", made, "10.00", f"R{number}").status_code for number in range(4)]
    assert sorted(at_once(*tries)) == [202, 409, 409, 409]
    [refund] = olga.get(f"/api/v1/orders/{transferred}/refunds/").json()["results"]
    assert refund["owed"] == "0.00"
    shop.run()
    Run(made).assert_state("Processed")


def test_a_cancel_after_a_process_died_with_the_payout_leaves_nothing_unsaid(shop, transferred, olga):
    issue()
    made = waiting(shop, transferred, "10.00")
    shop.kill("refund-part", at="agent.after_effect")
    pay(olga, made, "10.00")
    shop.run()
    operator_verbs.cancel(made, by="olga", reason="oops")
    shop.advance("10m")
    Run(made).assert_state("Error")
    assert [row.outcome for row in Effect.objects.filter(operation="pay-out")] == ["done"]
    operator_verbs.skip(made, by="olga", reason="it stays paid")
    shop.run()
    issue()
    assert (books(), paying(transferred)["refunded"]) == (["10.00"], "10.00")


def test_a_payout_whose_step_is_skipped_is_in_the_books_and_has_its_credit_note(shop, transferred, olga):
    issue()
    made = waiting(shop, transferred, "10.00")
    for _ in range(5):
        shop.kill("refund-part", at="agent.after_effect")
    pay(olga, made, "10.00")
    shop.advance("2h")
    Run(made).assert_state("Error")
    operator_verbs.skip(made, by="olga", reason="it was paid")
    shop.run()
    issue()
    assert (books(), paying(transferred)["refunded"], Document.objects.filter(kind="credit_note").count()) == (["10.00"], "10.00", 1)


@pytest.mark.parametrize("amount", ["99999999999999999999", "1E+400", "-5", "NaN", "sNaN", "10,00", "9.99", "10.001", ["10.00"], True])
def test_a_refund_by_hand_is_all_that_was_asked_for_or_nothing(shop, transferred, amount):
    made = waiting(shop, transferred, "10.00")
    with pytest.raises(Refused, match=r"refunded: expected 10.00 or 0.00"):
        completing.complete(made, by="olga", reason="paid", step="refund-part", result={"refunded": amount})
    Run(made).assert_state("Processing")
    assert not PaymentAdjustment.objects.exists()


def test_the_audit_tells_of_an_order_that_was_paid_out_more_than_came(shop, transferred, olga):
    made = waiting(shop, transferred, "60.00")
    pay(olga, made, "60.00")
    back = asked(shop, transferred, totes=3)
    goods(shop, back, ("TOTE-OCHRE", 3))
    shop.run()
    shop.assert_healthy()
    completing.complete(back, by="olga", reason="paid", step="refund-part", result={"refunded": "54.00"})
    shop.run()
    with pytest.raises(AssertionError, match="no order was paid out more at the bank than has come for it"):
        shop.assert_healthy()
    with pytest.raises(Conflict):
        given(transferred, "0.01", once="more")


def test_a_correction_that_is_refused_says_why(shop, transferred, olga):
    back = asked(shop, transferred, totes=2)
    goods(shop, back, ("TOTE-OCHRE", 1))
    paid_out(olga, "returns", back, "18.00")
    with pytest.raises(Refused, match="may have gone out"):
        correct(back, report(totes=2))
