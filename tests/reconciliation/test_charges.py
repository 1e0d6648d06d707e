"""Charges compared with our books: each difference is a finding, and each verb settles the findings that it fits."""

from __future__ import annotations

from decimal import Decimal

import pytest

from orders.gateways import payment
from supervision import testing
from supervision.errors import ChangedMeanwhile
from supervision.ledger import reconciliation
from supervision.models import Effect, Finding
from supervision.operations import operator_verbs
from tests.engine import kit
from tests.reconciliation.conftest import rest
from tests.support.requests import ADDRESS

pytestmark = pytest.mark.usefixtures("budget")
TOTAL = Decimal("25.80")
BORN = "INSERT INTO supervision_run (key, workflow, process_state, finished_at) VALUES (%s, 'fulfil-order', 'Processed', now())"
NOWHERE = {**ADDRESS, "postal_code": "00000"}  # the carrier does not serve it, so the order stops in Error after its charge


def charge(order: str, name: str = "stray", amount: int = 2580, method: str = "pm_card_visa") -> str:
    """Make a charge that is not in our books."""
    key = f"{order}:{name}"
    made = payment.create(amount=amount, currency="EUR", order=order, step_key=key, key=f"{key}:create")
    payment.confirm(made.id, payment_method=method, key=f"{key}:confirm")
    return made.id


def own_charge(order: str) -> str:
    return testing.step(order, "charge-payment").result["intent"]


def cancelled(order: str) -> str:
    """Cancel an order before its last step."""
    operator_verbs.cancel(order, by="olga", reason="the customer called")
    rest(order, "Cancelled")
    return order


@pytest.fixture
def in_the_middle(buy):
    """An order with a charge and without a shipment."""

    def call(**changes):
        order = buy("Error", shipping_address=NOWHERE, **changes)
        assert testing.step(order, "charge-payment").process_state == "Processed"
        return order

    return call


def facts(rows):
    return [(row.kind, row.external_id, row.amount, tuple(row.verbs)) for row in rows]


# ------------------------------------------------------------------------------------------------ no findings


def test_books_that_agree_give_no_finding(buy, found, in_the_middle):
    done, undone, under_way = buy(), cancelled(in_the_middle()), in_the_middle()

    assert found(done, undone, under_way) == []
    assert found(done, undone, under_way, service="carrier") == []


def test_an_order_under_way_is_not_judged_whatever_exists_of_it(found, in_the_middle):
    order = in_the_middle()
    charge(order)

    assert found(order) == []


def test_an_accepted_order_that_has_no_run_yet_is_not_unknown(shop, found):
    order = testing.submit("fulfil-order", {"n": 1})
    charge(order)

    assert found(order) == []


def test_a_payment_that_names_no_order_is_not_ours(shop, services, found):
    form = {"amount": "100", "currency": "eur"}
    answer = services.http.post(f"{services.url}/v1/payment_intents", data=form, headers={"Authorization": "Bearer sk_test_simulator"})
    payment.confirm(answer.json()["id"], payment_method="pm_card_visa", key=answer.json()["id"])

    reconciliation.compare("payment")

    assert answer.json()["id"] not in {row.external_id for row in Finding.objects.all()}


def test_an_intent_that_nobody_charged_is_not_a_finding(shop, order, found):
    payment.create(amount=1, currency="EUR", order=order, step_key="k", key=f"{order}:create")

    assert found(order) == []


# ----------------------------------------------------------------------------------------------------- orphans


def test_a_charge_of_an_unknown_order_is_found_at_once_and_refunded_once(services, order, found):
    stray = charge(order)

    [finding] = found(order)
    assert facts([finding]) == [("orphan_charge", stray, TOTAL, ("refund",))]
    reconciliation.settle(finding.pk, "refund", by="olga", reason="the order is lost")

    assert services.charged(order) == 0
    assert found(order) == []
    with pytest.raises(ChangedMeanwhile):
        reconciliation.settle(finding.pk, "refund", by="olga", reason="again")
    closed = Finding.objects.get(pk=finding.pk)
    assert (closed.verb, closed.settled_by, closed.reason) == ("refund", "olga", "the order is lost")
    assert services.effects("payment", "refund", order) == 1


def test_a_second_charge_of_an_order_is_refunded_and_its_own_is_kept(services, buy, found):
    order = buy()
    stray = charge(order)

    [finding] = found(order)
    assert facts([finding]) == [("orphan_charge", stray, TOTAL, ("refund",))]
    reconciliation.settle(finding.pk, "refund", by="olga", reason="twice")

    assert services.charged(order) == 2580
    assert payment.refunded(own_charge(order)) == 0
    assert found(order) == []
    assert kit.fetch("SELECT outcome FROM supervision_effect WHERE operation = 'refund' AND key LIKE 'reconcile:%'") == [("done",)]


def test_the_only_charge_of_a_fulfilled_order_is_adopted_when_our_books_lost_it(services, buy, found):
    order = buy()
    own = own_charge(order)
    kit.fetch("UPDATE supervision_stepstate SET result = '{}', checkpoint = NULL WHERE name = 'charge-payment'")
    kit.fetch("DELETE FROM supervision_effect WHERE service = 'payment'")

    [finding] = found(order)
    assert facts([finding]) == [("orphan_charge", own, TOTAL, ("adopt", "refund"))]
    reconciliation.settle(finding.pk, "adopt", by="olga", reason="it is theirs")

    assert found(order) == []
    [effect] = Effect.objects.filter(service="payment")
    assert (effect.external_id, effect.outcome, effect.amount, effect.actor) == (own, "done", TOTAL, "olga")
    assert services.charged(order) == 2580


