"""Returns whose result operators write by hand, or whose goods are reported twice: no money goes out that no record explains."""

from __future__ import annotations

import threading

import pytest
from django.db import connection, transaction

from chaos.look import until
from orders.models import Return
from orders.queries import order_view
from orders.returns import answers, codes
from orders.returns.asking import ask
from supervision import OutcomeUnknown, PermanentFailure, testing
from supervision.audit import registry
from supervision.errors import Refused
from supervision.models import Signal, StepState
from supervision.operations import completing, operator_verbs
from supervision.operations.resuming import resume_from
from supervision.signals.sending import NewSignal, Sent, send_all, send_signal
from supervision.testkit.run import Run
from tests.orders.test_overpaid import beside_a_sender, waits
from tests.orders.test_returns import ada, asked, body, delivered, goods, held, shop, stock

__all__ = ["ada", "delivered", "shop"]


@pytest.mark.parametrize("amount", ["12.90", "79.80", "a lot", None])
def test_a_result_by_hand_that_was_never_reported_pays_nothing_back(shop, delivered, services, amount):
    back = asked(shop, delivered, mugs=2)
    completing.complete(back, by="olga", reason="they came", result={"accepted": {"MUG-BLUE": 1}, "amount": amount})
    shop.run()

    refused_without_money(shop, back, delivered, services)


@pytest.mark.parametrize("verb", ["complete", "skip"])
@pytest.mark.parametrize("amount", ["25.80", "a lot", None])
def test_stock_that_is_settled_by_hand_lets_no_invented_amount_out(shop, delivered, services, amount, verb):
    back = asked(shop, delivered, mugs=2)
    completing.complete(back, by="olga", reason="they came", result={"accepted": {"MUG-BLUE": 2}, "amount": amount})
    shop.run()
    if verb == "complete":
        completing.complete(back, by="olga", reason="on the shelf", result={})
    else:
        operator_verbs.skip(back, by="olga", reason="on the shelf")
    shop.run()

    Run(back).assert_state("Error")
    assert Run(back).steps["refund-part"] == "Error"
    assert "not the report that was recorded" in testing.step(back, "refund-part").last_error
    assert services.charged(delivered) == 7980


@pytest.mark.parametrize(
    ("result", "why"),
    [
        ({}, "accepted: expected at least one piece"),
        ({"amount": "25.80"}, "accepted: expected at least one piece"),
        ({"accepted": {}}, "accepted: expected at least one piece"),
        ({"accepted": {}, "refused": {"MUG-BLUE": 2}}, "accepted: expected at least one piece"),
        ({"accepted": {"MUG-BLUE": 0}}, "accepted: expected at least one piece"),
        ({"accepted": ["MUG-BLUE"]}, "accepted: expected an object"),
        ({"accepted": {"MUG-BLUE": 3}}, "accepted.MUG-BLUE: expected a whole number from 0 to 2"),
        ({"accepted": {"MUG-BLUE": 1}, "refused": {"MUG-BLUE": 2}}, "refused.MUG-BLUE: at most 2 pieces can have come"),
        ({"accepted": {"TOTE-OCHRE": 1}}, "accepted.TOTE-OCHRE: expected a product of this return"),
    ],
)
def test_a_result_by_hand_that_is_no_report_with_goods_is_refused_and_the_return_waits_on(shop, delivered, result, why):
    back = asked(shop, delivered, mugs=2)
    with pytest.raises(Refused, match=why) as problem:
        completing.complete(back, by="olga", reason="an empty box", result=result)
    assert problem.value.code == "invalid_result"

    Run(back).assert_state("Processing")


def test_after_a_refused_result_an_empty_report_frees_the_pieces(shop, delivered):
    back = asked(shop, delivered, mugs=2)
    with pytest.raises(Refused):
        completing.complete(back, by="olga", reason="an empty box", result={"accepted": {}})
    goods(shop, back)

    Run(back).assert_state("Processed")
    assert held(delivered)["MUG-BLUE"] == 0
    shop.assert_healthy()


def test_an_undo_reads_a_refund_by_hand_that_is_no_amount(shop, delivered, services):
    shop.fake("refund-part", raises=PermanentFailure("refused"))
    shop.fake("notify-return", raises=OutcomeUnknown("no answer"))
    back = asked(shop, delivered, mugs=2)
    goods(shop, back, ("MUG-BLUE", 1))
    completing.complete(back, by="olga", reason="paid in cash", result={})
    shop.run()
    said_before(back, "a lot")
    operator_verbs.cancel(back, by="olga", reason="the customer keeps the mugs")
    shop.advance("10m")

    Run(back).assert_state("Cancelled")
    assert services.charged(delivered) == 7980


def test_a_refund_by_hand_above_the_worth_is_named_by_the_audit(shop, delivered):
    shop.fake("refund-part", raises=PermanentFailure("refused"))
    back = asked(shop, delivered, mugs=2)
    goods(shop, back, ("MUG-BLUE", 1))
    completing.complete(back, by="olga", reason="paid by transfer", result={"refunded": "12.90"})
    shop.run()
    shop.assert_healthy()
    said_before(back, "99999")

    [found] = registry.violations()
    assert "paid back no more than they are worth" in found.invariant


