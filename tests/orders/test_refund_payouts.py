"""Money without goods for orders that were paid by bank transfer: owed until it is paid out, and never more than has come."""

from __future__ import annotations

import threading
from decimal import Decimal
from io import StringIO
from types import SimpleNamespace

import pytest
from django.core.management import call_command

from orders.documents.tables import Document
from orders.models import Refund
from orders.payments import codes as payment_codes
from orders.queries import order_view
from orders.refunds.asking import refund
from orders.refunds.mail import words
from orders.returns import answers, codes
from orders.services import Conflict
from supervision.incidents import lifecycle
from supervision.models import Effect, Incident
from supervision.operations import completing, operator_verbs
from supervision.postgres import db
from supervision.signals.sending import send_signal
from supervision.testkit.run import Run
from tests.engine.kit import BLOCKED, at_once
from tests.orders.test_invoices import issue
from tests.orders.test_refund_parts import findings
from tests.orders.test_refunds import boss, refund_page
from tests.orders.test_return_corrections import correct, report
from tests.orders.test_returns import LINES, ada, asked, goods, olga, paying, shop, told
from tests.shopping import a_client, an_account, place
from tests.support.console import hidden

__all__ = ["ada", "boss", "olga", "shop"]


@pytest.fixture
def transferred(shop, ada) -> str:
    """An order over 2 mugs (12.90) and 3 totes (18.00), 79.80 EUR, that was paid by bank transfer: 80.00 came."""
    key = place(ada, lines=LINES, payment_method=payment_codes.BANK_TRANSFER)
    shop.run()
    send_signal(key, payment_codes.TRANSFER, {"amount": "80.00", "currency": "EUR", "reference": "T1"})
    shop.run()
    Run(key).assert_state("Processed")
    return key


def given(key: str, amount: str = "10.00", *, once: str = "one") -> str:
    return refund(key, amount=Decimal(amount), reason="a scratch", by="olga", idempotency_key=once).public_id


def refused(key: str, amount: str) -> str:
    with pytest.raises(Conflict) as wrong:
        given(key, amount, once=f"refused-{amount}")
    return f"{wrong.value.code}: {wrong.value.message}"


def paid_out(olga, what: str, key: str, amount: str, reference: str = "OUT-1"):
    return olga.post(f"/api/v1/{what}/{key}/payout/", {"amount": amount, "reference": reference, "reason": "paid today"})


def mailed(payload: dict) -> str:
    return words(SimpleNamespace(payload=payload, run_key="", results={codes.REFUND: {"refunded": "10.00"}}))[1]


def test_a_refund_is_owed_until_its_payout_is_recorded_and_then_everything_agrees(shop, transferred, olga, ada, services, capsys, client):
    issue()
    made = given(transferred)
    shop.run()
    (waiting,) = olga.get(f"/api/v1/orders/{transferred}/refunds/").json()["results"]
    assert (waiting["amount"], waiting["owed"]) == ("10.00", "10.00")
    Run(made).assert_state("Processing")
    lifecycle.look()
    assert Incident.objects.get(kind="payout", closed_at=None).title.startswith("1 returns or refunds")

    assert paid_out(olga, "refunds", made, "10.01").json()["errors"].keys() == {"amount"}
    assert [paid_out(olga, "refunds", made, "10.00").status_code for _ in range(2)] == [202, 202]
    shop.run()
    issue()

    Run(made).assert_state("Processed")
    assert (paying(transferred)["state"], paying(transferred)["refunded"]) == ("partly_refunded", "10.00")
    client.force_login(ada)
    assert "We have transferred €10.00 of the €80.00 you paid back" in client.get(f"/orders/{transferred}/").content.decode()
    (done,) = olga.get(f"/api/v1/orders/{transferred}/refunds/").json()["results"]
    assert done["owed"] == "0.00"
    [row] = Effect.objects.filter(operation="pay-out")
    assert (row.outcome, row.external_id, str(row.amount), row.service) == ("done", "OUT-1", "10.000", "bank")
    assert str(Document.objects.get(kind="credit_note").total) == "10.00"
    assert any("A refund" in one["subject"] for one in services.ledger("mail", transferred))
    by_transfer, by_card = ({"currency": "EUR", "order": transferred, "number": "1", "intent": intent} for intent in (None, "pi_1"))
    assert "transferred €10.00 of your order back to your bank account" in mailed(by_transfer)
    assert "pay €10.00 of your order back to your card" in mailed(by_card)
    assert findings(capsys, transferred) == ""
    lifecycle.look()
    assert not Incident.objects.filter(kind="payout", closed_at=None).exists()
    late = paid_out(olga, "refunds", made, "10.00", "OUT-2")
    assert (late.status_code, late.json()["code"]) == (409, "no_payout")
    shop.assert_healthy()


