"""A payout at the bank counts when the shop is told of it, at every door, and what becomes of its run later changes nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from orders.documents.tables import Document
from orders.models import PaymentAdjustment
from orders.queries import order_view
from orders.refunds import ending
from orders.refunds import mail as refund_mail
from orders.returns import answers, shown
from orders.returns import mail as return_mail
from orders.stakes import at_stake
from supervision.approvals.stakes import Operation
from supervision.models import Run as RunRow
from supervision.models import StepState
from supervision.operations import archive, completing, operator_verbs, pauses
from supervision.signals.sending import send_signal
from supervision.testkit.run import Run
from supervision.workflow import ClosedRun
from tests.orders.test_invoices import issue
from tests.orders.test_payouts_kept import books, waiting
from tests.orders.test_refund_payouts import given, paid_out, refused, transferred
from tests.orders.test_return_corrections import correct, report
from tests.orders.test_returns import ada, asked, goods, olga, paying, shop, told

__all__ = ["ada", "olga", "shop", "transferred"]


def hold(agent: str) -> None:
    pauses.pause("agent", agent, reason="maintenance", by="olga")


def lift(agent: str) -> None:
    pauses.lift("agent", agent, by="olga", reason="done")


def by_hand(made: str, amount: str) -> None:
    completing.complete(made, by="olga", reason="paid", step="refund-part", result={"refunded": amount})


def signal(made: str, amount: str) -> None:
    send_signal(made, "money-returned", {"amount": amount, "currency": "EUR", "reference": "OUT-1"})


def notes() -> list[str]:
    return [str(note.total) for note in Document.objects.filter(kind="credit_note")]


def in_error(shop, transferred) -> str:
    """A refund whose payout did not come within 30 days."""
    made = waiting(shop, transferred)
    shop.advance("31d")
    shop.advance("10m")
    Run(made).assert_state("Error")
    return made


# ------------------------------------------------------------------------------------------------------ ends of a run


def test_a_result_by_hand_counts_although_its_refund_is_cancelled_without_undo(shop, transferred, olga):
    issue()
    made = waiting(shop, transferred)
    hold("email")
    by_hand(made, "79.80")
    shop.run()
    Run(made).abandon()
    shop.run()
    lift("email")
    issue()
    Run(made).assert_state("Cancelled")
    assert (books(), paying(transferred)["refunded"], notes()) == (["79.80"], "79.80", ["79.80"])
    assert refused(transferred, "0.01").startswith("beyond_charge")
    shop.assert_healthy()


def test_a_result_by_hand_counts_although_its_return_is_cancelled_without_undo(shop, transferred):
    back = asked(shop, transferred, totes=3)
    goods(shop, back, ("TOTE-OCHRE", 3))
    hold("email")
    by_hand(back, "54.00")
    shop.run()
    Run(back).abandon()
    shop.run()
    Run(back).assert_state("Cancelled")
    assert refused(transferred, "25.81").startswith("beyond_charge")


def test_a_result_by_hand_counts_although_its_undo_died_and_was_skipped(shop, transferred):
    made = waiting(shop, transferred)
    hold("email")
    by_hand(made, "79.80")
    shop.run()
    for _ in range(5):
        shop.kill("undo:refund-part", at="agent.after_start")
    operator_verbs.cancel(made, by="olga", reason="oops")
    shop.advance("2h")
    Run(made).assert_state("Error")
    operator_verbs.skip(made, by="olga", reason="it stays paid")
    shop.advance("5m")
    Run(made).assert_state("Cancelled")
    assert (books(), paying(transferred)["refunded"]) == (["79.80"], "79.80")


def test_a_signal_counts_although_the_step_in_error_is_skipped(shop, transferred):
    issue()
    made = in_error(shop, transferred)
    signal(made, "79.80")
    operator_verbs.skip(made, by="olga", reason="it was paid")
    shop.run()
    issue()
    Run(made).assert_state("Processed")
    assert (books(), paying(transferred)["refunded"], notes()) == (["79.80"], "79.80", ["79.80"])
    assert refused(transferred, "0.01").startswith("beyond_charge")


def test_a_signal_of_a_return_counts_although_its_step_is_skipped_and_the_customer_is_told(shop, transferred, olga):
    back = asked(shop, transferred, totes=1)
    goods(shop, back, ("TOTE-OCHRE", 1))
    shop.advance("31d")
    shop.advance("10m")
    signal(back, "18.00")
    operator_verbs.skip(back, by="olga", reason="it was paid")
    shop.run()
    Run(back).assert_state("Processed")
    assert (paying(transferred)["refunded"], told(olga, back)["refunded"]) == ("18.00", "18.00")
    assert "€18.00" in shown.card(answers.return_view(back)).note


def test_the_customer_of_a_cancelled_return_reads_what_was_paid(shop, transferred, olga, ada, client):
    back = asked(shop, transferred, totes=3)
    goods(shop, back, ("TOTE-OCHRE", 3))
    assert paid_out(olga, "returns", back, "54.00").status_code == 202
    operator_verbs.cancel(back, by="olga", reason="oops")
    shop.advance("5m")
    client.force_login(ada)
    page = client.get(f"/orders/{transferred}/").content.decode()
    assert "We have paid €54.00 back." in page
    assert "Nothing was paid back" not in page
    assert told(olga, back)["refunded"] == "54.00"


@pytest.mark.parametrize("how", ["ends", "is cancelled"])
def test_a_result_by_hand_that_older_code_kept_counts_when_its_run(shop, transferred, monkeypatch, how):
    made = waiting(shop, transferred)
    hold("email")
    with monkeypatch.context() as older:
        older.setattr(completing, "_tell", lambda *_facts: None)
        by_hand(made, "79.80")
    assert not PaymentAdjustment.objects.exists()
    if how == "is cancelled":
        operator_verbs.cancel(made, by="olga", reason="oops")
        shop.advance("5m")
        Run(made).assert_state("Error")
        operator_verbs.skip(made, by="olga", reason="it stays paid")
    lift("email")
    shop.advance("5m")
    Run(made).assert_state("Processed" if how == "ends" else "Cancelled")
    assert (books(), paying(transferred)["refunded"]) == (["79.80"], "79.80")
    assert refused(transferred, "0.01").startswith("beyond_charge")


def test_a_return_that_stopped_for_another_reason_announces_no_transfer(shop, transferred):
    back = asked(shop, transferred, mugs=2)
    completing.complete(back, by="olga", reason="they came", result={"accepted": {"MUG-BLUE": 2}, "amount": "25.80"})
    shop.run()
    completing.complete(back, by="olga", reason="on the shelf", result={})
    shop.run()
    assert Run(back).steps["refund-part"] == "Error"
    card = shown.card(answers.return_view(back))
    assert card.title == "We are looking into your return"


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "deleted"])
def test_an_archived_return_says_what_was_paid(shop, transferred, olga, keep):
    back = asked(shop, transferred, totes=1)
    goods(shop, back, ("TOTE-OCHRE", 1))
    assert paid_out(olga, "returns", back, "18.00").status_code == 202
    operator_verbs.cancel(back, by="olga", reason="oops")
    shop.advance("200d")
    assert any(moved.runs for moved in list(archive.batches(timedelta(days=90), keep_orders=keep)))
    assert told(olga, back)["refunded"] == "18.00"
    assert "€18.00" in shown.card(answers.return_view(back)).note


@pytest.mark.parametrize("how", ["complete", "skip"])
@pytest.mark.parametrize("what", ["refund", "return"])
def test_the_mail_says_what_was_paid_although_the_step_has_no_result_of_it(shop, transferred, olga, monkeypatch, what, how):
    said = []
    for module in (refund_mail, return_mail):
        monkeypatch.setattr(module, "words", lambda request, real=module.words: said.append(real(request)) or said[-1])
    if what == "refund":
        made = waiting(shop, transferred, "18.00")
    else:
        made = asked(shop, transferred, totes=1)
        goods(shop, made, ("TOTE-OCHRE", 1))
    shop.advance("31d")
    shop.advance("10m")
    signal(made, "18.00")
    if how == "skip":
        operator_verbs.skip(made, by="olga", reason="paid")
    else:
        completing.complete(made, by="olga", reason="paid", step="refund-part", result={})
    shop.advance("5m")
    Run(made).assert_state("Processed")
    assert "18.00" in said[-1][1]


def test_a_signal_counts_while_the_hook_of_its_cancelled_refund_is_put_off(shop, transferred, monkeypatch):
    made = waiting(shop, transferred)
    signal(made, "79.80")

    def away(*_arguments: object) -> None:
        raise RuntimeError("the books are away")

    monkeypatch.setattr(ending.entries, "append", away)
    operator_verbs.cancel(made, by="olga", reason="oops")
    shop.run()
    Run(made).assert_state("Cancelled")
    assert refused(transferred, "0.01").startswith("beyond_charge")


# --------------------------------------------------------------------------------------------- others of the same order


def test_a_result_by_hand_counts_for_a_return_that_was_looked_at_earlier(shop, transferred, olga):
    given(transferred, "40.00")
    first, second = asked(shop, transferred, mugs=2), asked(shop, transferred, totes=3)
    goods(shop, first, ("MUG-BLUE", 1))
    goods(shop, second, ("TOTE-OCHRE", 3))
    hold("email")
    by_hand(second, "26.90")
    shop.run()
    correct(first, report(mugs=2))
    shop.run()
    assert told(olga, first)["owed"] == "12.90"


@pytest.mark.parametrize("what", ["correction", "cancel"])
def test_a_signal_counts_although_what_is_owed_changes_before_it_is_taken(shop, transferred, olga, what):
    refund = given(transferred, "40.00")
    shop.run()
    first, second = asked(shop, transferred, mugs=2), asked(shop, transferred, totes=3)
    goods(shop, first, ("MUG-BLUE", 1))
    goods(shop, second, ("TOTE-OCHRE", 3))
    hold("payment")
    signal(second, "26.90")
    if what == "correction":
        correct(first, report(mugs=2))
    else:
        operator_verbs.cancel(refund, by="olga", reason="a mistake")
    lift("payment")
    shop.advance("1m")
    assert (Run(second).state, told(olga, second)["refunded"], told(olga, second)["owed"]) == ("Processed", "26.90", "0.00")
    assert told(olga, first)["owed"] == "12.90"


# ------------------------------------------------------------------------------------------------------------ its cost


def test_a_refund_by_hand_has_its_amount_at_stake(shop, transferred):
    made = waiting(shop, transferred, "10.00")
    row = RunRow.objects.get(key=made)
    operation = Operation(
        verb="complete", subject=made, order=made, arguments={}, run=row, about=list(StepState.objects.filter(run=row, agent="payment"))
    )
    assert {currency: str(amount) for currency, amount in at_stake(operation).items()} == {"EUR": "10.00"}


def test_a_page_asks_for_its_order_once_however_many_returns_wait_to_be_paid_out(shop, transferred, monkeypatch):
    asked_for = []
    for _ in range(3):
        back = asked(shop, transferred, totes=1)
        goods(shop, back, ("TOTE-OCHRE", 1))
    monkeypatch.setattr(answers, "order_view", lambda key: asked_for.append(key) or order_view(key))
    assert [one.by_transfer for one in answers.of_order(transferred)] == [True, True, True]
    assert asked_for == [transferred]


def test_the_end_of_many_cancelled_refunds_takes_as_many_statements_as_that_of_one(shop, transferred):
    keys = [given(transferred, "0.10", once=f"r{number}") for number in range(12)]
    shop.run()
    runs = [ClosedRun(run_id=run.pk, key=run.key, reason="", payload=run.payload) for run in RunRow.objects.filter(key__in=keys)]

    def statements(some: list[ClosedRun]) -> int:
        with CaptureQueriesContext(connection) as seen, transaction.atomic():
            ending.record_cancelled(some)
        return len(seen)

    assert statements(runs) == statements(runs[:1])
