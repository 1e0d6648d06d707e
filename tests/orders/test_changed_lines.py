"""Lines of an order that an operator changes before the charge: total, stock, payment, page, mail and books follow, or nothing does."""

from __future__ import annotations

import json
from decimal import Decimal
from functools import partial

import pytest
from django.core import mail
from django.core.management import CommandError, call_command
from django.urls import reverse

from orders.edits import changing
from orders.models import Document, Order, Product, StockReservation
from orders.payments.again import pay_again
from orders.queries import order_view
from orders.services import Conflict, InvalidOrder
from supervision import testing
from supervision.approvals import deciding
from supervision.errors import AwaitsApproval, ChangedMeanwhile, Refused
from supervision.models import Approval, JournalEntry, StepEvent, StepState
from supervision.operations import operator_verbs
from supervision.outbox.notifications import deliver_due
from supervision.testkit.run import Run
from tests.engine.kit import at_once
from tests.orders.test_pay_again import refused, shop
from tests.shopping import a_client, a_product, an_account, place
from tests.support.console import hidden, person

__all__ = ["shop"]
LINES = [{"sku": "MUG-BLUE", "quantity": 2}, {"sku": "TOTE", "quantity": 1}]  # 25.80 and 10.00 EUR
FEWER = [{"sku": "MUG-BLUE", "quantity": 1}, {"sku": "TOTE", "quantity": 0}]


@pytest.fixture
def stopped(shop):
    """An order of 35.80 EUR whose card was refused."""
    a_product("TOTE", price="10.00")
    return refused(shop, lines=LINES)


def change(key, lines=FEWER, **options):
    return changing.change_lines(key, lines=lines, reason="by phone", by=options.pop("by", "olga"), **options)


def lines_of(key):
    return {line.sku: line.quantity for line in order_view(key).lines}


def in_stock():
    return dict(Product.objects.values_list("sku", "available"))


def held(key):
    return dict(StockReservation.objects.filter(order_key=key, released_at=None).values_list("sku", "quantity"))


def test_total_stock_and_payment_follow(shop, stopped, services):
    before = in_stock()

    made = change(stopped)

    assert (made.before, made.total) == (Decimal("35.80"), Decimal("12.90"))
    assert (lines_of(stopped), order_view(stopped).total) == ({"MUG-BLUE": 1}, Decimal("12.90"))
    assert held(stopped) == {"MUG-BLUE": 1}
    assert in_stock() == {"MUG-BLUE": before["MUG-BLUE"] + 1, "TOTE": before["TOTE"] + 1}
    assert "lines changed: 2 x MUG-BLUE -> 1 x MUG-BLUE; 1 x TOTE -> 0 x TOTE; 35.80 EUR -> 12.90 EUR: by phone" in "\n".join(
        Run(stopped).history
    )
    operator_verbs.resubmit(stopped, by="olga", reason="another card", amend={"payment_method": "pm_card_visa"})
    shop.run()
    Run(stopped).assert_state("Processed")
    assert services.charged(stopped) == 1290
    shop.assert_healthy()
    deliver_due()
    assert Document.objects.get(order_key=stopped).total == Decimal("12.90")


def test_an_order_that_is_cancelled_later_puts_back_what_it_still_holds(shop, stopped):
    change(stopped)
    operator_verbs.cancel(stopped, by="olga", reason="r")
    shop.run()

    Run(stopped).assert_state("Cancelled")
    assert in_stock() == {"MUG-BLUE": 50, "TOTE": 50}
    shop.assert_healthy()


def test_the_customer_gets_a_mail_and_reads_the_new_total(shop, stopped, client, settings):
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    mail.outbox = []
    change(stopped)

    deliver_due()
    [sent] = [one for one in mail.outbox if "was changed" in one.subject]
    assert sent.to == ["ada@example.com"]
    assert "1 x Product MUG-BLUE" in sent.body
    assert "TOTE" not in sent.body
    assert "It costs €12.90 instead of €35.80. Nothing was charged before." in sent.body
    page = client.get(f"/orders/{stopped}/").content.decode()
    assert "12.90" in page
    assert "35.80" not in page


def test_the_books_hear_of_it_once(stopped):
    change(stopped)

    [entry] = JournalEntry.objects.filter(event_type="order.changed")
    assert {name: json.loads(entry.body)[name] for name in ("before", "total", "pieces")} == {
        "before": "35.80", "total": "12.90", "pieces": 1,
    }  # fmt: skip


def test_an_order_that_waits_for_a_transfer_takes_the_new_total(shop, settings):
    settings.BANK_ACCOUNT = "Shop, IT00 TEST"
    a_product("TOTE", price="10.00")
    key = place(lines=LINES, payment_method="bank_transfer")
    shop.run()

    change(key)
    Run(key).signal("transfer-received", {"amount": "12.90", "currency": "EUR", "reference": "r1"})
    shop.run()

    Run(key).assert_state("Processed")
    shop.assert_healthy()


