"""Credit notes of returns and refunds that ended before the shop issued any: each is issued once, by a command."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command

from orders.documents.tables import Document, DocumentCounter
from orders.models import Refund, Return
from supervision.models import Notification, Run
from supervision.operations import operator_verbs
from tests.archive.test_all_of_an_order import archived
from tests.orders.test_invoices import issue
from tests.orders.test_refund_notes import delivered, given, notes
from tests.orders.test_returns import ada, asked, goods, shop

__all__ = ["ada", "delivered", "shop"]


def command(*said: str) -> list[str]:
    out = StringIO()
    call_command("issue_credit_notes", *said, stdout=out)
    return out.getvalue().splitlines()


def forgotten() -> None:
    """As if no return and refund so far had ever got a credit note."""
    issue()
    Document.objects.filter(kind="credit_note").delete()
    DocumentCounter.objects.filter(series="CRN").update(last=0)
    Notification.objects.filter(kind__in=["issue-refund-notes", "issue-credit-notes"]).delete()


@pytest.fixture
def old(shop, delivered) -> dict[str, str]:
    """A refund over 10.00 and a return of one mug that have no credit notes."""
    refund = given(shop, delivered, "10.00")
    back = asked(shop, delivered, mugs=1)
    goods(shop, back, ("MUG-BLUE", 1))
    forgotten()
    return {"order": delivered, "refund": refund, "return": back}


def test_what_is_missing_is_listed_issued_once_and_then_the_audit_holds(shop, old):
    listed = command("--plan")
    assert listed[:2] == [
        f"{Return.objects.get().number}: 12.90 EUR (return {old['return']} of order {old['order']})",
        f"{Refund.objects.get().number}: 10.00 EUR (refund {old['refund']} of order {old['order']})",
    ]
    assert listed[2:] == ["2 credit notes are missing"]
    assert notes(old["order"]) == []
    with pytest.raises(AssertionError, match="a refund that paid has one credit note"):
        shop.assert_healthy()

    assert command()[2:] == ["2 credit notes are queued: the outbox issues them"]
    assert command() == ["no credit note is missing"], "the outbox has not delivered yet"
    issue()

    assert {one.cause: str(one.total) for one in notes(old["order"])} == {old["return"]: "12.90", old["refund"]: "10.00"}
    assert sorted(one.number for one in notes(old["order"])) == [1, 2]
    assert command() == ["no credit note is missing"]
    shop.assert_healthy()


def test_the_runs_may_have_left_for_the_archive(shop, old):
    archived(keep=True)
    assert not Run.objects.exists()
    command()
    issue()
    assert {one.cause for one in notes(old["order"])} == {old["return"], old["refund"]}


def test_what_paid_nothing_or_has_its_credit_note_gets_none(shop, delivered):
    given(shop, delivered, "10.00")
    issue()
    operator_verbs.cancel(asked(shop, delivered, mugs=1), by="olga", reason="x")
    back = asked(shop, delivered, totes=1)
    goods(shop, back, ("TOTE-OCHRE", 0, 1))
    shop.advance("1m")
    assert command() == ["no credit note is missing"]
    assert len(notes(delivered)) == 1


def test_many_are_queued_in_batches(shop, old, monkeypatch):
    monkeypatch.setattr("orders.documents.missing.BATCH", 1)
    command()
    assert Notification.objects.filter(kind__in=["issue-refund-notes", "issue-credit-notes"]).count() == 2
