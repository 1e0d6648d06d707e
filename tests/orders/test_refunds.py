"""Money that an operator gives back without goods: once, and never more than is left of the charge."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission
from django.test import Client

from orders.models import MailAgain, Order, Refund
from orders.queries import order_view
from orders.refunds.asking import refund
from orders.services import Conflict, InvalidOrder, KeyReused
from supervision import testing
from supervision.approvals import deciding
from supervision.errors import AwaitsApproval, Refused
from supervision.models import JournalEntry
from supervision.operations import operator_verbs
from supervision.testkit.run import Run
from tests.engine.kit import at_once
from tests.orders.test_refund_parts import PAID, findings, intent_of, outside, refunds_made
from tests.orders.test_refund_parts import refund as refund_at_the_service
from tests.orders.test_returns import ada, asked, delivered, goods, shop
from tests.shopping import place
from tests.support.console import hidden, page, person

__all__ = ["ada", "delivered", "shop"]
DEATHS = ["agent.after_start", "agent.after_intention", "agent.before_call", "agent.after_effect", "agent.after_finish"]


@pytest.fixture
def boss(shop, client: Client) -> Client:
    client.force_login(person("otto", "operator"))
    return client


def given(key: str, amount: str = "10.00", *, once: str = "one", reason: str = "a scratch"):
    return refund(key, amount=Decimal(amount), reason=reason, by="olga", idempotency_key=once)


def paying(key: str) -> tuple[str, str]:
    view = order_view(key)
    assert view is not None
    return view.payment.state, str(view.payment.refunded)


def mails(services, key: str) -> list[dict]:
    return [entry for entry in services.ledger("mail", key) if entry["effect"]]


def refund_page(key: str) -> str:
    return page(Order.objects.get(public_id=key)).replace("change", "refund")


def test_a_part_goes_back_and_payment_books_reconciliation_and_customer_know(shop, delivered, services, capsys):
    back = given(delivered).public_id
    shop.run()

    Run(back).assert_state("Processed")
    assert refunds_made(services, delivered) == [1000]
    assert outside(back) == [("refund-part", "done")]
    assert paying(delivered) == ("partly_refunded", "10.00")
    (body,) = JournalEntry.objects.filter(event_type="order.partly_refunded").values_list("body", flat=True)
    event = json.loads(body)
    assert (event["order"], event["refunded"], event["charge"]) == (delivered, "10.00", intent_of(delivered))
    assert "A refund for your order" in mails(services, delivered)[-1]["subject"]
    assert findings(capsys, delivered) == ""
    shop.assert_healthy()


@pytest.mark.parametrize("at", DEATHS)
def test_a_process_that_dies_pays_once(shop, delivered, services, at):
    shop.kill("refund-part", at=at)
    back = given(delivered).public_id
    shop.advance("10m")

    Run(back).assert_state("Processed")
    assert refunds_made(services, delivered) == [1000]
    assert outside(back) == [("refund-part", "done")]
    shop.assert_healthy()


@pytest.mark.parametrize("fault", ["error_before", "timeout_after_effect", "error_after_effect", "reset_after_effect"])
def test_a_call_without_a_good_answer_pays_once(shop, delivered, services, fault):
    services.faults("payment", fault, latency_ms=100)
    back = given(delivered).public_id
    shop.run()
    services.clear()
    shop.advance("10m")

    Run(back).assert_state("Processed")
    assert refunds_made(services, delivered) == [1000]


def test_the_same_key_is_the_same_refund_and_another_amount_under_it_is_refused(shop, delivered, services):
    first, second = given(delivered), given(delivered)
    with pytest.raises(KeyReused):
        given(delivered, "11.00")
    shop.run()

    assert (second.public_id, second.replayed) == (first.public_id, True)
    assert refunds_made(services, delivered) == [1000]


def test_refunds_never_exceed_the_charge_however_many_are_asked_for_at_once(shop, delivered, services):
    def one(number: int):
        try:
            return given(delivered, "30.00", once=f"key-{number}").public_id
        except Conflict as full:
            return full.code

    told = at_once(*[lambda number=number: one(number) for number in range(4)])
    shop.run()

    assert sorted(code for code in told if code == "beyond_charge") == ["beyond_charge"] * 2
    assert refunds_made(services, delivered) == [3000, 3000]
    with pytest.raises(Conflict, match=r"Only 19\.80 EUR"):
        given(delivered, "19.81", once="more")
    given(delivered, "19.80", once="rest")
    shop.run()
    assert paying(delivered) == ("refunded", "79.80")
    assert services.charged(delivered) == 0


def test_what_the_service_gave_back_meanwhile_stops_the_refund_and_pays_nothing(shop, delivered, services):
    back = given(delivered, "20.00").public_id
    refund_at_the_service(services, intent_of(delivered), PAID - 1000)
    shop.run()

    run = Run(back)
    run.assert_state("Error")
    assert "Only 10.00 of 20.00 EUR are left of the charge: cancel this refund." in testing.step(back, "refund-part").last_error
    operator_verbs.cancel(back, by="olga", reason="it was given back there")
    shop.run()
    run.assert_state("Cancelled")
    assert sum(refunds_made(services, delivered)) <= PAID


def test_a_return_afterwards_pays_only_what_is_left(shop, delivered, services):
    given(delivered, "70.00")
    shop.run()
    back = asked(shop, delivered, mugs=2)
    goods(shop, back, ("MUG-BLUE", 2, 0))

    assert Run(back).results["refund-part"]["refunded"] == "9.80"
    assert services.charged(delivered) == 0


@pytest.mark.parametrize("amount", ["0", "-1", "0.001", "NaN", "Infinity", "1e30"])
def test_what_is_no_amount_is_refused(delivered, amount):
    with pytest.raises(InvalidOrder):
        given(delivered, amount)


def test_an_order_that_is_not_done_has_nothing_to_give_back(shop, ada):
    key = place(ada, payment_method="pm_card_visa_chargeDeclined")
    shop.run()
    with pytest.raises(Conflict, match="Only an order that is done"):
        given(key)


def test_a_refund_needs_a_reason(delivered):
    with pytest.raises(Refused):
        given(delivered, reason="  ")


def test_a_refund_above_the_limit_waits_for_another_operator_and_is_paid_once(shop, delivered, services, settings):
    settings.SUPERVISION = {**settings.SUPERVISION, "APPROVAL_ABOVE": {"": Decimal("50")}}
    olga, otto = person("olga", "operator"), person("otto", "operator")
    for _twice in range(2):
        with pytest.raises(AwaitsApproval) as waits:
            refund(delivered, amount=Decimal("60.00"), reason="broken", by=olga, idempotency_key="big")
    shop.run()
    assert refunds_made(services, delivered) == []

    deciding.approve(waits.value.approval, by=otto, reason="I saw it")
    shop.run()

    assert refunds_made(services, delivered) == [6000]
    assert Refund.objects.get().amount == 60


class TestThePage:
    def test_an_operator_gives_a_part_back_and_a_second_click_gives_nothing(self, shop, delivered, services, boss):
        asked_for = boss.get(refund_page(delivered)).content.decode()
        assert "Of the charge 79.80 EUR are left." in asked_for
        fields = {**hidden(asked_for), "amount": "12.90", "reason": "a scratch"}

        for _click in range(2):
            assert boss.post(refund_page(delivered), fields).status_code == 302
        shop.run()

        html = boss.get(page(Order.objects.get(public_id=delivered))).content.decode()
        assert refunds_made(services, delivered) == [1290]
        assert "Of what was paid 66.90 EUR are left." in html
        assert "12.90 EUR" in html[html.index('id="sc-after"') :]
        assert "otto" in html[html.index('id="sc-after"') :]
        assert [entry.user.username for entry in LogEntry.objects.filter(change_message="refund of 12.90 EUR: a scratch")] == ["otto"]

    @pytest.mark.parametrize(("amount", "words"), [("100", "Only 79.80 EUR of the charge are left."), ("0", "above 0"), ("x", "number")])
    def test_a_wrong_amount_is_said_at_its_field_and_the_reason_stays(self, shop, delivered, boss, amount, words):
        fields = {**hidden(boss.get(refund_page(delivered)).content.decode()), "amount": amount, "reason": "a scratch"}

        html = boss.post(refund_page(delivered), fields).content.decode()

        assert words.lower() in html.lower()
        assert "a scratch" in html
        assert not Refund.objects.exists()

    def test_a_viewer_sees_refunds_and_may_not_give_any(self, shop, delivered, client):
        given(delivered)
        client.force_login(person("vera", "viewer"))

        assert client.get(refund_page(delivered)).status_code == 403
        assert client.post(refund_page(delivered), {}).status_code == 403
        html = client.get(page(Order.objects.get(public_id=delivered))).content.decode()
        assert "a scratch" in html
        assert 'id="sc-refund"' not in html

    def test_the_right_to_refunds_alone_gives_money_back_and_sends_no_mail(self, shop, delivered, services, client):
        rita = person("rita", "viewer")
        rita.user_permissions.add(Permission.objects.get(codename="refund_run"))
        client.force_login(rita)

        html = client.get(page(Order.objects.get(public_id=delivered))).content.decode()
        asked_for = client.get(refund_page(delivered)).content.decode()
        client.post(refund_page(delivered), {**hidden(asked_for), "amount": "1.00", "reason": "a scratch"})
        shop.run()

        assert refunds_made(services, delivered) == [100]
        assert 'id="sc-refund"' in html
        assert 'id="sc-resend"' not in html
        assert client.get(refund_page(delivered).replace("refund", "resend")).status_code == 403


class TestMailsSentAgain:
    def resend_page(self, key: str) -> str:
        return page(Order.objects.get(public_id=key)).replace("change", "resend")

    def send(self, boss: Client, key: str, **fields: str):
        shown = boss.get(self.resend_page(key)).content.decode()
        return boss.post(self.resend_page(key), {**hidden(shown), "email": "ada@new.example", "reason": "she moved", **fields})

    def test_the_mail_goes_out_once_more_under_its_own_message_id(self, shop, delivered, services, boss):
        (first,) = mails(services, delivered)
        fields = {**hidden(boss.get(self.resend_page(delivered)).content.decode()), "email": "ada@new.example", "reason": "she moved"}

        for _click in range(2):
            assert boss.post(self.resend_page(delivered), fields).status_code == 302
        shop.run()

        _first, again = mails(services, delivered)
        assert (again["to"], again["subject"]) == (["ada@new.example"], first["subject"])
        assert again["key"] != first["key"]
        assert LogEntry.objects.filter(change_message="mail sent again: she moved", user__username="otto").count() == 1
        assert "Mail again to ada@new.example" in boss.get(page(Order.objects.get(public_id=delivered))).content.decode()
        shop.assert_healthy()

    def test_a_process_that_dies_before_the_mail_server_heard_of_it_sends_it_once(self, shop, delivered, services, boss):
        shop.kill("send-mail-again", at="agent.before_call")
        self.send(boss, delivered)
        shop.advance("10m")

        assert len(mails(services, delivered)) == 2

    def test_it_is_sent_again_five_times_at_most(self, shop, delivered, boss):
        for _time in range(5):
            assert self.send(boss, delivered).status_code == 302

        assert "It is not sent any more." in self.send(boss, delivered).content.decode()
        assert MailAgain.objects.count() == 5
        assert 'id="sc-resend"' not in boss.get(page(Order.objects.get(public_id=delivered))).content.decode()
