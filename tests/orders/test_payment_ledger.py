"""The payment agent notes each call in the ledger, and finds earlier charges there or in the service's listing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from orders.agents.payment import PaymentAgent
from orders.agents.payment_calls import listing
from supervision import EffectOutcome, PermanentFailure, TransientFailure
from supervision.states import ATTEMPTS_PER_EPOCH

TOTAL = 2580
agent = PaymentAgent()


def test_the_ledger_tells_what_was_charged_and_given_back(services, step, order):
    performed = step.try_to(agent, step.request())
    [create, confirm] = step.rows.values()

    step.try_to(agent, step.undo(performed))

    assert (create.external_id, create.amount) == (performed["intent"], None)
    assert (confirm.key, confirm.amount, confirm.currency) == (f"{order}:charge-payment:do:1:confirm", Decimal("25.80"), "EUR")
    assert step.outcomes() == [("do", "create", "undone"), ("do", "confirm", "undone"), ("undo", "refund", "done")]
    refund = step.rows["undo", f"{order}:charge-payment:undo:1:refund", "refund"]
    assert (refund.amount, refund.currency, refund.external_id[:3]) == (Decimal("25.80"), "EUR", "re_")


def test_a_refused_card_is_refused_in_the_ledger_too(step, services):
    step.payload["payment_method"] = "pm_card_visa_chargeDeclined"

    with pytest.raises(PermanentFailure):
        step.try_to(agent, step.request())

    assert step.outcomes() == [("do", "create", "undone"), ("do", "confirm", "refused")]


def test_the_next_attempt_finds_the_charge_by_the_ledger_while_the_search_does_not_show_it(services, step, order):
    services.behave(search_lag=3600)
    step.try_to(agent, step.request())
    step.noted.clear()  # the order has lost its checkpoint
    services.forget("payment")

    step.try_to(agent, step.request(attempt=2))
    step.try_to(agent, step.undo(perform_key=f"{order}:charge-payment:do:2"))

    assert services.effects("payment", "confirm", order) == 1
    assert services.charged(order) == 0


def test_a_charge_that_the_database_has_lost_is_found_in_the_listing(services, step, order):
    services.behave(search_lag=3600)
    step.try_to(agent, step.request())
    step.noted.clear()
    step.rows.clear()
    services.forget("payment")
    listing.forget()

    step.try_to(agent, step.request(attempt=ATTEMPTS_PER_EPOCH + 1))

    assert services.charged(order) == TOTAL
    assert services.effects("payment", "confirm", order) == 1


def test_an_undo_finds_in_the_listing_what_the_database_has_lost(services, step, order):
    services.behave(search_lag=3600)
    step.try_to(agent, step.request())
    step.noted.clear()
    step.rows.clear()
    listing.forget()

    step.try_to(agent, step.undo(attempt=ATTEMPTS_PER_EPOCH + 1))

    assert services.charged(order) == 0


def test_a_charge_of_unknown_outcome_is_listed_once_its_key_may_be_forgotten(services, step, order):
    services.behave(search_lag=3600)
    step.ordered_at = datetime.now(UTC) - timedelta(days=2)
    step.try_to(agent, step.request())
    services.forget("payment")
    for row in step.rows.values():  # the ledger knows only that an earlier attempt was about to call
        row.outcome, row.external_id, row.age = EffectOutcome.UNKNOWN, "", timedelta(days=1)
    step.noted.clear()
    listing.forget()

    step.try_to(agent, step.request(attempt=2))

    assert services.effects("payment", "confirm", order) == 1


def test_a_refund_that_failed_after_its_answer_is_made_again_under_a_fresh_key(services, step, order):
    performed = step.try_to(agent, step.request())
    step.try_to(agent, step.undo(performed))
    [refund] = [row for row in step.rows.values() if row.operation == "refund"]
    services.fail_refund(refund.external_id)
    assert services.charged(order) == TOTAL

    step.try_to(agent, step.undo(performed, attempt=2))

    assert services.charged(order) == 0
    assert services.effects("payment", "refund", order) == 2


def test_an_undo_that_ended_after_its_refund_is_settled_by_the_next_attempt(services, step, order):
    performed = step.try_to(agent, step.request())
    step.try_to(agent, step.undo(performed))
    refund = step.rows["undo", f"{order}:charge-payment:undo:1:refund", "refund"]
    made = refund.external_id
    refund.outcome, refund.external_id = EffectOutcome.INTENDED, performed["intent"]  # as the killed attempt left it

    step.try_to(agent, step.undo(performed, attempt=2))

    assert (refund.outcome, refund.external_id) == (EffectOutcome.DONE, made)
    assert services.effects("payment", "refund", order) == 1


def test_an_undo_that_ended_before_its_refund_is_refused_where_other_refunds_gave_all_back(services, step, order):
    performed = step.try_to(agent, step.request())
    step.try_to(agent, step.undo(performed))
    key = f"{order}:charge-payment:undo:0:refund"
    step.rows["undo", key, "refund"] = never = replace(step.rows["undo", f"{order}:charge-payment:undo:1:refund", "refund"])
    never.key, never.outcome, never.external_id = key, EffectOutcome.UNKNOWN, performed["intent"]

    step.try_to(agent, step.undo(performed, attempt=2))

    assert never.outcome is EffectOutcome.REFUSED


def test_an_undo_that_ended_after_it_cancelled_the_open_payment_is_settled_by_the_next_attempt(services, step, order):
    def ends_here() -> None:
        raise TransientFailure("the payment is created and not confirmed")

    step.before_checkpoint = ends_here
    with pytest.raises(TransientFailure):
        step.try_to(agent, step.request())
    step.try_to(agent, step.undo())
    [cancel] = [row for row in step.rows.values() if row.operation == "cancel"]
    assert cancel.outcome is EffectOutcome.DONE
    cancel.outcome = EffectOutcome.INTENDED

    step.try_to(agent, step.undo(attempt=2))

    assert cancel.outcome is EffectOutcome.DONE
