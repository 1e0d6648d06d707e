"""Everything that hangs on an order: it leaves with the order, is read back from the archive, and what the books need stays."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from django.test import Client

from orders.documents.tables import Document
from orders.mails.resending import resend
from orders.models import (
    MailAgain,
    Order,
    Parcel,
    PaymentAdjustment,
    Refund,
    Return,
    Returnable,
    ReturnCorrection,
    ReturnLine,
)
from orders.queries import order_view
from orders.refunds.asking import refund
from orders.returns.asking import ask
from orders.returns.correcting import correct
from orders.services import Conflict
from supervision.audit import registry
from supervision.desk import notes
from supervision.models import (
    ArchivedRun,
    Notification,
    Run,
)
from supervision.operations import archive
from supervision.outbox import notifications
from tests.engine import kit
from tests.engine.conftest import tuned  # noqa: F401
from tests.orders.test_returns import ada, asked, body, deliver, delivered, goods, olga, shop
from tests.shopping import a_client
from tests.support.console import person
from tests.support.parcels import gather

__all__ = ["ada", "delivered", "olga", "shop"]

BY = {ReturnLine: "of__order_key"}
OF_AN_ORDER = (Parcel, Return, Returnable, ReturnLine, Refund, MailAgain, PaymentAdjustment)


def told(shop) -> None:
    """Let the outbox do what waits: documents, looks, mails."""
    for _ in range(3):
        notifications.deliver_due()
        shop.run()


def parcels(order: str) -> None:
    """Find the order's parcel, and let it be delivered."""
    gather()
    assert Parcel.objects.filter(order_key=order).update(state="delivered", changed_at="2026-11-01T10:00Z", look_at=None)


def rich(shop, account=None) -> str:
    """An order with a parcel, two returns (one is not accepted until its report is corrected), a refund, a mail, documents, and notes."""
    order = deliver(shop, account)
    parcels(order)
    told(shop)
    first = asked(shop, order, mugs=1)
    second = asked(shop, order, totes=1)
    goods(shop, first, ("MUG-BLUE", 1, 0))
    goods(shop, second, ("TOTE-OCHRE", 0, 1))
    shop.run()
    told(shop)
    report = {"lines": [{"sku": "TOTE-OCHRE", "accepted": 1, "refused": 0}]}
    correct(second, report, reason="it is as new", by="olga", idempotency_key="one")
    shop.run()
    told(shop)
    refund(order, amount=Decimal("5.00"), reason="a scratch", by="olga", idempotency_key="one")
    resend(order, reason="lost", by="olga", idempotency_key="one")
    shop.run()
    told(shop)
    PaymentAdjustment.objects.get_or_create(
        external_id=f"re_told_{order[:8]}",
        defaults={
            "kind": "refund", "intent": intent_of(order), "order_key": order, "amount": "2.50", "currency": "EUR",
            "status": "succeeded", "gives_back": True, "rank": 2,
        },
    )  # fmt: skip
    notes.add(order, "the customer was kind", by="olga")
    return order


def intent_of(order: str) -> str:
    view = order_view(order)
    assert view is not None
    return next(str(step.result["intent"]) for step in view.steps if step.result and "intent" in step.result)


def archived(*, keep: bool, older_than: timedelta = timedelta(0)) -> archive.Moved:
    total = archive.Moved()
    for _ in range(2):  # the order goes after what came later for it
        for moved in archive.batches(older_than, keep_orders=keep):
            total.add(moved)
    return total


def left_of(order: str) -> dict[str, int]:
    """The rows of the shop that name this order, by table."""
    found = {}
    for model in OF_AN_ORDER:
        found[model.__name__] = model.objects.filter(**{BY.get(model, "order_key"): order}).count()
    found["ReturnCorrection"] = ReturnCorrection.objects.count()  # no other order has any
    return found | {"Order": Order.objects.filter(public_id=order).count()}


def sound() -> bool:
    assert list(registry.violations()) == []
    return True


def shown(order: str, account) -> list[object]:
    """What the customer sees of the order: at the API and on its page."""
    api, visitor = a_client(account), Client()
    visitor.force_login(account)
    doors = [f"/api/v1/orders/{order}/", f"/api/v1/orders/{order}/returns/", f"/api/v1/orders/{order}/?expand=returns"]
    page = visitor.get(f"/orders/{order}/").content.decode()
    return [*(api.get(door).json() for door in doors), [word in page for word in ("INV-", "CRN-", "-R1", "-R2", "Delivered")]]


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "whole"])
def test_an_order_leaves_with_all_that_hangs_on_it_and_its_customer_sees_it_as_before(shop, ada, keep):
    order, other = rich(shop, ada), deliver(shop, ada)
    told(shop)
    before, rows = shown(order, ada), left_of(order)
    assert all(rows.values()), rows

    archived(keep=keep)

    assert not Run.objects.exists()
    assert shown(order, ada) == before
    assert before[-1] == [True] * 5
    assert left_of(order) == (rows if keep else dict.fromkeys(rows, 0))
    assert Document.objects.filter(order_key=order).count() == 4
    assert {one.order_key for one in Document.objects.all()} == {order, other}
    assert sound()


