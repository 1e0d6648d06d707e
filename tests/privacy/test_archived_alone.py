"""Orders whose rows of the shop are in the archive alone: found after a restore, and of other people only the address goes."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from io import BytesIO
from zipfile import ZipFile

from django.contrib.auth.models import User

from orders.mails.resending import resend
from orders.models import Order
from orders.privacy import again, exporting, people, traces
from orders.queries import order_view
from orders.refunds.asking import refund
from orders.returns.asking import ask
from supervision.models import ArchivedRun
from supervision.operations import archive
from tests.orders.test_returns import goods, shop
from tests.shopping import an_account, place

from .kit import ADDRESS, EMAIL, SURNAME, hits
from .test_erasing import KEPT, erase, told, zoe

__all__ = ["shop", "zoe"]


def archived() -> None:
    """Move every order with the shop's rows into the archive."""
    for _ in range(3):
        for _moved in archive.batches(timedelta(0), keep_orders=False):
            pass
    assert not Order.objects.exists()


def bodies() -> list[tuple[int, object]]:
    return list(ArchivedRun.objects.order_by("run_id").values_list("run_id", "body"))


def test_a_guest_whom_a_restore_brings_back_in_the_archive_is_found_by_the_list(shop):
    place(None, email=EMAIL, shipping_address=ADDRESS)
    shop.run()
    told(shop)
    archived()
    before = bodies()
    erase(people.by_email(EMAIL))
    hashes = list(again.listed())
    assert again.found(hashes) == ([], [])

    for run, body in before:
        ArchivedRun.objects.filter(run_id=run).update(body=body)

    assert [person.emails for person in again.found(hashes).persons] == [[EMAIL.lower()]]


def test_an_archived_order_of_another_account_loses_the_address_and_nothing_else(shop, zoe):
    bob: User = an_account("bob", "customer")
    theirs = {"name": "Bob Marley", "line1": "Via Garibaldi 3", "city": "Torino", "postal_code": "10121", "country": "IT"}
    key = place(bob, email=EMAIL, shipping_address=theirs)
    shop.run()
    told(shop)
    refund(key, amount=Decimal("1.00"), reason="a scratch", by=an_account("olga", "operator"), idempotency_key="one")
    shop.run()
    told(shop)
    archived()
    exporting.write(people.by_account(zoe.username), exported := BytesIO())
    assert json.loads(ZipFile(exported).read("data.json"))["orders"] == []

    erase(people.by_account(zoe.username))

    body = ArchivedRun.objects.get(key=key).body
    assert body["run"]["payload"]["shipping_address"]["name"] == "Bob Marley"
    texts = " ".join(str(body) for _run, body in bodies()).lower()
    assert EMAIL.lower() not in texts
    assert "a scratch" in texts


def test_what_came_later_for_an_archived_order_is_erased_with_it(shop, zoe):
    """Its goods came back, money without goods, and its mail was sent again to another address of the person."""
    key = place(zoe, email=EMAIL, shipping_address=ADDRESS)
    shop.run()
    told(shop)
    back = ask(order_view(key), [{"sku": "MUG-BLUE", "quantity": 1}], "a quagmire", by=zoe.username).public_id
    shop.run()
    goods(shop, back, ("MUG-BLUE", 1))
    olga = an_account("olga", "operator")
    refund(key, amount=Decimal("1.00"), reason=f"Mrs {SURNAME} was kind", by=olga, idempotency_key="one")
    resend(key, email="sister@elsewhere.example", reason="it was lost", by=olga, idempotency_key="two")
    shop.run()
    told(shop)
    archived()
    exporting.write(people.by_account(zoe.username), exported := BytesIO())
    [told_of] = json.loads(ZipFile(exported).read("data.json"))["orders"]
    assert [len(told_of[name]) for name in ("returns", "refunds", "mails_sent_again")] == [1, 1, 1]

    erase(people.by_account(zoe.username))

    assert not hits(["quagmire", "sister@elsewhere"])
    assert not hits().keys() - KEPT
    assert "was kind" in str(ArchivedRun.objects.get(key=key).body)


def test_an_export_reads_the_archive_once(shop, zoe, monkeypatch):
    real, read = traces.archived_keys, []
    monkeypatch.setattr(traces, "archived_keys", lambda person: read.append(person) or real(person))

    exporting.write(people.by_account(zoe.username), BytesIO())

    assert len(read) == 1


def test_an_archived_order_that_a_shops_server_placed_is_erased_whole(shop, zoe):
    key = place(an_account("erp", "client"), email=EMAIL, shipping_address=ADDRESS)
    shop.run()
    told(shop)
    archived()

    erase(people.by_account(zoe.username))

    assert not hits().keys() - KEPT
    assert ArchivedRun.objects.get(key=key).body["run"]["payload"]["email"] == "[erased]"