# ------------------------------------------------------------------------------- charges that were not undone


def test_a_charge_that_a_cancelled_order_kept_is_given_back(services, found, in_the_middle):
    order = cancelled(in_the_middle())
    late = charge(order)

    [finding] = found(order)
    assert facts([finding]) == [("live_after_cancel", late, TOTAL, ("refund",))]
    reconciliation.settle(finding.pk, "refund", by="olga", reason="cancelled")

    assert services.charged(order) == 0
    assert found(order) == []


def test_a_refund_that_failed_weeks_later_is_found_and_made_again(services, found, in_the_middle):
    order = cancelled(in_the_middle())
    own = payment.refunds_of(services.ledger("payment", order)[0]["intent"])
    assert found(order) == []
    services.fail_refund(own[0].id)

    [finding] = found(order)
    assert facts([finding]) == [("refund_failed", own[0].intent, TOTAL, ("refund",))]
    assert services.charged(order) == 2580
    reconciliation.settle(finding.pk, "refund", by="olga", reason="the card was closed")

    assert services.charged(order) == 0
    assert found(order) == []


def test_a_refund_that_fails_again_and_again_is_a_new_finding_and_is_made_again(services, found, in_the_middle):
    order = cancelled(in_the_middle())
    intent = services.ledger("payment", order)[0]["intent"]
    for time in range(3):
        services.fail_refund(payment.refunds_of(intent)[0].id)
        [finding] = found(order)
        reconciliation.settle(finding.pk, "refund", by="olga", reason=f"time {time}")

    assert services.charged(order) == 0
    assert Finding.objects.filter(order_key=order, kind="refund_failed").count() == 3


# ------------------------------------------------------------------------------ amounts, other orders' charges


def test_what_was_charged_too_much_is_given_back(services, buy, found):
    order = buy()
    kit.fetch('UPDATE supervision_run SET payload = payload || \'{"total": "20.00"}\' WHERE key = %s', [order])

    [finding] = found(order)
    assert facts([finding]) == [("amount", own_charge(order), Decimal("5.80"), ("adopt", "refund"))]
    reconciliation.settle(finding.pk, "refund", by="olga", reason="the price was wrong")

    assert services.charged(order) == 2000
    assert found(order) == []


def test_what_was_charged_too_little_can_be_accepted_and_is_not_told_again(buy, found):
    order = buy()
    kit.fetch('UPDATE supervision_run SET payload = payload || \'{"total": "30.00"}\' WHERE key = %s', [order])

    [finding] = found(order)
    assert (finding.kind, finding.verbs) == ("amount", ["adopt"])
    reconciliation.settle(finding.pk, "adopt", by="olga", reason="our mistake")

    assert found(order) == []


def test_money_given_back_elsewhere_is_found_and_accepted_until_more_is_given_back(buy, found):
    order = buy()
    own = own_charge(order)
    payment.refund(own, key=f"{order}:dashboard", amount=1000)

    [finding] = found(order)
    assert facts([finding]) == [("refunded_elsewhere", own, Decimal("10"), ("adopt",))]
    reconciliation.settle(finding.pk, "adopt", by="olga", reason="goodwill")
    assert found(order) == []

    payment.refund(own, key=f"{order}:dashboard:2", amount=500)
    [more] = found(order)
    assert more.amount == Decimal("15")


def test_a_fulfilled_order_without_a_charge_is_found(buy, found, services):
    order = buy()
    kit.fetch("UPDATE supervision_stepstate SET result = '{\"intent\": \"pi_gone\"}', checkpoint = NULL WHERE name = 'charge-payment'")
    kit.fetch("UPDATE supervision_effect SET external_id = 'pi_gone' WHERE service = 'payment'")
    kit.fetch("UPDATE supervision_run SET key = key || 'x'")  # the charge belongs to another order now

    [finding] = found(f"{order}x")

    assert (finding.kind, finding.external_id, finding.amount, finding.verbs) == ("missing_charge", "pi_gone", TOTAL, ["adopt"])


def test_a_dispute_stands_until_the_bank_decides_for_us_or_somebody_accepts_it(services, buy, found):
    won, lost = buy(), buy()
    disputes = [services.dispute(own_charge(order)) for order in (won, lost)]

    assert {row.kind for row in found(won, lost)} == {"dispute"}
    services.close_dispute(disputes[0], "won")
    services.close_dispute(disputes[1], "lost")

    [finding] = found(won, lost)
    assert (finding.order_key, finding.amount, finding.verbs) == (lost, TOTAL, ["adopt"])
    reconciliation.settle(finding.pk, "adopt", by="olga", reason="written off")
    assert found(won, lost) == []


def test_an_order_may_differ_in_several_ways_at_once(services, buy, found):
    order = buy()
    charge(order)
    services.dispute(own_charge(order))

    assert {row.kind for row in found(order)} == {"orphan_charge", "dispute"}