def test_of_a_transfer_a_part_of_which_has_come_nothing_is_changed(shop, settings):
    settings.BANK_ACCOUNT = "Shop, IT00 TEST"
    key = place(payment_method="bank_transfer")
    shop.run()
    Run(key).signal("transfer-received", {"amount": "5.00", "currency": "EUR", "reference": "r1"})
    shop.run()

    with pytest.raises(Conflict, match="A part of the total has come"):
        change(key, [{"sku": "MUG-BLUE", "quantity": 1}])


def test_what_is_charged_keeps_its_lines(shop):
    key = place()
    shop.run()
    with pytest.raises(Conflict, match="After a delivery a return is the way"):
        change(key, [{"sku": "MUG-BLUE", "quantity": 1}])

    stuck = place(shipping_address={**Order.objects.get().run.payload["shipping_address"], "postal_code": "00000"})
    shop.run()
    Run(stuck).assert_state("Error")
    before = in_stock(), lines_of(stuck)
    with pytest.raises(Conflict, match="charge-payment is done"):
        change(stuck, [{"sku": "MUG-BLUE", "quantity": 1}])
    assert (in_stock(), lines_of(stuck)) == before


def test_what_is_not_known_or_under_way_keeps_its_lines(shop, stopped):
    StepState.objects.filter(run__key=stopped, name="charge-payment").update(effect="unknown")
    with pytest.raises(Conflict, match="not known what charge-payment has done"):
        change(stopped)
    StepState.objects.filter(run__key=stopped, name="charge-payment").update(effect="none")
    operator_verbs.resubmit(stopped, by="olga", reason="r")
    [_claimed] = testing.schedule()
    with pytest.raises(Conflict, match="charge-payment is running"):
        change(stopped)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "at least one line"),
        ([{"sku": "CAP", "quantity": 1}], "no CAP"),
        ([{"sku": "MUG-BLUE", "quantity": 3}], "from 0 to 2"),
        ([{"sku": "MUG-BLUE", "quantity": -1}], "from 0 to 2"),
        ([{"sku": "MUG-BLUE", "quantity": True}], "from 0 to 2"),
        ([{"sku": "TOTE", "quantity": 0}, {"sku": "TOTE", "quantity": 0}], "named twice"),
        ([{"sku": "MUG-BLUE", "quantity": 0}, {"sku": "TOTE", "quantity": 0}], "cancel it instead"),
        ([{"sku": "MUG-BLUE", "quantity": 2}], "has these lines already"),
    ],
)
def test_a_wrong_change_is_refused_at_its_line_and_changes_nothing(stopped, lines, said):
    before = in_stock(), lines_of(stopped), held(stopped)

    with pytest.raises((InvalidOrder, Conflict)) as wrong:
        change(stopped, lines)

    assert said in str(wrong.value.errors)
    assert (in_stock(), lines_of(stopped), held(stopped)) == before


def test_a_change_for_an_order_that_moved_on_is_refused(stopped):
    _change, version = changing.preview(stopped, FEWER)
    operator_verbs.resubmit(stopped, by="otto", reason="r")

    with pytest.raises(ChangedMeanwhile):
        change(stopped, plan_version=version)


def test_a_change_of_an_order_that_another_operator_has_changed_is_refused(stopped):
    fewer = [{"sku": "MUG-BLUE", "quantity": 1}]
    made, version = changing.preview(stopped, fewer)
    change(stopped, [{"sku": "TOTE", "quantity": 0}])

    with pytest.raises(ChangedMeanwhile):
        change(stopped, fewer, plan_version=version, total=made.before)


def test_pieces_that_are_not_there_as_they_were_read_change_nothing(stopped):
    StockReservation.objects.filter(sku="TOTE").update(quantity=2)
    before = in_stock(), lines_of(stopped), order_view(stopped).total

    with pytest.raises(ChangedMeanwhile):
        change(stopped)

    assert (in_stock(), lines_of(stopped), order_view(stopped).total) == before


def test_a_customer_who_pays_at_the_same_moment_pays_what_is_sent(shop, stopped, services):
    view = order_view(stopped)

    def tried(act):
        try:
            act()
        except (Conflict, ChangedMeanwhile, Refused):
            return "refused"
        return "done"

    pays = partial(pay_again, view, "pm_card_visa", by="customer")
    at_once(lambda: tried(partial(change, stopped)), lambda: tried(pays), lambda: tried(partial(change, stopped)))
    shop.run()

    Run(stopped).assert_state("Processed")
    assert services.charged(stopped) == order_view(stopped).total * 100
    assert held(stopped) == lines_of(stopped)
    shop.assert_healthy()


