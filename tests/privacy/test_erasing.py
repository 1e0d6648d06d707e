"""Erasing a person leaves no byte of name, mail and address, in any column of any table and in no file, but what the law keeps."""

from __future__ import annotations

import gzip
import hashlib
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.db.models.functions import Now
from django.test import Client

from orders.accounts.tables import SavedAddress, VerifiedEmail
from orders.api.throttling import counted
from orders.documents.tables import Document
from orders.mails.resending import resend
from orders.models import Erasure, Order
from orders.privacy import again, erasing, held, people, rows
from orders.queries import order_view
from orders.records import expired
from orders.refunds.asking import refund
from orders.returns.asking import ask
from orders.services import cancel_order, place_order
from supervision import conf, testing
from supervision.approvals.actors import Exempt
from supervision.audit import registry
from supervision.deadletters import dead_letters, ending
from supervision.desk import notes
from supervision.errors import Refused
from supervision.models import (
    ArchivedRun,
    DeadLetter,
    Exchange,
    Incident,
    IncidentNote,
    Notification,
    Run,
    SavedView,
    StepState,
    StrayReply,
)
from supervision.operations import archive, requeue
from supervision.outbox import notifications
from supervision.postgres.db import fetch
from tests.orders.test_returns import goods, shop
from tests.shopping import a_client, a_request, an_account, order, place

from .kit import ADDRESS, EMAIL, LINE1, NAME, PHONE, SURNAME, hits, in_files

__all__ = ["shop"]

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
KEPT = {"orders_document.body"}  # by law, for DOCUMENT_YEARS


def told(shop) -> None:
    for _ in range(3):
        Notification.objects.filter(delivered_at=None).update(not_before=Now())  # reminders, too
        notifications.deliver_due()
        shop.run()


@pytest.fixture
def zoe(shop) -> User:
    """A customer whose username is the address, as sign-up makes it."""
    account = an_account("zoe", "customer")
    User.objects.filter(pk=account.pk).update(username=EMAIL.lower(), email=EMAIL, first_name=NAME, last_name=SURNAME)
    account.refresh_from_db()
    VerifiedEmail.objects.create(account=account, address=EMAIL.lower())
    SavedAddress.objects.create(account=account, **ADDRESS)
    return account


def lived(shop, zoe: User) -> dict[str, str]:
    """Orders of an account and of a guest, and everything that may come of them. Returns public ids."""
    lines = [{"sku": "MUG-BLUE", "quantity": 2}, {"sku": "TOTE-OCHRE", "quantity": 3}]
    mine = {"email": EMAIL, "shipping_address": ADDRESS, "lines": lines}
    own = place(zoe, **mine)
    guest = place(None, **{**mine, "email": EMAIL.upper()})
    refused = place(zoe, **mine, payment_method="pm_card_chargeDeclined")
    shop.run()
    cancel_order(refused, by=Exempt(zoe), reason=f"a quagmire, call {PHONE}")
    shop.run()
    told(shop)

    back = ask(order_view(own), [{"sku": "MUG-BLUE", "quantity": 1}], f"a quagmire for {SURNAME}", by=zoe.username).public_id
    shop.run()
    goods(shop, back, ("MUG-BLUE", 1, 0))
    told(shop)
    olga = an_account("olga", "operator")
    refund(own, amount=Decimal("5.00"), reason=f"Mrs {SURNAME} was kind", by=olga, idempotency_key="one")
    resend(own, email=f"{SURNAME}@other.canary.example", reason=f"{NAME} lost it", by=olga, idempotency_key="two")
    shop.run()
    told(shop)
    notes.add(own, f"{SURNAME} called from {PHONE}", by=olga)
    run = Run.objects.get(key=own)
    StrayReply.objects.create(run_id=run.pk, direction="do", position=0, attempt=9, outcome="late", detail=f"for {LINE1}", actor="x")
    Exchange.objects.create(
        run_id=run.pk, direction="do", position=2, attempt=1, service="carrier", call="POST", asked="", answered=f"to {NAME}", seconds=1
    )
    letter = json.dumps({**a_request(**mine), "phone": PHONE}).encode()
    dead_letters.keep("intake", letter, f"cannot be read: {EMAIL}", headers={"x-from": EMAIL})
    dead_letters.keep("queue agent", gzip.compress(letter), "not JSON")
    incident = Incident.objects.create(kind="step_error", cause=f"mail to {EMAIL} refused", title="x")
    IncidentNote.objects.create(incident=incident, author="olga", text=f"wrote to {EMAIL}")
    SavedView.objects.create(owner=olga, of="orders", name="hers", query=f"email={EMAIL}")
    visitor = Client()
    visitor.force_login(zoe)
    session = Client().session
    session["sign_up"] = {"email": EMAIL}
    session.save()
    return {"own": own, "guest": guest, "refused": refused, "return": back}


