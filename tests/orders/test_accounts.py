"""Customers' accounts: opened by a link in a mail, signed in to by mail address, and mail addresses that are verified."""

from __future__ import annotations

import re
import time
from datetime import timedelta

import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from orders.accounts import opening
from orders.accounts.tables import VerifiedEmail
from supervision.models import Notification
from supervision.outbox.notifications import deliver_due
from tests.shopping import PASSWORD, an_account

pytestmark = [pytest.mark.usefixtures("no_hints"), pytest.mark.django_db]
NEW = {"email": "Cleo@example.com", "password": PASSWORD}


def deliver() -> None:
    """Send the mails. They are written in this transaction, at the start of which they were not due yet."""
    Notification.objects.update(not_before=timezone.now() - timedelta(minutes=1))
    deliver_due()


def the_link(mailoutbox: list, name: str = "signup") -> str:
    """The path of the link in the newest mail."""
    deliver()
    return re.search(rf"https?://[^/\s]+(/accounts/{name}/\S+)", mailoutbox[-1].body).group(1)


def signed_in_as(client: Client) -> str:
    return User.objects.get(pk=client.session["_auth_user_id"]).email if "_auth_user_id" in client.session else ""


def test_a_visitor_opens_an_account_and_keeps_the_cart(client, mug, mailoutbox) -> None:
    an_account("other", "customer")  # makes the groups
    client.post("/cart/MUG-BLUE/add/")
    sent = client.post("/accounts/signup/", {**NEW, "next": "/cart/"}, follow=True)
    assert "A mail is on its way to Cleo@example.com" in sent.text
    assert not User.objects.filter(email__iexact=NEW["email"]).exists()

    link = the_link(mailoutbox)
    assert "password" not in client.get(link).text.partition("<main")[2]  # it was chosen before; and a link that is opened does nothing
    assert signed_in_as(client) == ""
    answer = client.post(link)

    assert answer.headers["Location"] == "/cart/"
    assert "Blue mug" in client.get("/cart/").text
    account = User.objects.get(email=NEW["email"])
    assert set(account.groups.values_list("name", flat=True)) == {"customer"}
    assert account.check_password(PASSWORD)
    assert account.verified_email.address == "cleo@example.com"


def test_in_another_browser_the_links_reader_chooses_the_password(client, mailoutbox) -> None:
    Client().post("/accounts/signup/", {**NEW, "password": "a-strangers-password"})
    link = the_link(mailoutbox)

    assert client.post(link, {"password": "12345678"}).status_code == 400
    client.post(link, {"password": PASSWORD})

    account = User.objects.get(email=NEW["email"])
    assert account.check_password(PASSWORD)
    assert signed_in_as(client) == NEW["email"]


def test_a_link_opens_one_account_and_is_refused_when_it_was_changed_or_is_too_old(client, mailoutbox, settings, monkeypatch) -> None:
    client.post("/accounts/signup/", NEW)
    link = the_link(mailoutbox)

    assert "This link does not work" in client.get(link[:-3] + "x/").text
    client.post(link)
    client.post("/accounts/logout/")
    again = client.post(link, {"password": "another-password-too"}, follow=True)

    assert "You have an account with this address already" in again.text
    assert User.objects.filter(email__iexact=NEW["email"]).count() == 1
    later = time.time() + 90_000
    monkeypatch.setattr("django.core.signing.time.time", lambda: later)
    assert "This link does not work" in client.get(link).text


def test_the_same_link_at_the_same_moment_opens_one_account() -> None:
    first = opening.open_account("cleo@example.com", "!")
    second = opening.open_account("CLEO@example.com", "!")

    assert first is not None
    assert second is None


def test_signing_up_tells_no_more_about_an_address_that_has_an_account(client, ada, mailoutbox) -> None:
    pages = [client.post("/accounts/signup/", {**NEW, "email": address}, follow=True) for address in ("ADA@example.com", "new@example.com")]
    deliver()

    shown = [re.sub(r'value="[^"]*"', "", page.text.replace("ADA@", "new@")) for page in pages]
    assert shown[0] == shown[1]
    assert {mail.to[0]: mail.subject for mail in mailoutbox} == {
        "ADA@example.com": "You have an account already", "new@example.com": "Open your account"
    }  # fmt: skip
    assert "/accounts/password_reset/" in mailoutbox[0].body


def test_the_links_in_mails_are_stored_nowhere(client, mailoutbox) -> None:
    client.post("/accounts/signup/", NEW)
    token = the_link(mailoutbox).rstrip("/").rpartition("/")[2]

    assert token not in str(list(Notification.objects.values()))


def test_a_stranger_cannot_fill_a_mailbox(client, mailoutbox) -> None:
    answers = [client.post("/accounts/signup/", NEW, REMOTE_ADDR=f"10.0.0.{number}").status_code for number in range(7)]
    deliver()

    assert answers == [302] * 5 + [400] * 2
    assert len(mailoutbox) == 5


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"email": "x"}, "Enter a valid email address"),
        ({"password": "12345678"}, "too common"),
        ({"email": "correct-horse@example.com", "password": "correct-horse@example.com"}, "too similar"),
    ],
)
def test_what_is_wrong_with_a_sign_up_is_said_at_its_field(client, changes, problem) -> None:
    answer = client.post("/accounts/signup/", {**NEW, **changes})

    assert answer.status_code == 400
    assert problem in answer.text
    assert "aria-invalid" in answer.text
    assert not Notification.objects.exists()


