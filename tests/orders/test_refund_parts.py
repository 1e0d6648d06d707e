"""Partial refunds of one charge: each once, together never above what other refunds and disputes leave."""

from __future__ import annotations

from contextlib import suppress

import pytest
from django.core.management import call_command

from orders.gateways import payment as gateway
from orders.models import PaymentAdjustment, Product
from orders.returns import answers
from orders.services import Conflict
from supervision import testing
from supervision.models import Alert, ArchivedRun, Effect
from supervision.outbox import notifications
from supervision.testkit.run import Run
from tests.orders.test_payment_hook import refund
from tests.orders.test_returns import ada, asked, deliver, delivered, goods, held, paying, shop

__all__ = ["ada", "delivered", "shop"]
PAID = 7980
AT_FAILPOINTS = ["agent.before_call", "agent.after_effect"]


def intent_of(key: str) -> str:
    return str(testing.step(key, "charge-payment").result["intent"])


def result(back: str) -> dict:
    return Run(back).results["refund-part"]


def refunds_made(services, key: str) -> list[int]:
    return [entry["amount"] for entry in services.ledger("payment", key) if entry["operation"] == "refund" and entry["effect"]]


def outside(back: str) -> list[tuple[str, str]]:
    return list(Effect.objects.filter(run__key=back, service="payment").order_by("pk").values_list("operation", "outcome"))


def findings(capsys, order: str) -> str:
    """What `reconcile` says of this order."""
    with suppress(SystemExit):
        call_command("reconcile", "--service", "payment")
    return "\n".join(line for line in capsys.readouterr().out.splitlines() if order in line)


# ------------------------------------------------------------------------------------------------- failing calls


@pytest.mark.parametrize("at", AT_FAILPOINTS)
@pytest.mark.parametrize("step", ["await-goods", "restock-goods", "refund-part", "notify-return"])
def test_a_process_that_dies_in_a_step_does_it_once(shop, delivered, services, step, at):
    back = asked(shop, delivered, mugs=2)
    shop.kill(step, at=at)
    goods(shop, back, ("MUG-BLUE", 1, 1))
    shop.advance("5m")

    Run(back).assert_state("Processed")
    shop.assert_nothing_left()
    assert refunds_made(services, delivered) == [1290]
    assert outside(back) == [("refund-part", "done")]
    assert Product.objects.get(sku="MUG-BLUE").available == 49
    assert held(delivered)["MUG-BLUE"] == 1
    shop.assert_healthy()


@pytest.mark.parametrize("fault", ["error_before", "timeout_after_effect", "error_after_effect", "reset_after_effect", "down"])
def test_a_call_without_a_good_answer_is_made_once(shop, delivered, services, fault):
    back = asked(shop, delivered, totes=1)
    services.faults("payment", fault, latency_ms=100)
    goods(shop, back, ("TOTE-OCHRE", 1))
    services.clear()
    shop.advance("10m")

    Run(back).assert_state("Processed")
    assert refunds_made(services, delivered) == [1800]
    assert outside(back)[-1] == ("refund-part", "done")
    shop.assert_healthy()


def test_an_answer_that_comes_after_the_claim_is_gone_pays_once(shop, delivered, services):
    back = asked(shop, delivered, totes=1)
    shop.answer_late("refund-part")
    goods(shop, back, ("TOTE-OCHRE", 1))
    shop.advance("5m")

    Run(back).assert_state("Processed")
    assert refunds_made(services, delivered) == [1800]
    shop.assert_healthy()


def test_a_service_that_has_forgotten_the_keys_pays_once(shop, delivered, services):
    back = asked(shop, delivered, totes=1)
    shop.kill("refund-part", at="agent.after_effect")
    goods(shop, back, ("TOTE-OCHRE", 1))
    services.forget("payment")
    shop.advance("2d")

    Run(back).assert_state("Processed")
    assert refunds_made(services, delivered) == [1800]


def test_a_refund_that_fails_at_once_is_made_again(shop, services, ada):
    key = deliver(shop, ada)
    back = asked(shop, key, totes=1)
    services.faults("payment", "refund_fails", latency_ms=0)
    goods(shop, back, ("TOTE-OCHRE", 1))
    services.clear()
    shop.advance("10m")

    Run(back).assert_state("Processed")
    assert services.charged(key) == PAID - 1800
    assert paying(key)["refunded"] == "18.00"


# --------------------------------------------------------------------------------------- money given back elsewhere


def test_what_was_given_back_at_the_service_counts(shop, delivered, services):
    refund(services, intent_of(delivered), PAID - 1000)
    back = asked(shop, delivered, totes=1)
    goods(shop, back, ("TOTE-OCHRE", 1))

    Run(back).assert_state("Processed")
    assert (result(back)["refunded"], result(back)["short"]) == ("10.00", "8.00")
    assert services.charged(delivered) == 0
    assert paying(delivered)["state"] == "refunded"


@pytest.mark.parametrize("status", ["", "lost"])
def test_a_disputed_charge_is_not_paid_back_twice(shop, delivered, services, status):
    dispute = services.dispute(intent_of(delivered))
    if status:
        services.close_dispute(dispute, status)
    back = asked(shop, delivered, totes=1)
    goods(shop, back, ("TOTE-OCHRE", 1))

    Run(back).assert_state("Processed")
    assert (result(back)["refunded"], result(back)["short"]) == ("0.00", "18.00")
    assert refunds_made(services, delivered) == []
    assert PaymentAdjustment.objects.get().kind == "dispute", "the look recorded it"


