"""A failed refund is paid again by a run of its own: once, with several callers at one moment, and when a process dies in it."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.utils import timezone

from orders.gateways import payment as gateway
from orders.models import Order, Refund
from orders.refunds.again import failed_of, pay_again
from orders.returns import answers
from orders.services import Conflict, KeyReused
from supervision import testing
from supervision.approvals import deciding
from supervision.errors import AwaitsApproval
from supervision.ledger.reconciliation import CannotSettle
from supervision.models import Effect, Finding, JournalEntry
from supervision.operations import completing, operator_verbs
from supervision.outbox import notifications
from supervision.testkit.run import Run
from tests.engine.kit import at_once
from tests.orders.test_failed_refunds import again, asked_and_cancelled, fails, incidents, open_finding, returned, standing
from tests.orders.test_payment_hook import hear
from tests.orders.test_refund_parts import findings, outside, refunds_made
from tests.orders.test_refund_parts import refund as refund_at_the_service
from tests.orders.test_refunds import DEATHS, boss
from tests.orders.test_returns import ada, asked, delivered, goods, paying, shop
from tests.shopping import a_client, an_account
from tests.support.console import hidden, page, person

__all__ = ["ada", "boss", "delivered", "returned", "shop"]
CHARGED = 7980


def paid_again(key: str, refund: str, *, once: str = "one", reason: str = "the card was closed", by="olga"):
    return pay_again(key, refund, reason=reason, by=by, idempotency_key=once)


def finished(shop) -> None:
    shop.run()
    notifications.deliver_due()


def test_it_is_paid_again_and_everything_agrees(shop, delivered, returned, services, capsys):
    failed = fails(services, delivered)
    incidents()
    [one] = failed_of(delivered)
    assert (one.refund, one.amount, one.currency, one.under_way) == (failed, Decimal("12.90"), "EUR", False)

    back = paid_again(delivered, failed).public_id
    assert failed_of(delivered)[0].under_way
    finished(shop)

    Run(back).assert_state("Processed")
    assert failed_of(delivered) == []
    assert services.charged(delivered) == CHARGED - 1290
    assert refunds_made(services, delivered) == [1290, 1290]
    assert outside(back) == [("refund-part", "done")]
    assert paying(delivered)["refunded"] == "12.90"
    view = answers.return_view(returned)
    assert view is not None
    assert (str(view.refunded), str(view.owed)) == ("12.90", "0.00")
    assert sorted(Effect.objects.filter(run__key=returned, service="payment").values_list("outcome", flat=True)) == ["done", "undone"]
    closed = Finding.objects.get(order_key=delivered)
    assert (closed.verb, closed.settled_by, closed.reason) == ("refund", "olga", "the card was closed")
    assert [incident.closed_at is None for incident in incidents()] == [False]
    assert not JournalEntry.objects.filter(event_type="order.partly_refunded").exists(), "the books heard of it when it was made"
    assert findings(capsys, delivered) == ""
    shop.assert_healthy()


@pytest.mark.parametrize("at", DEATHS)
def test_a_process_that_dies_pays_once(shop, delivered, returned, services, capsys, at):
    failed = fails(services, delivered)
    shop.kill("refund-part", at=at)
    back = paid_again(delivered, failed).public_id
    shop.advance("10m")
    notifications.deliver_due()

    Run(back).assert_state("Processed")
    assert refunds_made(services, delivered) == [1290, 1290]
    assert outside(back) == [("refund-part", "done")]
    assert failed_of(delivered) == []
    assert findings(capsys, delivered) == ""
    shop.assert_healthy()


@pytest.mark.parametrize("fault", ["error_before", "timeout_after_effect", "error_after_effect", "reset_after_effect"])
def test_a_call_without_a_good_answer_pays_once(shop, delivered, returned, services, fault):
    failed = fails(services, delivered)
    services.faults("payment", fault, latency_ms=100)
    back = paid_again(delivered, failed).public_id
    shop.run()
    services.clear()
    shop.advance("10m")

    Run(back).assert_state("Processed")
    assert refunds_made(services, delivered) == [1290, 1290]


def test_of_four_operators_at_once_one_pays(shop, delivered, returned, services):
    failed = fails(services, delivered)

    def one(number: int) -> str:
        try:
            return paid_again(delivered, failed, once=f"key-{number}").public_id
        except Conflict as refused:
            return refused.code

    told = at_once(*[lambda number=number: one(number) for number in range(4)])
    finished(shop)

    assert sorted(code for code in told if code == "refund_under_way") == ["refund_under_way"] * 3
    assert refunds_made(services, delivered) == [1290, 1290]


def test_the_same_key_is_the_same_refund(shop, delivered, returned, services):
    failed = fails(services, delivered)
    first, second = paid_again(delivered, failed), paid_again(delivered, failed)
    with pytest.raises(KeyReused):
        paid_again(delivered, failed, reason="another")
    finished(shop)

    assert (second.public_id, second.replayed) == (first.public_id, True)
    assert refunds_made(services, delivered) == [1290, 1290]
    with pytest.raises(Conflict, match="no failed refund"):
        paid_again(delivered, failed, once="two")


def test_the_command_and_a_run_never_pay_both(shop, delivered, returned, services):
    """`reconcile --settle refund` refuses while the run is under way; a run that begins in its middle pays nothing."""
    failed = fails(services, delivered)
    finding = open_finding()
    back = paid_again(delivered, failed).public_id
    with pytest.raises(CannotSettle, match="has not ended yet"):
        again(finding)
    operator_verbs.cancel(back, by="olga", reason="the command is to do it")
    shop.run()
    Run(back).assert_state("Cancelled")
    Finding.objects.update(settling_until=timezone.now() + timedelta(hours=1))
    with pytest.raises(Conflict, match="Something else"):
        paid_again(delivered, failed, once="two")
    Finding.objects.update(settling_until=None)

    again(finding)

    assert refunds_made(services, delivered) == [1290, 1290]
    assert failed_of(delivered) == []


def test_a_run_that_finds_the_refund_paid_again_pays_nothing(shop, delivered, returned, services):
    failed = fails(services, delivered)
    finding = open_finding()
    back = paid_again(delivered, failed).public_id
    row = Refund.objects.get(public_id=back)
    Refund.objects.filter(pk=row.pk).update(replaces="")  # the command does not see it: it was frozen since before the run was asked for
    again(finding)
    Refund.objects.filter(pk=row.pk).update(replaces=failed)
    shop.run()

    Run(back).assert_state("Error")
    assert "paid again by another call" in testing.step(back, "refund-part").last_error
    assert refunds_made(services, delivered) == [1290, 1290]


def test_a_return_that_may_still_pay_by_itself_is_left_alone(shop, delivered, services):
    back = asked(shop, delivered, mugs=1)
    services.faults("mail", "down")
    goods(shop, back, ("MUG-BLUE", 1))
    failed = fails(services, delivered)

    with pytest.raises(Conflict, match="Something else"):
        paid_again(delivered, failed)


def test_what_was_given_back_elsewhere_meanwhile_stops_it(shop, delivered, returned, services):
    failed = fails(services, delivered)
    intent = str(services.ledger("payment", delivered)[0]["intent"])
    refund_at_the_service(services, intent, CHARGED - 1000)
    back = paid_again(delivered, failed).public_id
    shop.run()

    Run(back).assert_state("Error")
    assert "Only 10.00 of 12.90 EUR are left" in testing.step(back, "refund-part").last_error
    assert services.charged(delivered) == 1000
    operator_verbs.cancel(back, by="olga", reason="paid in cash")
    shop.run()
    assert [one.under_way for one in failed_of(delivered)] == [False], "it is still owed, and can be adopted"


def test_one_that_fails_too_is_paid_again(shop, delivered, returned, services, capsys):
    for number in range(3):
        failed = fails(services, delivered, f"evt_{number}")
        view = answers.return_view(returned)
        assert view is not None
        assert (str(view.refunded), str(view.owed)) == ("0.00", "12.90")
        paid_again(delivered, failed, once=f"key-{number}")
        finished(shop)

    assert services.charged(delivered) == CHARGED - 1290
    assert paying(delivered)["refunded"] == "12.90"
    assert findings(capsys, delivered) == ""


@pytest.mark.parametrize("verb", ["skip", "complete"])
def test_a_payment_step_that_was_skipped_or_completed_by_hand_closes_nothing(shop, delivered, returned, services, monkeypatch, verb):
    failed = fails(services, delivered)

    def refused(*args, **kwargs):
        raise gateway.Rejected("no refunds today")

    with monkeypatch.context() as patch:
        patch.setattr(gateway, "refund", refused)
        back = paid_again(delivered, failed).public_id
        shop.run()
    Run(back).assert_state("Error")
    if verb == "skip":
        Run(back).skip("paid in cash")
    else:
        completing.complete(back, by="olga", reason="paid in cash", step="refund-part", result={"refunded": "12.90"})
    finished(shop)

    Run(back).assert_state("Processed")
    assert [(one.refund, one.under_way) for one in failed_of(delivered)] == [(failed, False)]
    assert refunds_made(services, delivered) == [1290], "the shop does not pay what an operator says to have paid"


def test_the_refund_of_a_cancelled_order_is_paid_again(shop, ada, services, capsys):
    key = asked_and_cancelled(shop, ada)
    intent = str(testing.step(key, "charge-payment").result["intent"])
    services.fail_refund(standing(intent))
    hear("charge.refund.updated", intent, "evt_1")
    notifications.deliver_due()
    [one] = failed_of(key)
    assert (one.refund, one.amount) == (intent, Decimal("25.80"))

    back = paid_again(key, one.refund).public_id
    finished(shop)

    Run(back).assert_state("Processed")
    assert services.charged(key) == 0
    assert paying(key)["state"] == "refunded"
    assert findings(capsys, key) == ""


def test_above_the_limit_another_operator_approves_it_and_it_is_paid_once(shop, delivered, returned, services, settings):
    failed = fails(services, delivered)
    settings.SUPERVISION = {**settings.SUPERVISION, "APPROVAL_ABOVE": {"": Decimal("10")}}
    olga, otto = person("olga", "operator"), person("otto", "operator")
    with pytest.raises(AwaitsApproval) as waits:
        paid_again(delivered, failed, by=olga)
    finished(shop)
    assert refunds_made(services, delivered) == [1290]

    deciding.approve(waits.value.approval, by=otto, reason="I saw it")
    finished(shop)

    assert paid_again(delivered, failed, by=olga).replayed
    assert refunds_made(services, delivered) == [1290, 1290]
    assert failed_of(delivered) == []


class TestThePage:
    def test_an_operator_pays_again_and_a_second_click_pays_nothing(self, shop, delivered, returned, services, boss: Client):
        failed = fails(services, delivered)
        order = Order.objects.get(public_id=delivered)
        place = page(order).replace("change/", f"pay-again/{failed}/")
        assert place in boss.get(page(order)).content.decode()
        fields = {**hidden(boss.get(place).content.decode()), "reason": "the card was closed"}
        assert boss.post(place, {**fields, "reason": ""}).status_code == 200

        for _click in range(2):
            assert boss.post(place, fields).status_code == 302
        assert "It is being paid again." in boss.get(page(order)).content.decode()
        finished(shop)

        html = boss.get(page(order)).content.decode()
        assert refunds_made(services, delivered) == [1290, 1290]
        assert f"pays {failed} again" in html
        assert place not in html
        said = f"refund of 12.90 EUR again for {failed}: the card was closed"
        assert [entry.user.username for entry in LogEntry.objects.filter(change_message=said)] == ["otto"]
        assert boss.get(place).status_code == 302, "nothing is owed any more"

    def test_a_viewer_sees_it_and_may_not_pay(self, shop, delivered, returned, services, client):
        failed = fails(services, delivered)
        order = Order.objects.get(public_id=delivered)
        place = page(order).replace("change/", f"pay-again/{failed}/")
        client.force_login(person("vera", "viewer"))

        html = client.get(page(order)).content.decode()
        assert "has failed: the customer has not got 12.90" in html
        assert place not in html
        assert client.post(place, {}).status_code == 403


def test_the_api_lists_and_pays_again(shop, delivered, returned, services):
    failed = fails(services, delivered)
    olga = a_client(an_account("olga", "operator"))
    path = f"/api/v1/orders/{delivered}/failed-refunds/"
    [one] = olga.get(path).json()["results"]
    assert (one["refund"], one["amount"], one["under_way"]) == (failed, "12.90", False)

    wrong = olga.post(path, {"refund": 3, "reason": "x"})
    assert (wrong.status_code, list(wrong.json()["errors"])) == (400, ["refund"])
    unknown = olga.post(path, {"refund": "re_none", "reason": "x"})
    assert (unknown.status_code, unknown.json()["code"]) == (409, "no_failed_refund")
    body, key = {"refund": failed, "reason": "the card was closed"}, {"Idempotency-Key": "k"}
    first, second = olga.post(path, body, headers=key), olga.post(path, body, headers=key)
    finished(shop)

    assert (first.status_code, first.json()) == (202, second.json())
    assert [one.headers.get("Idempotent-Replayed") for one in (first, second)] == [None, "true"]
    Run(first.json()["id"]).assert_state("Processed")
    assert refunds_made(services, delivered) == [1290, 1290]
    assert olga.get(path).json()["results"] == []
