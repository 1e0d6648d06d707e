"""T27: the owner of an account is mailed at the address of that moment when the owner or an administrator changed what signs it in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.contrib.auth.tokens import default_token_generator
from django.db import DatabaseError, connection
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlsafe_base64_encode

from orders.factors import passkeys, telling
from supervision.models import Notification
from supervision.outbox.notifications import deliver_due
from tests.factors.conftest import PASSWORD, code, sign_in

pytestmark = pytest.mark.django_db
NEW = "another password of hers"
OWN, ENROL = "/admin/second-factor/own/", "/admin/second-factor/enrol/"


def told() -> list[str]:
    """What the mails that wait tell of, oldest first."""
    return [row.payload["what"] for row in Notification.objects.filter(kind=telling.KIND).order_by("pk")]


@contextmanager
def no_mail_can_be_written() -> Iterator[None]:
    """The database refuses every row of the outbox, as one whose disk is full does."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE supervision_notification ADD CONSTRAINT full_disk CHECK (false) NOT VALID")
        yield
        cursor.execute("ALTER TABLE supervision_notification DROP CONSTRAINT full_disk")


def session_of(client) -> None:
    sign_in(client)
    client.post("/admin/second-factor/", {"code": code()})


def test_the_first_second_factor_is_one_mail_and_new_codes_are_another(client, ops) -> None:
    sign_in(client)
    shown = client.get(ENROL).context["secret"]
    client.post(ENROL, {"code": code(secret=shown)})
    assert told() == ["app-added"]

    assert client.post(OWN, {"new-codes": "1"}).status_code == 201

    assert told() == ["app-added", "codes-made"]


def test_a_second_factor_that_is_removed_is_told_of_with_the_removal_or_not_at_all(client, enrolled, settings, ops) -> None:
    settings.CONSOLE_SECOND_FACTOR = "optional"
    session_of(client)
    pk = Authenticator.objects.get(type="totp").pk
    Notification.objects.all().delete()

    with no_mail_can_be_written(), pytest.raises(DatabaseError):
        client.post(OWN, {"remove": pk})
    assert Authenticator.objects.filter(pk=pk).exists()
    client.post(OWN, {"remove": pk})

    assert told() == ["app-removed"]
    assert not Authenticator.objects.exists()


def test_a_passkey_is_told_of(ops, monkeypatch) -> None:
    for name in ("parse_registration_response", "complete_registration"):
        monkeypatch.setattr(passkeys.auth, name, lambda credential: None)
    monkeypatch.setattr(passkeys.auth.WebAuthn, "add", lambda account, name, credential: None)

    assert passkeys.enrol(ops, "{}", "key")

    assert told() == ["passkey-added"]


def test_a_reset_is_one_mail(enrolled, manage) -> None:
    Notification.objects.all().delete()

    manage("second_factor", "ops", "--reset", "--reason", "lost all")

    assert told() == ["reset"]


def test_a_new_password_is_told_of_and_a_better_hash_of_the_old_one_is_not(client, ops, settings) -> None:
    User.objects.filter(pk=ops.pk).update(password="pbkdf2_sha256$1$salt$" + "x" * 44)
    ops.refresh_from_db()
    ops.first_name = "Olga"
    ops.save()
    assert told() == []

    ops.set_password("another password of hers")
    ops.save()

    assert told() == ["password"]


def by_owner(client, account: User) -> object:
    client.force_login(account)
    return client.post(reverse("password_change"), {"old_password": PASSWORD, "new_password1": NEW, "new_password2": NEW})


def by_link(client, account: User) -> object:
    link = reverse(
        "password_reset_confirm", args=[urlsafe_base64_encode(str(account.pk).encode()), default_token_generator.make_token(account)]
    )
    page = client.get(link)
    return client.post(page.url, {"new_password1": NEW, "new_password2": NEW})


def by_administrator(client, account: User) -> object:
    root, _ = User.objects.get_or_create(username="root", is_staff=True, is_superuser=True)
    client.force_login(root)
    link = reverse("admin:auth_user_password_change", args=[account.pk])
    return client.post(link, {"password1": NEW, "password2": NEW, "usable_password": "true"})


@pytest.mark.parametrize("change", [by_owner, by_link, by_administrator])
def test_a_page_saves_a_new_password_with_the_mail_or_not_at_all(client, ops, settings, change) -> None:
    settings.CONSOLE_SECOND_FACTOR = "optional"
    with no_mail_can_be_written(), pytest.raises(DatabaseError):
        change(client, ops)
    ops.refresh_from_db()
    assert ops.check_password(PASSWORD)

    change(client, ops)

    ops.refresh_from_db()
    assert ops.check_password(NEW)
    assert told() == ["password"]


def test_the_mail_goes_to_the_address_of_that_moment_and_changes_nothing_itself(ops, settings, mailoutbox) -> None:
    settings.PUBLIC_URL = "https://shop.example"
    telling.tell(ops, telling.RESET)
    User.objects.filter(pk=ops.pk).update(email="thief@example.com")
    nameless = User.objects.create_user("nameless")
    telling.tell(nameless, telling.RESET)

    # They are written in this test's transaction, at the start of which they were not due yet.
    Notification.objects.update(not_before=timezone.now() - timedelta(minutes=1))
    deliver_due()

    [sent] = mailoutbox
    assert sent.to == ["ops@example.com"]
    assert "an administrator removed all second factors" in sent.body
    assert "at https://shop.example" in sent.body
    assert f"https://shop.example{reverse('password_reset')}" in sent.body
    assert PASSWORD not in sent.body
    assert Notification.objects.get().delivered_at is not None