def test_a_dispute_that_the_shop_has_won_does_not_count(shop, delivered, services):
    services.close_dispute(services.dispute(intent_of(delivered)), "won")
    back = asked(shop, delivered, totes=1)
    goods(shop, back, ("TOTE-OCHRE", 1))

    assert refunds_made(services, delivered) == [1800]


@pytest.mark.parametrize("elsewhere", ["refund", "dispute"])
def test_money_that_goes_back_between_the_look_and_the_call_is_never_exceeded(shop, delivered, services, monkeypatch, elsewhere):
    """The operator refunds at the payment service, or the customer disputes, in the very moment before our call."""
    back, intent, real = asked(shop, delivered, totes=1), intent_of(delivered), gateway.refund

    def overtaken(*args, **kwargs):
        monkeypatch.setattr(gateway, "refund", real)
        if elsewhere == "refund":
            refund(services, intent, PAID - 1000)
        else:
            services.dispute(intent)
        return real(*args, **kwargs)

    monkeypatch.setattr(gateway, "refund", overtaken)
    goods(shop, back, ("TOTE-OCHRE", 1))

    Run(back).assert_state("Processed")
    assert result(back)["refunded"] == {"refund": "10.00", "dispute": "0.00"}[elsewhere]
    assert sum(refunds_made(services, delivered)) == {"refund": PAID, "dispute": 0}[elsewhere]


def test_two_returns_that_are_paid_back_at_the_same_moment_share_what_is_left(shop, delivered, services):
    """Each looks before either has paid: the payment service refuses what is too much, and the second look asks for the rest."""
    refund(services, intent_of(delivered), PAID - 2000)
    first, second = asked(shop, delivered, totes=1), asked(shop, delivered, mugs=1)
    real, looked = gateway.refund, []

    def after_the_other(*args, **kwargs):
        if not looked:
            looked.append(True)
            goods(shop, second, ("MUG-BLUE", 1))
        return real(*args, **kwargs)

    gateway.refund = after_the_other
    try:
        goods(shop, first, ("TOTE-OCHRE", 1))
    finally:
        gateway.refund = real
    shop.advance("5m")

    assert [Run(one).state for one in (first, second)] == ["Processed"] * 2
    assert services.charged(delivered) == 0
    assert sum(float(result(one)["refunded"]) for one in (first, second)) == 20.0


def test_a_refund_that_the_service_refuses_for_good_stops_for_an_operator(shop, delivered, services, monkeypatch):
    def refused(*args, **kwargs):
        raise gateway.Rejected("no refunds today")

    monkeypatch.setattr(gateway, "refund", refused)
    back = asked(shop, delivered, totes=1)
    goods(shop, back, ("TOTE-OCHRE", 1))

    Run(back).assert_state("Error")
    alert = Alert.objects.get(run__key=back, closed_at=None)
    assert (alert.code, "no refunds today" in alert.message) == ("refund_refused", True)
    monkeypatch.undo()
    Run(back).resubmit()
    shop.run()
    Run(back).assert_state("Processed")
    assert refunds_made(services, delivered) == [1800]
    shop.assert_healthy()


# ------------------------------------------------------------------------------------------------------- the books


def test_reconcile_agrees_with_returns(shop, delivered, services, capsys):
    for pieces, line in (({"mugs": 1}, ("MUG-BLUE", 1)), ({"totes": 3}, ("TOTE-OCHRE", 2, 1))):
        goods(shop, asked(shop, delivered, **pieces), line)

    assert services.charged(delivered) == PAID - 1290 - 3600
    assert findings(capsys, delivered) == ""


def test_reconcile_names_a_refund_that_no_return_made(shop, delivered, services, capsys):
    goods(shop, asked(shop, delivered, mugs=1), ("MUG-BLUE", 1))
    refund(services, intent_of(delivered), 500)

    told = findings(capsys, delivered)

    assert "refunded_elsewhere" in told
    assert "5.00" in told
    assert "amount" not in told.split()


def test_reconcile_does_not_blame_others_for_a_refund_that_its_return_has_not_noted_yet(shop, delivered, services, capsys):
    back = asked(shop, delivered, mugs=1)
    shop.kill("refund-part", at="agent.after_effect")
    goods(shop, back, ("MUG-BLUE", 1))
    assert refunds_made(services, delivered) == [1290]

    assert findings(capsys, delivered) == ""


def test_reconcile_names_a_returns_refund_that_has_failed_since(shop, delivered, services, capsys):
    back = asked(shop, delivered, mugs=1)
    goods(shop, back, ("MUG-BLUE", 1))
    services.fail_refund(result(back)["refunds"][0])

    assert "refund_failed" in findings(capsys, delivered)


def test_the_books_of_archived_returns_agree_too(shop, delivered, services, capsys):
    back = asked(shop, delivered, mugs=1)
    goods(shop, back, ("MUG-BLUE", 1))
    notifications.deliver_due()  # the documents
    testing.let_pass(400 * 86400)
    call_command("archive")
    capsys.readouterr()

    assert set(ArchivedRun.objects.values_list("key", flat=True)) == {delivered, back}
    assert findings(capsys, delivered) == ""
    view = answers.return_view(back)
    assert view is not None
    assert (view.process_state, str(view.refunded), str(view.worth)) == ("Processed", "12.90", "12.90")
    with pytest.raises(Conflict, match="archived"):
        asked(shop, delivered, totes=1)
    shop.assert_healthy()
