"""Returns of orders that were paid by bank transfer: owed until an operator has paid them out at the bank, and recorded once."""

from __future__ import annotations

import pytest
from django.contrib.admin.models import LogEntry

from orders.models import PaymentAdjustment
from orders.payments import codes as payment_codes
from orders.returns import answers, codes, shown
from supervision.audit import registry
from supervision.errors import Refused
from supervision.incidents import lifecycle
from supervision.models import Effect, Incident
from supervision.operations import completing, operator_verbs
from supervision.signals.sending import send_signal
from supervision.testkit.run import Run
from tests.orders.test_returns import LINES, ada, asked, goods, olga, paying, shop, told
from tests.shopping import a_client, place

__all__ = ["ada", "olga", "shop"]
PAID = {"amount": "12.90", "reference": "OUT-1", "reason": "paid today"}


@pytest.fixture
def back(shop, ada):
    """The public id of a return over one mug, looked at, of an order that was paid by bank transfer."""
    key = place(ada, lines=LINES, payment_method=payment_codes.BANK_TRANSFER)
    shop.run()
    send_signal(key, payment_codes.TRANSFER, {"amount": "79.80", "currency": "EUR", "reference": "T1"})
    shop.run()
    made = asked(shop, key, mugs=1)
    goods(shop, made, ("MUG-BLUE", 1))
    return made


def order_of(back):
    return answers.return_view(back).row.order_key


def test_a_second_report_is_refused_while_the_payout_is_owed(shop, back, olga):
    at, said = f"/api/v1/returns/{back}/goods/", {"lines": [{"sku": "MUG-BLUE", "accepted": 0}], "reason": "looked again"}

    again = olga.post(at, said)

    assert (again.status_code, again.json()["code"]) == (409, "already_reported")
    with pytest.raises(Refused, match="correct the report instead"):
        operator_verbs.signal(back, codes.RECEIVED, by="olga", reason="looked again", payload={"lines": []})
    assert told(olga, back)["worth"] == "12.90"


def test_the_money_is_owed_until_the_payout_is_recorded_and_then_everything_agrees(shop, back, ada, olga, services):
    waiting = told(a_client(ada), back)
    assert (waiting["process_state"], waiting["refunded"], waiting["owed"]) == ("Processing", "0.00", "12.90")
    assert "12.90" in shown.card(answers.return_view(back)).note
    lifecycle.look()
    assert Incident.objects.get(kind="payout", closed_at=None).title.startswith("1 returns")

    assert olga.post(f"/api/v1/returns/{back}/payout/", PAID).status_code == 202
    shop.run()

    Run(back).assert_state("Processed")
    done = told(a_client(ada), back)
    assert (done["refunded"], done["owed"]) == ("12.90", "0.00")
    assert (paying(order_of(back))["state"], paying(order_of(back))["refunded"]) == ("partly_refunded", "12.90")
    [row] = Effect.objects.filter(operation="pay-out")
    assert (row.outcome, row.external_id, str(row.amount), row.service) == ("done", "OUT-1", "12.900", "bank")
    assert "paid today" in LogEntry.objects.get(user__username="olga").change_message
    lifecycle.look()
    assert not Incident.objects.filter(kind="payout", closed_at=None).exists()
    shop.assert_healthy()


def test_a_payout_that_is_recorded_twice_counts_once_and_a_late_one_is_refused(shop, back, olga):
    for _ in range(2):
        assert olga.post(f"/api/v1/returns/{back}/payout/", PAID).status_code == 202
    shop.run()
    Run(back).assert_state("Processed")

    another = olga.post(f"/api/v1/returns/{back}/payout/", {**PAID, "reference": "OUT-2"})
    assert (another.status_code, another.json()["code"]) == (409, "no_payout")
    assert Effect.objects.filter(operation="pay-out").count() == 1


@pytest.mark.parametrize("wrong", [{"amount": "12.91"}, {"amount": "a lot"}, {"reference": " "}])
def test_another_amount_than_is_owed_is_refused_and_named(shop, back, olga, wrong):
    refused = olga.post(f"/api/v1/returns/{back}/payout/", {**PAID, **wrong})
    assert refused.status_code == 400
    [field] = wrong
    assert field in refused.json()["errors"]
    shop.run()
    assert told(olga, back)["owed"] == "12.90"


