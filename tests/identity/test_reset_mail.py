"""The mail for a new password: queued for every address, sent by the outbox, with a link to the shop's public address."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from supervision.models import Notification
from tests.orders.test_accounts import deliver
from tests.shopping import PASSWORD

pytestmark = [pytest.mark.usefixtures("no_hints"), pytest.mark.django_db]
PAGE = "/accounts/password_reset/"


def test_the_link_leads_to_the_public_address_and_is_stored_nowhere(client, ada, mailoutbox, settings) -> None:
    settings.ALLOWED_HOSTS = ["*"]
    settings.PUBLIC_URL = "https://shop.example"
    client.post(PAGE, {"email": "ADA@example.com"}, headers={"host": "evil.example"})
    assert mailoutbox == []

    deliver()

    (mail,) = mailoutbox
    assert (mail.to, mail.subject) == (["ada@example.com"], "Password reset on shop.example")
    assert "evil.example" not in mail.body
    link = re.search(r"https://shop\.example(/accounts/reset/\S+)", mail.body).group(1)
    assert link.rstrip("/").rpartition("/")[2] not in str(list(Notification.objects.values()))
    form = client.get(link, follow=True).redirect_chain[-1][0]
    client.post(form, {"new_password1": "chosen-by-the-owner", "new_password2": "chosen-by-the-owner"})
    ada.refresh_from_db()
    assert ada.check_password("chosen-by-the-owner")


def test_the_answer_is_the_same_for_an_address_without_an_account(client, ada, mailoutbox) -> None:
    asked = []
    for address in ("ada@example.com", "new@example.com"):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            answer = client.post(PAGE, {"email": address})
        statements = [re.sub(r"'[^']*'|\d+", "", one["sql"]) for one in queries]
        asked.append((answer.status_code, answer.headers["Location"], statements))

    assert asked[0] == asked[1]
    deliver()
    assert [mail.to for mail in mailoutbox] == [["ada@example.com"]]
    assert not Notification.objects.filter(delivered_at=None).exists()


def test_a_mail_server_that_is_away_loses_no_mail(client, ada, mailoutbox, settings) -> None:
    working = settings.EMAIL_BACKEND
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1  # nothing listens there
    client.post(PAGE, {"email": "ada@example.com"})
    deliver()
    assert Notification.objects.get().last_error

    settings.EMAIL_BACKEND = working
    deliver()

    assert [mail.to for mail in mailoutbox] == [["ada@example.com"]]


def test_it_is_written_in_the_visitors_language_to_each_account_that_may_have_a_password(client, ada, mailoutbox) -> None:
    User.objects.create_user("twin", "ada@example.com", PASSWORD)
    User.objects.create_user("gone", "ada@example.com", PASSWORD, is_active=False)
    User.objects.create_user("provider", "ada@example.com")  # signs in by OpenID Connect alone
    client.post(PAGE, {"email": "ada@example.com"}, headers={"accept-language": "it"})

    deliver()

    assert len(mailoutbox) == 2
    assert all("Vai alla pagina seguente" in mail.body for mail in mailoutbox)
    assert len({mail.extra_headers["Message-ID"] for mail in mailoutbox}) == 2