def test_more_than_the_limit_needs_a_second_operator(stopped, settings):
    settings.SUPERVISION = {**settings.SUPERVISION, "APPROVAL_ABOVE": {"": Decimal("20")}}
    with pytest.raises(AwaitsApproval, match=r"22\.90 EUR are at stake"):
        change(stopped, by=person("olga", "operator"))
    assert Approval.objects.get().verb == "edit"
    assert lines_of(stopped) == {"MUG-BLUE": 2, "TOTE": 1}

    otto = person("otto", "operator")
    change(stopped, [{"sku": "TOTE", "quantity": 0}], by=otto)  # 10.00 EUR are below the limit
    assert lines_of(stopped) == {"MUG-BLUE": 2}


def test_a_change_that_a_second_operator_approves_is_made_as_it_was_asked_for(stopped, settings):
    settings.SUPERVISION = {**settings.SUPERVISION, "APPROVAL_ABOVE": {"": Decimal("20")}}
    with pytest.raises(AwaitsApproval):
        change(stopped, by=person("olga", "operator"))

    deciding.approve(Approval.objects.get().pk, by=person("otto", "operator"), reason="agreed")

    assert lines_of(stopped) == {"MUG-BLUE": 1}
    assert StepEvent.objects.filter(run__key=stopped, actor="olga, approved by otto", why__startswith="lines changed").exists()


def test_the_api_changes_them_for_who_may(shop, stopped):
    path, body = f"/api/v1/orders/{stopped}/lines/", {"lines": FEWER, "reason": "by phone"}
    assert a_client(an_account("vera", "viewer")).post(path, body).status_code == 403
    olga = a_client(an_account("olga", "operator"))
    wrong = olga.post(path, {**body, "lines": [{"sku": "CAP", "quantity": 1}]})
    assert (wrong.status_code, list(wrong.json()["errors"]["lines"]["0"])) == (400, ["sku"])

    answer = olga.post(path, body)

    assert (answer.status_code, answer.json()["total"]) == (202, "12.90")
    again = olga.post(path, {**body, "lines": [{"sku": "MUG-BLUE", "quantity": 0}]})
    assert (again.status_code, again.json()["code"]) == (409, "nothing_left")


def test_the_console_shows_the_change_before_it_is_done(stopped, client):
    client.force_login(person("olga", "operator"))
    pk = Order.objects.get(public_id=stopped).pk
    page, order = reverse("admin:orders_order_lines", args=[pk]), reverse("admin:orders_order_change", args=[pk])
    assert page in client.get(order).content.decode()
    said = {"line-0": "1", "line-1": "0", "reason": "by phone"}

    shown = client.post(page, said).content.decode()
    assert "MUG-BLUE: 1 instead of 2. TOTE: 0 instead of 1. 2 pieces go back on the shelf." in shown
    assert "The order costs 12.90 EUR instead of 35.80 EUR. Nothing is to be paid back." in shown
    assert lines_of(stopped) == {"MUG-BLUE": 2, "TOTE": 1}
    assert "This field is required" not in shown
    assert 'value="1"' in shown
    other = client.post(page, {**said, "line-0": "2", "seen": hidden(shown)["seen"]}).content.decode()
    assert "The order costs 25.80 EUR" in other  # another change than the one that was shown
    assert "The lines are changed." in client.post(page, {**said, "seen": hidden(shown)["seen"]}, follow=True).content.decode()

    assert lines_of(stopped) == {"MUG-BLUE": 1}
    client.force_login(person("vera", "viewer"))
    assert client.get(page).status_code == 403
    assert page not in client.get(order).content.decode()


def test_the_command_says_what_it_would_do_and_does_it(stopped, capsys):
    call_command("change_lines", stopped, "MUG-BLUE=1", "--dry-run")
    shown = capsys.readouterr().out
    assert "35.80 EUR -> 22.90 EUR; nothing was done" in shown
    assert lines_of(stopped) == {"MUG-BLUE": 2, "TOTE": 1}
    with pytest.raises(CommandError, match="SKU=PIECES"):
        call_command("change_lines", stopped, "MUG-BLUE", "--reason", "r")
    with pytest.raises(CommandError, match="no CAP"):
        call_command("change_lines", stopped, "CAP=1", "--reason", "r")

    with pytest.raises(CommandError, match="changed since"):
        call_command("change_lines", stopped, "MUG-BLUE=1", "--reason", "by phone", "--plan-version", "of-yesterday")
    version = shown.splitlines()[-1].removeprefix("version of the plan: ")
    call_command("change_lines", stopped, "MUG-BLUE=1", "--reason", "by phone", "--plan-version", version)

    assert lines_of(stopped) == {"MUG-BLUE": 1, "TOTE": 1}