def erase(person: people.Person, **how) -> Erasure:
    erasure = erasing.begin(person, by="olga", reason=f"{NAME} asked for it", **how)
    for _ in range(5):
        notifications.deliver_due()
        while erasing.work(erasure.pk, 60):
            pass
    erasure.refresh_from_db()
    return erasure


def test_no_byte_of_an_erased_person_is_left_but_the_documents(shop, zoe):
    lives = lived(shop, zoe)
    before = dict(Order.objects.values_list("public_id", "total"))
    found = hits()
    assert {"orders_order.email", "supervision_deadletter.body", "supervision_run.payload", "auth_user.username"} <= found.keys()

    erasure = erase(people.by_account(zoe.username))

    assert erasure.state == "done", (erasure.step, erasure.waits)
    assert hits().keys() <= KEPT, hits()
    assert not hits(["quagmire"])  # the customer's own words go whole
    assert not DeadLetter.objects.filter(blanked_at=None).exists()  # the compressed one, too
    assert list(in_files(conf.get().journal_dir)) == []
    assert dict(Order.objects.values_list("public_id", "total")) == before
    assert set(Order.objects.values_list("email", flat=True)) == {erasure.pseudonym}
    kept = ArchivedRun.objects.get(key=lives["own"])
    assert kept.run.payload["shipping_address"] == {**dict.fromkeys(ADDRESS, "[erased]"), "country": "IT"}
    assert [line["sku"] for line in kept.run.payload["lines"]] == ["MUG-BLUE", "TOTE-OCHRE"]
    assert Document.objects.filter(order_key=lives["own"]).exists()
    assert list(registry.violations()) == []


def test_the_reason_of_a_cancellation_before_the_order_was_taken_up_goes_whole(shop, zoe):
    key = place_order(a_request(email=EMAIL, shipping_address=ADDRESS), account=zoe, idempotency_key="mine").public_id
    cancel_order(key, by=Exempt(zoe), reason="a quagmire")
    shop.run()
    told(shop)

    erase(people.by_account(zoe.username))

    assert not hits(["quagmire"])


def test_an_address_that_was_never_confirmed_goes_with_its_account(shop):
    account = an_account("old", "customer")
    account.email, account.first_name, account.last_name = EMAIL, NAME, SURNAME
    account.set_password("a-new-one-of-many-words")
    account.save()  # its owner is told by mail
    assert hits()["supervision_notification.payload"] == 1

    erase(people.by_account("old"))

    assert not hits().keys() - KEPT


def test_the_counts_of_a_guests_orders_and_of_mails_go_too_and_old_ones_by_themselves(shop, zoe):
    fetch("DELETE FROM orders_requestcount")
    counted([f"guest:{EMAIL}", f"mail:{EMAIL}", "guest:another@example.com"], seconds=3600)
    counted(["mail:yesterday@example.com"], seconds=0)

    erase(people.by_account(zoe.username))
    expired.counts()

    assert [row[0] for row in fetch("SELECT bucket FROM orders_requestcount")] == ["guest:another@example.com"]


def test_each_place_where_a_person_was_found_is_declared(shop, zoe):
    lived(shop, zoe)
    testing.schedule()
    no_columns = {"orders_requestcount.bucket"}

    assert hits().keys() - no_columns <= held.personal()
    for moved in archive.batches(timedelta(0), keep_orders=True):
        assert moved is not None
    assert hits().keys() - no_columns <= held.personal()


def test_another_person_of_the_same_name_keeps_everything(shop, zoe):
    lived(shop, zoe)
    other = an_account("yann", "customer")
    theirs = place(other, email="yann@example.com", shipping_address=ADDRESS)
    to_zoe = place(other, email=EMAIL, shipping_address={**ADDRESS, "name": "Yann Quoxley"})
    shop.run()
    told(shop)
    for _moved in archive.batches(timedelta(0), keep_orders=True):
        pass

    erase(people.by_account(zoe.username))

    kept = order_view(theirs)
    assert (kept.email, kept.shipping_address["name"]) == ("yann@example.com", f"{NAME} {SURNAME}")
    named = order_view(to_zoe)
    assert named.email == "[erased]"
    assert named.shipping_address["name"] == "Yann Quoxley"
    assert not hits([EMAIL.lower()])


def test_an_order_that_has_not_ended_is_refused_or_waits(shop, zoe, services):
    mine = {"email": EMAIL, "shipping_address": ADDRESS}
    place(None, **mine)
    with pytest.raises(Refused, match="not ended: 1,"):
        erasing.begin(people.by_email(EMAIL), by="olga", reason="asked")
    assert not Erasure.objects.exists()

    erasure = erase(people.by_email(EMAIL), when_ended=True)
    assert (erasure.state, erasure.waits) == ("working", 1)
    assert erasing.progress(erasure).endswith(": 1")

    shop.run()
    told(shop)
    place(None, **mine)  # placed meanwhile: found, too
    erasing.turn()
    shop.run()
    told(shop)
    erasing.turn()
    erasure.refresh_from_db()
    assert erasure.state == "done"
    assert hits().keys() <= KEPT, hits()