def test_what_was_sent_too_much_is_no_refund_and_what_is_under_way_counts(shop, transferred):
    assert refused(transferred, "79.81").startswith("beyond_charge: Only 79.80 EUR")
    given(transferred, "10.00")
    shop.run()
    goods(shop, asked(shop, transferred, totes=2), ("TOTE-OCHRE", 2))
    assert refused(transferred, "33.81").startswith("beyond_charge: Only 33.80 EUR"), "a return of 36.00 waits for its payout"
    given(transferred, "33.80", once="two")
    assert refused(transferred, "0.01").startswith("beyond_charge: Only 0.00 EUR")


def test_refunds_that_are_asked_for_at_once_are_never_more_than_has_come(shop, transferred):
    def one(number: int) -> str:
        try:
            return given(transferred, "30.00", once=f"key-{number}")
        except Conflict as full:
            return full.code

    told_ = at_once(*[lambda number=number: one(number) for number in range(4)])
    assert sorted(code for code in told_ if code == "beyond_charge") == ["beyond_charge"] * 2


@pytest.mark.parametrize("first", ["mugs", "totes"])
def test_returns_after_a_refund_owe_what_is_left_and_the_first_that_was_looked_at_comes_first(shop, transferred, olga, first):
    issue()
    backs = {"mugs": asked(shop, transferred, mugs=2), "totes": asked(shop, transferred, totes=3)}
    made = given(transferred, "60.00")
    shop.run()
    second = "totes" if first == "mugs" else "mugs"
    for name in (first, second):
        goods(shop, backs[name], ("MUG-BLUE", 2) if name == "mugs" else ("TOTE-OCHRE", 3))
    whole = {"mugs": Decimal("25.80"), "totes": Decimal("54.00")}
    owes = min(whole[first], Decimal("19.80"))

    assert told(olga, backs[first])["owed"] == str(owes)
    assert [paid_out(olga, "returns", backs[first], str(owes)).status_code, paid_out(olga, "refunds", made, "60.00", "B").status_code] == [
        202,
        202,
    ]
    shop.run()
    Run(backs[first]).assert_state("Processed")
    Run(backs[second]).assert_state("Processed")  # nothing was left for it
    assert answers.return_view(backs[second]).refunded == 0
    assert Run(backs[second]).results[codes.REFUND] == {
        "method": "bank_transfer", "currency": "EUR", "refunds": [], "refunded": "0.00", "short": str(whole[second]),
    }  # fmt: skip
    assert (paying(transferred)["state"], paying(transferred)["refunded"]) == ("refunded", "79.80")
    issue()
    shop.assert_healthy()


def test_a_refund_that_is_being_accepted_counts_for_a_return_that_is_worked_out_meanwhile(shop, transferred, olga):
    back, inside, done = asked(shop, transferred, totes=3), threading.Event(), threading.Event()

    def accepting() -> None:
        def work() -> None:
            given(transferred, "60.00")  # it has seen no return with goods, and holds the order's row
            inside.set()
            while not done.wait(0.05):
                if db.fetch(BLOCKED):
                    return

        db.transact(work)

    thread = threading.Thread(target=accepting)
    thread.start()
    try:
        assert inside.wait(60)
        goods(shop, back, ("TOTE-OCHRE", 3))
        assert paid_out(olga, "returns", back, "54.00").status_code == 400
    finally:
        done.set()
        thread.join(60)
    shop.run()
    assert paid_out(olga, "returns", back, "19.80").status_code == 202
    shop.run()
    Run(back).assert_state("Processed")
    assert Run(back).results[codes.REFUND]["short"] == "34.20"


