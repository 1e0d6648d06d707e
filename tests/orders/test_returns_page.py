"""Returns and documents where people see them: the order's page, the console, the commands."""

from __future__ import annotations

import re

import pytest
from django.core.management import call_command

from orders.models import Order, Return
from tests.orders.test_invoices import invoice, issue
from tests.orders.test_returns import LINES, ada, asked, deliver, delivered, goods, held, shop
from tests.shopping import place
from tests.support.console import page, person

__all__ = ["ada", "delivered", "shop"]


@pytest.fixture
def guests(shop) -> str:
    """A guest's order: its link is enough."""
    return deliver(shop)


def key_of(text: str) -> str:
    found = re.search(r'name="key" value="([^"]+)"', text)
    assert found is not None
    return found[1]


def send(client, order: str, **fields: str):
    return client.post(f"/orders/{order}/returns/", fields, follow=True)


def test_a_guest_returns_goods_on_the_orders_page_and_sees_how_it_goes(shop, guests, client):
    shown = client.get(f"/orders/{guests}/").text
    assert "Return goods" in shown
    key = key_of(shown)

    answer = send(client, guests, **{"quantity-MUG-BLUE": "2", "quantity-TOTE-OCHRE": "0", "reason": "too small", "key": key})
    assert "Please send the goods to us" in answer.text
    assert 'max="2" value="0" inputmode="numeric">' not in answer.text, "all mugs are on their way back"
    send(client, guests, **{"quantity-MUG-BLUE": "2", "reason": "too small", "key": key})
    assert Return.objects.count() == 1, "a second click is harmless"

    shop.run()
    goods(shop, Return.objects.get().public_id, ("MUG-BLUE", 1, 1))
    shown = client.get(f"/orders/{guests}/").text
    assert "Your return is done" in shown
    assert "12.90" in shown
    assert 'id="return-MUG-BLUE"' in shown, "the refused mug may be returned again"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"quantity-MUG-BLUE": "1", "key": "k"}, "Tell us why"),
        ({"quantity-MUG-BLUE": "1", "reason": "x" * 501, "key": "k"}, "Tell us why"),
        ({"quantity-MUG-BLUE": "3", "reason": "x", "key": "k"}, "not more than you got"),
        ({"quantity-MUG-BLUE": "-1", "reason": "x", "key": "k"}, "not more than you got"),
        ({"quantity-MUG-BLUE": "many", "reason": "x", "key": "k"}, "not more than you got"),
        ({"quantity-MUG-BLUE": "0", "reason": "x", "key": "k"}, "Choose how many"),
        ({"reason": "x", "key": "k"}, "Choose how many"),
        ({}, "Tell us why"),
        ({"quantity-MUG-BLUE": "1", "reason": "x", "key": "ü"}, "can not be returned"),
    ],
)
def test_a_wrong_form_changes_nothing_and_says_why(shop, guests, client, fields, words):
    assert words in send(client, guests, **fields).text
    assert not Return.objects.exists()


def test_a_refused_form_keeps_what_the_customer_typed(shop, guests, client):
    typed = {
        "quantity-MUG-BLUE": "3",
        "quantity-TOTE-OCHRE": "1",
        "reason": "<b>too small</b>",
        "key": key_of(client.get(f"/orders/{guests}/").text),
    }

    answer = client.post(f"/orders/{guests}/returns/", typed)

    assert answer.status_code == 400
    assert '<details class="ask no-print" open>' in answer.text
    assert "&lt;b&gt;too small&lt;/b&gt;</textarea>" in answer.text
    assert 'max="2" value="3"' in answer.text
    assert 'id="wrong_quantity-MUG-BLUE"' in answer.text
    assert 'max="3" value="1"' in answer.text
    assert key_of(answer.text) == typed["key"]
    assert "private, no-store" in answer.headers["Cache-Control"]


@pytest.mark.parametrize("key", ["used", "ü", ""])
def test_a_form_whose_key_leads_to_no_return_gets_another_one(shop, guests, client, key):
    send(client, guests, **{"quantity-MUG-BLUE": "1", "reason": "too small", "key": "used"})
    fields = {"quantity-MUG-BLUE": "1", "reason": "too blue"}

    answer = client.post(f"/orders/{guests}/returns/", fields | {"key": key})

    assert answer.status_code == (409 if key == "used" else 400)
    assert "too blue</textarea>" in answer.text
    assert Return.objects.count() == 1
    send(client, guests, **fields, key=key_of(answer.text))
    assert Return.objects.count() == 2


def test_the_end_of_a_line_counts_one_character_as_in_the_browser(shop, guests, client):
    reason = "\n".join(["x" * 99] * 4 + ["x" * 100])
    assert len(reason) == 500

    send(client, guests, **{"quantity-MUG-BLUE": "1", "reason": reason.replace("\n", "\r\n"), "key": "k"})

    assert Return.objects.get().reason == reason


def test_the_orders_of_others_take_no_return(shop, delivered, client):
    answers = [send(client, delivered, reason="x", key="k"), send(client, "unknown", reason="x", key="k")]

    assert [one.status_code for one in answers] == [404] * 2
    assert client.get(f"/orders/{delivered}/returns/", follow=True).status_code == 404


def test_an_order_that_is_under_way_offers_no_return(shop, client):
    key = place(lines=LINES)

    assert "Return goods" not in client.get(f"/orders/{key}/").text
    assert "can not" not in client.get(f"/orders/{key}/").text


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (lambda shop, back: goods(shop, back, ("MUG-BLUE", 0, 2)), "We could not accept the goods"),
        (lambda shop, back: shop.advance("30d"), "This return has ended"),
    ],
)
def test_the_page_says_how_a_return_ended(shop, guests, client, end, words):
    end(shop, asked(shop, guests, mugs=2))

    assert words in client.get(f"/orders/{guests}/").text
    assert held(guests)["MUG-BLUE"] == 0


def test_the_page_links_to_the_invoice(shop, guests, client):
    issue()
    name = invoice(guests).name

    assert f"/orders/{guests}/documents/{name}/" in client.get(f"/orders/{guests}/").text
    assert client.get(f"/orders/{guests}/documents/{name}/").content.startswith(b"%PDF")


def test_the_console_and_the_commands_show_returns_at_the_order_and_the_order_at_its_returns(shop, delivered, client, capsys):
    back = asked(shop, delivered, mugs=2)
    issue()
    client.force_login(person("olga", "operator"))

    shown = client.get(page(Order.objects.get())).text
    assert Return.objects.get().number in shown
    assert invoice(delivered).name in shown
    call_command("order", delivered)
    told = capsys.readouterr().out
    assert f"{Return.objects.get().number} {back}: Processing" in told
    assert f"invoice {invoice(delivered).name}: 79.80 EUR" in told
    call_command("order", back)
    assert f"of order {delivered}" in capsys.readouterr().out
