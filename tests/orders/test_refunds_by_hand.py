"""Money of a card that an operator has sent back by hand: the shop counts it, so neither it nor the payment service pays it again."""

from __future__ import annotations

import pytest

from orders.models import PaymentAdjustment
from orders.refunds.again import pay_again
from orders.services import Conflict
from supervision.ledger.reconciliation import CannotSettle
from supervision.models import Effect
from supervision.operations import completing, operator_verbs
from supervision.testkit.run import Run
from tests.orders.test_failed_refunds import again, fails, heard, open_finding, returned, standing
from tests.orders.test_invoices import issue
from tests.orders.test_payouts_kept import books
from tests.orders.test_refund_parts import findings, intent_of, refunds_made, result
from tests.orders.test_refunds import given, paying
from tests.orders.test_returns import ada, asked, delivered, goods, olga, shop, told

__all__ = ["ada", "delivered", "olga", "returned", "shop"]


def stopped(shop, delivered: str, amount: str = "79.80", *, at: str = "agent.after_start") -> str:
    """A refund by card whose step has stopped in Error."""
    for _ in range(5):
        shop.kill("refund-part", at=at)
    made = given(delivered, amount, once=f"stopped-{amount}").public_id
    shop.advance("2h")
    Run(made).assert_state("Error")
    return made


def by_hand(made: str, amount: str, **more: object) -> None:
    completing.complete(made, by="olga", reason="paid at the bank", step="refund-part", result={"refunded": amount, **more})


def left(key: str, amount: str) -> None:
    """Assert that this much can go back, and no cent more."""
    cent_more = f"{float(amount) + 0.01:.2f}"
    with pytest.raises(Conflict, match=f"Only {amount} EUR of the charge are left"):
        given(key, cent_more, once=f"more-than-{amount}")


def undone(shop, made: str) -> None:
    """An operator cancels it, and its undo stops because it has paid."""
    operator_verbs.cancel(made, by="olga", reason="oops")
    shop.advance("5m")
    Run(made).assert_state("Error")


def test_a_refund_by_hand_counts_and_is_paid_once(shop, delivered, services, capsys):
    issue()
    made = stopped(shop, delivered)
    by_hand(made, "79.80")
    shop.run()
    issue()
    Run(made).assert_state("Processed")
    assert (paying(delivered), books()) == (("refunded", "79.80"), ["79.80"])
    left(delivered, "0.00")

    back = asked(shop, delivered, mugs=1)
    goods(shop, back, ("MUG-BLUE", 1))
    Run(back).assert_state("Processed")
    assert (result(back)["refunded"], result(back)["short"]) == ("0.00", "12.90")
    assert refunds_made(services, delivered) == []
    assert findings(capsys, delivered) == ""
    shop.assert_healthy()


def test_a_return_by_hand_counts_for_refunds(shop, delivered, services, capsys):
    back = asked(shop, delivered, mugs=1)
    for _ in range(5):
        shop.kill("refund-part", at="agent.after_start")
    goods(shop, back, ("MUG-BLUE", 1))
    shop.advance("2h")
    by_hand(back, "12.90")
    shop.run()
    Run(back).assert_state("Processed")
    left(delivered, "66.90")
    given(delivered, "66.90")
    shop.run()
    assert refunds_made(services, delivered) == [6690]
    assert paying(delivered) == ("refunded", "79.80")
    assert findings(capsys, back) == "", "a return is no order without a charge"


def test_a_refund_by_hand_counts_once_while_its_run_has_not_ended(shop, delivered, services):
    made = stopped(shop, delivered, "10.00")
    services.faults("mail", "down")
    by_hand(made, "10.00")
    shop.run()
    Run(made).assert_state("Processing")
    assert paying(delivered) == ("partly_refunded", "10.00")
    left(delivered, "69.80")


def test_a_refund_by_hand_that_came_back_counts_no_more(shop, delivered, services):
    made = stopped(shop, delivered)
    services.faults("mail", "down")
    by_hand(made, "79.80")
    shop.run()
    undone(shop, made)
    completing.complete(made, by="olga", reason="it came back", step="refund-part", result={})
    services.clear()
    shop.run()
    Run(made).assert_state("Cancelled")
    assert (paying(delivered), books()) == (("paid", "0.00"), [])
    given(delivered, "79.80")
    shop.run()
    assert refunds_made(services, delivered) == [7980]
    assert sorted(PaymentAdjustment.objects.values_list("gives_back", flat=True)) == [False, True]


def test_a_return_by_hand_that_came_back_says_so_and_its_pieces_are_returned_again(shop, delivered, olga, services):
    back = asked(shop, delivered, mugs=1)
    for _ in range(5):
        shop.kill("refund-part", at="agent.after_start")
    goods(shop, back, ("MUG-BLUE", 1))
    shop.advance("2h")
    services.faults("mail", "down")
    by_hand(back, "12.90")
    shop.run()
    assert told(olga, back)["refunded"] == "12.90"
    undone(shop, back)
    completing.complete(back, by="olga", reason="it came back", step="refund-part", result={})
    services.clear()
    shop.run()
    Run(back).assert_state("Cancelled")
    assert told(olga, back)["refunded"] == "0.00"
    left(delivered, "79.80")
    asked(shop, delivered, mugs=2)
    shop.assert_healthy()


@pytest.mark.parametrize("how", ["named", "in the ledger"])
def test_what_the_payment_service_has_paid_is_not_counted_as_paid_by_hand(shop, delivered, services, capsys, how):
    made = stopped(shop, delivered, "10.00", at="agent.after_effect")
    assert refunds_made(services, delivered) == [1000]
    refund = standing(intent_of(delivered))
    if how == "in the ledger":
        Effect.objects.filter(run__key=made, operation="refund-part").update(outcome="done", external_id=refund)
    by_hand(made, "10.00", **({"refunds": [refund]} if how == "named" else {}))
    shop.run()
    heard(services, delivered, "evt_late")
    Run(made).assert_state("Processed")
    assert paying(delivered) == ("partly_refunded", "10.00")
    left(delivered, "69.80")
    assert findings(capsys, delivered) == ""


def test_a_failed_refund_is_not_paid_again_beyond_what_was_given_by_hand(shop, delivered, returned, services):
    failed = fails(services, delivered)
    facts = {"external_id": "by-hand:r1", "kind": "refund", "intent": intent_of(delivered), "order_key": delivered, "amount": "79.80"}
    PaymentAdjustment.objects.create(**facts, currency="EUR", status="succeeded", gives_back=True, rank=1)
    with pytest.raises(CannotSettle, match=r"only 0\.00 of 12\.90 EUR are left"):
        again(open_finding())
    made = pay_again(delivered, failed, reason="closed", by="olga", idempotency_key="one").public_id
    shop.run()
    Run(made).assert_state("Error")
    assert refunds_made(services, delivered) == [1290]


def test_a_result_by_hand_that_older_code_kept_counts_when_its_run_ends(shop, delivered, services, monkeypatch):
    made = stopped(shop, delivered)
    with monkeypatch.context() as older:
        older.setattr(completing, "_tell", lambda *_facts: None)
        by_hand(made, "79.80")
    assert not PaymentAdjustment.objects.exists()
    shop.run()
    Run(made).assert_state("Processed")
    assert paying(delivered) == ("refunded", "79.80")
    left(delivered, "0.00")