def test_pieces_that_a_report_missed_are_owed_and_paid_out_at_the_bank(shop, transferred, olga):
    back = asked(shop, transferred, totes=2)
    goods(shop, back, ("TOTE-OCHRE", 1))
    assert paid_out(olga, "returns", back, "18.00").status_code == 202
    shop.run()
    issue()
    made = correct(back, report(totes=2), by=an_account("otto", "operator"))
    shop.run()
    assert (str(made.further), paid_out(olga, "refunds", made.refund, "18.00", "OUT-2").status_code) == ("18.00", 202)
    shop.run()
    issue()

    Run(made.refund).assert_state("Processed")
    assert (told(olga, back)["refunded"], paying(transferred)["refunded"]) == ("36.00", "36.00")
    note = Document.objects.get(cause=made.refund)
    assert [(one["sku"], one["quantity"], one["amount"]) for one in note.body["lines"]] == [("TOTE-OCHRE", 1, "18.00")]
    shop.assert_healthy()


@pytest.mark.parametrize("at", ["agent.after_start", "agent.after_intention", "agent.after_effect", "agent.after_finish"])
def test_a_process_that_dies_while_it_records_the_payout_records_it_once(shop, transferred, olga, at):
    made = given(transferred)
    shop.run()
    shop.kill("refund-part", at=at)
    paid_out(olga, "refunds", made, "10.00")
    shop.advance("10m")

    Run(made).assert_state("Processed")
    assert paying(transferred)["refunded"] == "10.00"
    assert Effect.objects.filter(operation="pay-out").count() == 1
    shop.assert_healthy()


def test_a_payout_that_an_operator_wrote_as_the_result_by_hand_counts_too(shop, transferred):
    back = asked(shop, transferred, totes=1)
    goods(shop, back, ("TOTE-OCHRE", 1))
    made = given(transferred)
    shop.advance("31d")
    shop.advance("10m")  # the waits of both end at one moment: the claim of one of them may have to be recovered
    for key, amount in ((back, "18.00"), (made, "10.00")):
        Run(key).assert_state("Error")
        completing.complete(key, by="olga", reason="paid at the bank", step="refund-part", result={"refunded": amount})
    shop.run()

    assert paying(transferred)["refunded"] == "28.00"
    assert refused(transferred, "51.81").startswith("beyond_charge: Only 51.80 EUR")
    shop.assert_healthy()


def test_a_refund_that_was_cancelled_gives_its_money_free(shop, transferred):
    made = given(transferred, "79.80")
    shop.run()
    assert refused(transferred, "0.01").startswith("beyond_charge")
    operator_verbs.cancel(made, by="olga", reason="a mistake")
    shop.advance("1m")
    Run(made).assert_state("Cancelled")
    given(transferred, "79.80", once="two")
    assert Refund.objects.count() == 2


def test_the_page_says_that_the_money_is_sent_at_the_bank_and_asks_once(shop, transferred, boss):
    at = refund_page(transferred)
    asking = boss.get(at).content.decode()
    assert "79.80 EUR of the customer&#x27;s transfer are left. Make the transfer at the bank" in asking
    said = {**hidden(asking), "amount": "10.00", "reason": "a scratch"}
    for _ in range(2):
        assert boss.post(at, said).status_code == 302
    assert Refund.objects.count() == 1


def test_the_command_asks_for_one_too(shop, transferred):
    out = StringIO()
    view = order_view(transferred)
    call_command("refund", view.number, "10.00", "--key", "K", "--reason", "a scratch", stdout=out)
    assert str(Refund.objects.get(order_key=transferred).amount) == "10.00"


def test_only_operators_record_payouts_and_an_unknown_refund_is_not_there(shop, transferred, olga, ada):
    made = given(transferred)
    shop.run()
    assert paid_out(a_client(ada), "refunds", made, "10.00").status_code == 403
    assert paid_out(olga, "refunds", "nothing-of-that-name-1", "10.00").status_code == 404