def test_money_of_an_erased_order_is_given_back_and_no_mail_is_tried(shop, zoe):
    key = place(zoe, email=EMAIL, shipping_address=ADDRESS)
    shop.run()
    told(shop)
    erase(people.by_account(zoe.username))
    sent = len(mail.outbox)

    paid = refund(key, amount=Decimal("1.00"), reason="late", by=an_account("olga", "operator"), idempotency_key="late").public_id
    shop.run()

    telling = StepState.objects.get(run__key=paid, name="notify-refund")
    assert (telling.process_state, telling.failure_count) == ("Skipped", 1)
    assert telling.last_error == "The person was erased: there is no address to write to."
    assert len(mail.outbox) == sent


def test_a_closed_account_signs_in_no_more_and_is_told_once(shop, zoe, settings):
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    order(a_client(zoe), email=EMAIL)
    shop.run()
    told(shop)
    client, mail.outbox = a_client(zoe), []

    erasing.begin(people.by_account(zoe.username), by="olga", reason="asked")

    assert client.get("/api/v1/orders/").status_code == 401
    assert client.post("/api/v1/orders/", a_request()).status_code == 401
    erase(people.by_account(zoe.username))
    assert [(one.subject, one.to) for one in mail.outbox] == [("Your account is closed", [EMAIL])]
    zoe.refresh_from_db()
    assert (zoe.username, zoe.email, zoe.is_active, zoe.has_usable_password()) == (f"erased-{zoe.pk}", "", False, False)


def test_the_bytes_of_an_old_dead_letter_go_and_the_digest_stays(shop):
    kept = [dead_letters.keep("intake", f'{{"email": "{EMAIL}"}}'.encode(), "not an order") for _ in range(3)]
    settled, young, stands = (letter.pk for letter in kept)
    DeadLetter.objects.filter(pk=settled).update(created_at=LONG_AGO, resolved_at=LONG_AGO, resolution="discarded")
    DeadLetter.objects.filter(pk=young).update(created_at=LONG_AGO, resolved_at=Now(), resolution="discarded")
    DeadLetter.objects.filter(pk=stands).update(created_at=LONG_AGO)

    ending.blank_old()

    assert [bool(row.body) for row in DeadLetter.objects.order_by("pk")] == [False, True, True]
    blanked = DeadLetter.objects.get(pk=settled)
    assert blanked.digest == hashlib.sha256(bytes(kept[0].body)).hexdigest()
    assert not requeue.can_go_back(blanked)


def test_a_dead_letter_that_is_blanked_already_keeps_its_digest_and_loses_the_words_about_the_person(shop, zoe):
    body = b"bytes of an order"
    letter = dead_letters.keep("intake", body, "not an order")
    DeadLetter.objects.filter(pk=letter.pk).update(created_at=LONG_AGO, resolved_at=LONG_AGO, resolution=f"discarded: {EMAIL} telephoned")
    ending.blank_old()
    blanked_at = DeadLetter.objects.get().blanked_at

    erase(people.by_account(zoe.username))

    letter = DeadLetter.objects.get()
    assert (letter.digest, letter.blanked_at) == (hashlib.sha256(body).hexdigest(), blanked_at)
    assert EMAIL not in letter.resolution
    assert letter.resolution.endswith("telephoned")


def test_what_a_restore_brings_back_is_found_by_the_list(shop, zoe):
    place(zoe, email=EMAIL, shipping_address=ADDRESS)
    place(None, email="ada@example.com")
    shop.run()
    told(shop)
    erase(people.by_account(zoe.username))
    hashes = list(again.listed())
    assert again.found(hashes) == ([], [])

    place(None, email=EMAIL.upper(), shipping_address=ADDRESS)
    shop.run()
    assert again.found(hashes) == ([], [])  # a customer who has come back since

    Order.objects.filter(email=EMAIL.upper()).update(created_at=LONG_AGO)  # as in a copy from before the erasure
    assert [person.emails for person in again.found(hashes).persons] == [[EMAIL.lower()]]

    Order.objects.filter(email=EMAIL.upper()).update(created_at=Now())
    Erasure.objects.all().delete()  # a backup from before the erasure
    assert [person.emails for person in again.found(hashes).persons] == [[EMAIL.lower()]]


def test_many_orders_are_erased_in_bounded_batches(shop, zoe, monkeypatch):
    for _ in range(3):
        place(zoe, email=EMAIL, shipping_address=ADDRESS)
    shop.run()
    told(shop)
    monkeypatch.setattr(erasing, "BATCH", 1)
    seen = []
    monkeypatch.setattr(rows, "erase", lambda keys, *rest, real=rows.erase: seen.append(len(keys)) or real(keys, *rest))

    assert erase(people.by_account(zoe.username)).state == "done"

    assert seen == [1, 1, 1]
