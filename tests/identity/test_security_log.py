"""The logger `security`, and how a line of the log looks: what happened, to which account, and nothing that a visitor typed."""

from __future__ import annotations

import logging
import re

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.test import Client

from orders.factors import codes, proofs
from orders.identity import security_log, tokens
from sasproject import logs
from tests.shopping import PASSWORD

pytestmark = pytest.mark.django_db


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, logger="security")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "security"]


def test_sign_ins_failures_and_refusals_are_lines_with_numbers_and_no_names(client, ada, lines):
    for password in ("guess-of-a-stranger", PASSWORD):
        client.post("/accounts/login/", {"username": "ada", "password": password})
    client.post("/accounts/logout/")
    for _ in range(10):
        client.post("/accounts/login/", {"username": "ghost\nevent=signed_in account=1", "password": "x"})

    said = lines()
    assert said[:3] == [
        "event=wrong_password account=- address=127.0.0.1",
        f"event=signed_in account={ada.pk} address=127.0.0.1 by=ModelBackend",
        f"event=signed_out account={ada.pk} address=127.0.0.1",
    ]
    assert said[-2:] == [
        "event=sign_in_refused account=- address=127.0.0.1",
        "event=denied account=- address=127.0.0.1 status=429 method=POST route=/accounts/login/",
    ]
    assert not re.search(r"ada|ghost|guess|\n", "".join(said))


def test_a_wrong_password_of_an_account_that_is_signed_in_is_a_line(client, ada, lines):
    client.force_login(ada, "django.contrib.auth.backends.ModelBackend")

    for password in ("a-guess", PASSWORD):
        client.post("/accounts/email/", {"email": "new@example.com", "password": password})

    assert [line for line in lines() if "password" in line] == [f"event=wrong_password account={ada.pk} address=127.0.0.1"]


def test_tokens_passwords_and_accounts_leave_a_line(lines):
    grace = User.objects.create_user("grace", password=None)
    tokens.issue(grace, name="till", scope="read", days=1)
    tokens.revoke(grace, tokens.of(grace)[0].token_key)
    tokens.issue(grace, name="till", scope="read", days=1)
    grace.set_password("another-horse-battery")
    grace.save()

    events = ["account_made", "token_made", "token_ended", "token_made", "token_ended", "password_changed"]
    assert sorted(lines()) == sorted(f"event={event} account={grace.pk} address=-" for event in events)


def test_second_factors_leave_a_line(ada, lines, rf):
    one = Authenticator.objects.create(user=ada, type=Authenticator.Type.TOTP, data={"secret": "kept"})
    request = rf.get("/")
    request.session = SessionStore()
    proofs.prove(request, ada, second=True)
    codes.is_right(ada, "no-such-code")
    one.delete()

    assert lines() == [
        f"event=second_factor_made account={ada.pk} address=- kind=totp",
        f"event=proved account={ada.pk} address=127.0.0.1 second_factor=yes",
        f"event=wrong_code account={ada.pk} address=-",
        f"event=second_factor_removed account={ada.pk} address=- kind=totp",
    ]


def test_what_is_denied_is_a_line(client, ada, lines):
    client.force_login(ada)
    client.get("/orders/unknown/")
    Client(enforce_csrf_checks=True).post("/orders/AAAAAAAAAAAAAAAAAAAAAA/cancel/", {"reason": "forged"})
    Client(headers={"Authorization": "Token wrong"}).get("/api/v1/orders/")

    assert [line for line in lines() if "denied" in line] == [
        "event=denied account=- address=127.0.0.1 status=403 method=POST route=/orders/<slug:public_id>/cancel/",
        "event=denied account=- address=127.0.0.1 status=401 method=GET route=/api/v1/orders/",
    ]


def test_an_address_that_a_proxy_passes_on_forges_nothing(settings, lines, rf):
    settings.TRUST_PROXY = True

    security_log.note("denied", request=rf.get("/", headers={"X-Forwarded-For": "1.2.3.4 event=signed_in"}))

    assert lines() == ["event=denied account=- address=1.2.3.4?event?signed?in"]


def test_what_strangers_write_makes_no_line_of_the_log():
    reason = "late\n2026-01-01T00:00:00Z INFO shop: paid\x1b[2J\u2028"
    record = logging.LogRecord("shop", logging.INFO, "", 0, "reason: %s", (reason,), None)

    line = logs.Line(logs.FORMAT, logs.DATE_FORMAT).format(record)

    assert line.splitlines() == [line]
    assert line.endswith(r"reason: late\n2026-01-01T00:00:00Z INFO shop: paid\x1b[2J\u2028")


def test_each_line_of_a_log_has_the_time_in_utc(settings):
    record = logging.LogRecord("shop", logging.INFO, "", 0, "begins", (), None)
    record.created, record.msecs = 1_767_225_600.25, 250.0

    made = settings.LOGGING["formatters"]["line"]
    line = logs.Line(made["format"], made["datefmt"]).format(record)

    assert made["()"] == "sasproject.logs.Line"
    assert line == "2026-01-01T00:00:00.250Z INFO shop: begins"