def test_a_signal_that_does_not_fit_is_refused_and_the_return_waits_on(shop, back, olga):
    with pytest.raises(Refused, match=r"amount: expected 12.90, which is what has to be paid back"):
        send_signal(back, codes.PAID_OUT, {"amount": "1.00", "currency": "EUR", "reference": "OUT-1"})
    shop.run()
    assert (told(olga, back)["owed"], told(olga, back)["refunded"]) == ("12.90", "0.00")
    send_signal(back, codes.PAID_OUT, {"amount": "12.90", "currency": "EUR", "reference": "OUT-2"})
    shop.run()
    Run(back).assert_state("Processed")


def test_an_agents_process_that_dies_while_it_records_the_payout_records_it_once(shop, back, olga):
    shop.kill(codes.REFUND, at="agent.after_effect")
    olga.post(f"/api/v1/returns/{back}/payout/", PAID)
    shop.run()
    shop.advance("5m")
    Run(back).assert_state("Processed")
    assert Effect.objects.filter(operation="pay-out").count() == 1


def test_a_payout_that_is_not_recorded_in_time_stops_the_return_and_a_resubmission_waits_again(shop, back, olga):
    shop.advance("31d")
    Run(back).assert_state("Error")
    Run(back).resubmit()
    shop.run()
    assert told(olga, back)["owed"] == "12.90"


def test_a_customer_cannot_record_a_payout(shop, back, ada):
    assert a_client(ada).post(f"/api/v1/returns/{back}/payout/", PAID).status_code == 403


@pytest.fixture
def unpaid(shop, ada):
    """The public id of a return over one mug, looked at, of an order whose card was declined and whose payment was skipped."""
    key = place(ada, lines=LINES, payment_method="pm_card_visa_chargeDeclined")
    shop.run()
    operator_verbs.skip(key, by="olga", reason="goodwill")
    shop.run()
    made = asked(shop, key, mugs=1)
    goods(shop, made, ("MUG-BLUE", 1))
    return made


def test_a_return_of_an_order_that_was_never_paid_owes_nothing_and_says_it(shop, unpaid, olga):
    Run(unpaid).assert_state("Processed")
    assert (told(olga, unpaid)["refunded"], told(olga, unpaid)["owed"]) == ("0.00", "0.00")
    assert (Run(unpaid).results[codes.REFUND]["refunded"], Run(unpaid).results[codes.REFUND]["short"]) == ("0.00", "12.90")
    refused = olga.post(f"/api/v1/returns/{unpaid}/payout/", PAID)
    assert (refused.status_code, refused.json()["code"]) == (409, "no_payout")
    shop.assert_healthy()


def test_the_audit_tells_of_a_payout_for_an_order_that_was_never_paid(shop, unpaid):
    facts = {"external_id": f"payout:{unpaid}", "order_key": order_of(unpaid), "intent": "bank_transfer", "kind": "refund"}
    PaymentAdjustment.objects.create(**facts, amount="12.90", currency="EUR", status="succeeded", gives_back=True, rank=1)

    assert "no order was paid out more at the bank than has come for it" in [one.invariant for one in registry.violations()]


def test_a_payment_by_hand_that_does_not_say_how_much_came_counts_in_full(shop, ada, olga):
    key = place(ada, lines=LINES, payment_method="pm_card_visa_chargeDeclined")
    shop.run()
    completing.complete(key, by="olga", reason="paid in cash", result={})
    shop.run()
    made = asked(shop, key, mugs=1)
    goods(shop, made, ("MUG-BLUE", 1))
    assert told(olga, made)["owed"] == "12.90"
    assert olga.post(f"/api/v1/returns/{made}/payout/", PAID).status_code == 202
    shop.run()

    Run(made).assert_state("Processed")
    assert told(olga, made)["refunded"] == "12.90"
    shop.assert_healthy()


def test_a_card_that_was_refused_and_then_paid_gets_its_money_back(shop, ada, olga, services):
    key = place(ada, lines=LINES, payment_method="pm_card_visa_chargeDeclined")
    shop.run()
    assert a_client(ada).post(f"/api/v1/orders/{key}/payment/", {"payment_method": "pm_card_visa"}).status_code == 202
    shop.run()
    made = asked(shop, key, mugs=1)
    goods(shop, made, ("MUG-BLUE", 1))

    Run(made).assert_state("Processed")
    assert services.charged(key) == 7980 - 1290
    shop.assert_healthy()