def test_the_archive_has_the_facts_of_everything_that_left(shop, ada):
    order = rich(shop, ada)

    archived(keep=False)

    facts = ArchivedRun.objects.get(key=order).application
    parcel, back = facts["parcels"][0], facts["returns"][0]
    assert (parcel["state"], bool(parcel["number"])) == ("delivered", True)
    assert [(line["sku"], line["accepted"], line["restocked"]) for line in back["lines"]] == [("MUG-BLUE", 1, 1)]
    assert [(one["amount"], one["reason"]) for one in facts["refunds"]] == [("18.00", "it is as new"), ("5.00", "a scratch")]
    assert [one["number"] for one in facts["mails_again"]] == ["ada@example.com"]
    assert "2.500" in [one["amount"] for one in facts["adjustments"]]
    assert [(one["kind"], one["number"][:4], one["total"]) for one in facts["documents"]] == [
        ("invoice", "INV-", "79.80"),
        ("credit_note", "CRN-", "12.90"),
        ("credit_note", "CRN-", "18.00"),
        ("credit_note", "CRN-", "5.00"),
    ]
    (correction,) = facts["returns"][1]["corrections"]
    assert (correction["further"], correction["reason"], correction["asked_by"]) == ("18.00", "it is as new", "olga")
    later = ArchivedRun.objects.exclude(key=order)
    assert {row.application["order"] for row in later} == {order}
    assert set(later.values_list("reference", flat=True)) == {
        back["number"],
        facts["returns"][1]["number"],
        *(one["number"] for one in facts["refunds"]),
        None,
    }
    operator = Client()
    operator.force_login(person("otto", "operator"))
    page = operator.get(f"/admin/supervision/archivedrun/{order}/change/").content.decode()
    assert facts["documents"][0]["number"] in page
    assert back["number"] in page


@pytest.mark.parametrize("waits", ["return", "refund", "mail", "invoice", "credit note", "refund's note"])
def test_an_order_stays_until_what_came_later_has_ended_and_left(shop, ada, waits):
    order = deliver(shop, ada)
    if waits != "invoice":
        told(shop)
    if waits == "return":
        asked(shop, order, mugs=1)
    elif waits == "refund":
        refund(order, amount=Decimal("5.00"), reason="a scratch", by="olga", idempotency_key="one")
    elif waits == "refund's note":
        refund(order, amount=Decimal("5.00"), reason="a scratch", by="olga", idempotency_key="one")
        shop.run()
    elif waits == "mail":
        resend(order, reason="lost", by="olga", idempotency_key="one")
    elif waits == "credit note":
        goods(shop, asked(shop, order, mugs=1), ("MUG-BLUE", 1, 0))
    status_told()

    moved = archived(keep=False)

    assert Order.objects.filter(public_id=order).exists()
    assert Run.objects.filter(key=order).exists()
    assert moved.held >= 1
    assert sound()

    if waits == "return":
        goods(shop, Return.objects.get().public_id, ("MUG-BLUE", 1, 0))
    shop.run()
    told(shop)
    archived(keep=False)

    assert not Order.objects.exists()
    assert Document.objects.filter(order_key=order, kind="invoice").count() == 1
    assert Document.objects.filter(kind="credit_note").count() == (waits in ("return", "refund", "credit note", "refund's note"))
    assert sound()


def status_told() -> None:
    """The messages that hold a run for themselves are told; those that name no run wait on."""
    Notification.objects.filter(run_id__isnull=False).update(delivered_at="2026-01-01T00:00Z")


def test_a_return_that_is_asked_for_while_its_order_leaves_is_accepted_whole_or_refused(shop, ada):
    order = deliver(shop, ada)
    told(shop)
    view = order_view(order)
    assert view is not None
    made = ask(view, body(mugs=1)["lines"], "too small", by="customer")  # the run is not begun: only a submission has it

    archived(keep=False)

    assert (Order.objects.count(), Return.objects.count()) == (1, 1)
    shop.run()
    goods(shop, made.public_id, ("MUG-BLUE", 1, 0))
    told(shop)
    archived(keep=False)
    assert Order.objects.count() == 0
    with pytest.raises(Conflict, match="archived"):  # it had read the order before
        ask(view, body(mugs=1)["lines"], "too small", by="customer")
    assert not Return.objects.exists()
    assert sound()


def test_a_request_under_way_keeps_its_order_and_the_archive_does_not_wait(shop, ada):
    order, other = deliver(shop, ada), deliver(shop, ada)
    told(shop)

    with kit.another_connection() as request:
        request.execute("SELECT FROM orders_order WHERE public_id = %s FOR KEY SHARE", [order])
        archived(keep=False)
        assert set(ArchivedRun.objects.values_list("key", flat=True)) == {other}

    archived(keep=False)
    assert ArchivedRun.objects.count() == 2


def test_returns_that_an_earlier_release_left_behind_are_still_shown(shop, ada):
    """Before, an order left its returns' rows in their tables; the archive knows nothing of them."""
    order = rich(shop, ada)
    archived(keep=False)
    of = Return.objects.create(public_id="r", order_key=order, number="left-R3", reason="r", asked_by="customer", currency="EUR")
    ReturnLine.objects.create(of=of, sku="MUG-BLUE", name="mug", quantity=1, unit_price="12.90", holds=0)

    found = a_client(ada).get(f"/api/v1/orders/{order}/returns/").json()["results"]

    assert [one["number"][-2:] for one in found] == ["R1", "R2", "R3"]