def said_before(back: str, refunded: str) -> None:
    """Write a result by hand as it was written before results were compared."""
    step = StepState.objects.filter(run__key=back, name="refund-part", direction="do")
    assert step.update(result={"refunded": refunded}) == 1


def test_another_report_after_going_back_pays_nothing_back(shop, delivered, services):
    shop.fake("refund-part", raises=PermanentFailure("refused"))
    back = asked(shop, delivered, mugs=2)
    goods(shop, back, ("MUG-BLUE", 1))
    Run(back).assert_state("Error")
    resume_from(back, codes.AWAIT, by="olga", reason="counted wrongly")
    shop.run()
    goods(shop, back, ("MUG-BLUE", 2))

    refused_without_money(shop, back, delivered, services)


def report(back: str, pieces: int) -> Sent:
    """Tell of so many accepted mugs; the return does not go on by itself."""
    return send_signal(back, codes.RECEIVED, {"lines": [{"sku": "MUG-BLUE", "accepted": pieces}]}, key=f"{pieces} mugs")


def test_a_second_report_is_refused_while_the_first_one_waits_for_its_turn(shop, delivered, services):
    back = asked(shop, delivered, mugs=2)
    assert report(back, 1) == Sent.ACCEPTED
    with pytest.raises(Refused, match="A report on the goods of this return has come already") as refused:
        report(back, 2)
    assert refused.value.code == codes.REPORTED
    assert report(back, 1) == Sent.REPEATED
    shop.run()

    Run(back).assert_state("Processed")
    assert services.charged(delivered) == 7980 - 1290
    assert Signal.objects.filter(run_key=back, taken_by=None).count() == 0


@pytest.mark.parametrize("sleeps", [True, False])
def test_of_two_reports_at_the_same_moment_one_is_accepted(shop, delivered, sleeps):
    """sleeps: the step waits for a report, so that each sender would wake it. Else the return is not a run yet."""
    back = asked(shop, delivered, mugs=2) if sleeps else ask(order_view(delivered), body(mugs=2)["lines"], "", by="customer").public_id
    said: list[object] = []

    with beside_a_sender(lambda: said.append(refused_report(back, 2))):
        assert report(back, 1) == Sent.ACCEPTED

    assert said == [codes.REPORTED]


def test_a_second_report_is_refused_that_comes_while_the_first_one_is_looked_at(shop, delivered):
    back = asked(shop, delivered, mugs=2)
    assert report(back, 1) == Sent.ACCEPTED
    said: list[object] = []
    second = threading.Thread(target=lambda: said.append(refused_report(back, 2)), daemon=True)
    with transaction.atomic():
        Return.objects.select_for_update(no_key=True).get(public_id=back)
        second.start()
        until(lambda: not second.is_alive() or waits(), what="the second report, which waits for its turn")
        assert testing.at_once(shop.run) == [None]
    second.join(60)

    Run(back).assert_state("Processed")
    assert said == [codes.REPORTED]


def refused_report(back: str, pieces: int) -> object:
    """Why a report is refused that another thread sends; else what became of it."""
    try:
        return report(back, pieces)
    except Refused as problem:
        return problem.code
    finally:
        connection.close()


def test_two_reports_in_one_call_are_refused_together(shop, delivered):
    back = asked(shop, delivered, mugs=2)
    payload = {"lines": [{"sku": "MUG-BLUE", "accepted": 1}]}

    with pytest.raises(Refused, match="has come already"):
        send_all([NewSignal(run=back, name=codes.RECEIVED, key=key, payload=payload) for key in ("a", "b")])
    assert report(back, 1) == Sent.ACCEPTED


@pytest.mark.parametrize("said", ["12,90", [1], "NaN", "12.91", "-1"])
def test_a_refund_by_hand_is_an_amount_that_the_goods_are_worth(shop, delivered, said):
    shop.fake("refund-part", raises=PermanentFailure("refused"))
    back = asked(shop, delivered, mugs=2)
    goods(shop, back, ("MUG-BLUE", 1))
    with pytest.raises(Refused, match=r"refunded: expected an amount from 0.00 to 12.90"):
        completing.complete(back, by="olga", reason="paid by transfer", result={"refunded": said})

    Run(back).assert_state("Error")


def test_a_refund_by_hand_without_an_amount_counts_as_none_and_the_customer_is_told(shop, delivered):
    shop.fake("refund-part", raises=PermanentFailure("refused"))
    back = asked(shop, delivered, mugs=2)
    goods(shop, back, ("MUG-BLUE", 1))
    completing.complete(back, by="olga", reason="paid by transfer", result={"refunded": None})
    shop.run()

    Run(back).assert_state("Processed")
    assert Run(back).steps["notify-return"] == "Processed"
    assert answers.answer(answers.of_order(delivered)[0])["refunded"] == "0.00"
    shop.assert_healthy()


def refused_without_money(shop, back: str, order: str, services) -> None:
    Run(back).assert_state("Error")
    assert Run(back).steps["restock-goods"] == "Error"
    assert (services.charged(order), stock("MUG-BLUE")) == (7980, 48)
    Run(back).compensate()
    shop.run()
    Run(back).assert_state("Cancelled")
    assert held(order)["MUG-BLUE"] == 0
    shop.assert_healthy()
