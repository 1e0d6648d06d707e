"""An agents process dies while it reserves, captures, releases or gives back: the money moves once, and none is left with the shop."""

from __future__ import annotations

import pytest

from orders.payments import codes
from supervision.models import Effect
from supervision.operations import operator_verbs
from supervision.testkit.run import Run
from tests.orders.test_capture import OUTAGE, intent_of, reserved, shop
from tests.shopping import ADDRESS, place

__all__ = ["shop"]

DEATHS = ["agent.after_start", "agent.after_intention", "agent.before_call", "agent.after_effect", "agent.after_finish"]


@pytest.mark.parametrize(
    ("step", "at", "once", "outcomes"),
    [
        *((codes.AUTHORISE, at, "confirm", {"done", "undone"}) for at in (*DEATHS, "agent.after_checkpoint")),
        *((codes.CAPTURE, at, "create", {"done"}) for at in DEATHS),
    ],
)
def test_an_agent_that_dies_while_it_reserves_or_captures_charges_once(shop, services, step, at, once, outcomes):
    shop.kill(step, at=at)
    key = place()
    shop.advance("10m")

    Run(key).assert_state("Processed")
    assert services.effects("payment", once, key) == services.effects("payment", "capture", key) == 1
    assert services.charged(key) == 2580
    assert set(Effect.objects.filter(run__key=key, service="payment").values_list("outcome", flat=True)) <= outcomes
    shop.assert_healthy()


@pytest.mark.parametrize("at", [*DEATHS[:-1], "undo.after_effect"])
def test_an_agent_that_dies_while_it_releases_leaves_nothing_reserved(shop, services, at):
    key = reserved(shop)
    shop.kill(f"undo:{codes.AUTHORISE}", at=at)
    operator_verbs.compensate(key, by="olga", reason="it can not be delivered")
    shop.advance("10m")

    Run(key).assert_state("Cancelled")
    assert services.status(intent_of(key)) == "canceled"
    assert services.effects("payment", "cancel", key) == 1
    assert services.charged(key) == 0
    shop.assert_healthy()


@pytest.mark.parametrize("at", ["agent.after_intention", "agent.after_effect", "undo.after_effect"])
def test_an_agent_that_dies_while_it_gives_a_capture_back_gives_it_back_once(shop, services, at):
    shop.fake("notify-customer", raises=OUTAGE, times=1)
    key = place()
    shop.run()
    shop.kill(f"undo:{codes.CAPTURE}", at=at)
    operator_verbs.cancel(key, by="customer", reason="changed my mind")
    shop.advance("10m")

    Run(key).assert_state("Cancelled")
    assert services.effects("payment", "refund", key) == 1
    assert services.charged(key) == 0
    shop.assert_healthy()


@pytest.mark.parametrize("step", [codes.AUTHORISE, codes.CAPTURE])
@pytest.mark.parametrize("at", ["agent.after_intention", "agent.after_effect"])
def test_an_agent_that_dies_before_a_cancellation_leaves_no_money_with_the_shop(shop, services, step, at):
    shop.kill(step, at=at)
    key = place()
    shop.run()
    operator_verbs.cancel(key, by="customer", reason="changed my mind")
    shop.advance("10m")

    Run(key).assert_state("Cancelled")
    assert services.charged(key) == 0
    for entry in services.ledger("payment", key):
        if entry["operation"] == "create":
            assert services.status(entry["intent"]) == ("succeeded" if services.effects("payment", "capture", key) else "canceled")
    shop.assert_healthy()


def test_an_attempt_that_dies_between_noting_a_lapse_and_telling_it_charges_once(shop, services):
    key = reserved(shop)
    services.expire(intent_of(key))
    shop.kill(codes.CAPTURE, at="agent.after_checkpoint")
    operator_verbs.resubmit(key, by="olga", reason="the address is right now", amend={"shipping_address": ADDRESS})
    shop.advance("10m")

    Run(key).assert_state("Processed")
    assert services.charged(key) == 2580
    shop.assert_healthy()