@pytest.mark.parametrize("following", ["https://evil.example/", "//evil.example", "javascript:alert(1)", "/\\evil.example"])
def test_no_visitor_is_sent_to_another_site_when_signing_up_or_in(client, mailoutbox, following) -> None:
    client.post("/accounts/signup/", {**NEW, "next": following})
    up = client.post(the_link(mailoutbox))
    client.post("/accounts/logout/")
    back = client.post("/accounts/login/", {"username": NEW["email"], "password": PASSWORD, "next": following})

    assert (up.headers["Location"], back.headers["Location"]) == ("/", "/")


@pytest.mark.parametrize("said", ["ada", "ada@example.com", "ADA@Example.Com", " ada@example.com "])
def test_an_account_signs_in_by_mail_address_and_by_username(client, ada, said) -> None:
    client.post("/accounts/login/", {"username": said, "password": PASSWORD})

    assert signed_in_as(client) == "ada@example.com"


def test_an_address_of_several_accounts_signs_in_none_of_them_and_says_no_more_than_a_wrong_password(client, ada) -> None:
    twin = User.objects.create_user("ada2", "Ada@example.com", "the-twins-password")

    shared = client.post("/accounts/login/", {"username": "ada@example.com", "password": PASSWORD})
    unknown = client.post("/accounts/login/", {"username": "ada@example.com", "password": "wrong"})

    def words(answer) -> str:
        return re.sub(r'value="[^"]*"', "", answer.text)

    assert words(shared) == words(unknown)
    assert authenticate(username="ada", password=PASSWORD) == ada
    assert authenticate(username="ada2", password="the-twins-password") == twin


def test_the_verified_account_has_the_address_whoever_else_claims_it(ada) -> None:
    User.objects.create_user("mallory", "ada@example.com", "the-mallorys-password")
    assert opening.verify(ada.pk, "ada@example.com")

    assert authenticate(username="ada@example.com", password=PASSWORD) == ada
    assert authenticate(username="ada@example.com", password="the-mallorys-password") is None


def test_a_username_that_looks_like_anothers_address_takes_nothing_from_them(ada) -> None:
    mallory = User.objects.create_user("ada@example.com", "mallory@example.com", "the-mallorys-password")

    assert authenticate(username="ada@example.com", password=PASSWORD) == ada
    assert authenticate(username="ada@example.com", password="the-mallorys-password") == mallory


def test_an_inactive_account_does_not_sign_in(ada) -> None:
    User.objects.update(is_active=False)

    assert authenticate(username="ada@example.com", password=PASSWORD) is None


def test_the_time_of_a_refusal_does_not_tell_whether_there_is_an_account(ada, monkeypatch) -> None:
    hashed: list[str] = []
    encode = PBKDF2PasswordHasher.encode
    monkeypatch.setattr(
        PBKDF2PasswordHasher, "encode", lambda self, password, *args: hashed.append(password) or encode(self, password, *args)
    )

    counts = []
    for said in ("ada@example.com", "unknown@example.com", "ada", "no-such-name"):
        hashed.clear()
        assert authenticate(username=said, password="wrong") is None
        counts.append(len(hashed))

    assert counts[0] == counts[1]
    assert counts[2] == counts[3]


def test_an_address_is_looked_up_by_an_index() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        with CaptureQueriesContext(connection) as seen:
            authenticate(username="ada@example.com", password="x")
        [asked] = [one["sql"] for one in seen.captured_queries if "UPPER" in one["sql"]]
        cursor.execute("EXPLAIN " + asked)
        assert "account_email" in str(cursor.fetchall())


def test_an_old_account_confirms_its_address(client, ada, mailoutbox) -> None:
    client.force_login(ada)
    assert "not confirmed" in client.get("/accounts/").text

    client.post("/accounts/email/")
    link = the_link(mailoutbox, "email")
    assert client.get(link).status_code == 200
    assert not VerifiedEmail.objects.exists()  # programs that look into mails open links
    client.post(link)

    assert "not confirmed" not in client.get("/accounts/").text
    assert VerifiedEmail.objects.get().address == "ada@example.com"


def test_another_address_takes_the_password_and_counts_when_it_is_confirmed(client, ada, mailoutbox) -> None:
    client.force_login(ada)
    opening.verify(ada.pk, "ada@example.com")

    assert "This is not your password" in client.post("/accounts/email/", {"email": "new@example.com", "password": "wrong"}).text
    client.post("/accounts/email/", {"email": "new@example.com", "password": PASSWORD})
    ada.refresh_from_db()
    assert ada.email == "ada@example.com"
    client.post(the_link(mailoutbox, "email"))

    ada.refresh_from_db()
    assert mailoutbox[-1].to == ["new@example.com"]
    assert (ada.email, ada.verified_email.address) == ("new@example.com", "new@example.com")
    assert authenticate(username="new@example.com", password=PASSWORD) == ada


def test_a_link_verifies_nothing_for_another_account(client, ada, bob, mailoutbox) -> None:
    """A stranger who claims Ada's address cannot make her confirm the stranger's account."""
    stranger = Client()
    bob.email = "ada@example.com"
    bob.save()
    stranger.force_login(bob)
    stranger.post("/accounts/email/")
    link = the_link(mailoutbox, "email")

    assert client.post(link).headers["Location"].startswith("/accounts/login/")
    client.force_login(ada)
    assert client.post(link).status_code == 400
    assert not VerifiedEmail.objects.exists()


def test_an_address_is_verified_for_one_account(client, ada, bob, mailoutbox) -> None:
    opening.verify(ada.pk, "ada@example.com")
    client.force_login(bob)
    client.post("/accounts/email/", {"email": "Ada@example.com", "password": PASSWORD})

    answer = client.post(the_link(mailoutbox, "email"), follow=True)

    bob.refresh_from_db()
    assert "This address belongs to another account" in answer.text
    assert bob.email == "bob@example.com"
    assert VerifiedEmail.objects.get().account == ada
