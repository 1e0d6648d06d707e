"""What a sign-in rests on may end in another session while it is under way: it is refused then, as if it had ended before."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import connection, transaction
from django.test import Client

from orders.factors import codes, passkeys, proofs, tries
from tests.engine.kit import BLOCKED, fetch
from tests.factors.conftest import code, sign_in
from tests.support.shop import until

pytestmark = pytest.mark.django_db
ASK = "/admin/second-factor/"


@pytest.fixture(autouse=True)
def _required(settings: Any) -> None:
    settings.CONSOLE_SECOND_FACTOR = "required"


def ends(monkeypatch: Any, account: User) -> None:
    """The account has a passkey, which answers rightly and is removed in another session before its use is noted."""
    passkey = Authenticator.objects.create(user=account, type="webauthn", data={"name": "key", "credential": {}})

    def complete(_account: Any, _credential: Any) -> Authenticator:
        Authenticator.objects.filter(pk=passkey.pk).delete()
        return passkey

    monkeypatch.setattr(passkeys.auth, "extract_user_from_response", lambda said: account)
    monkeypatch.setattr(passkeys.auth, "parse_authentication_response", lambda said: None)
    monkeypatch.setattr(passkeys.auth, "complete_authentication", complete)
    monkeypatch.setattr(passkeys.auth, "get_credentials", lambda user: [])


def test_a_passkey_that_is_removed_meanwhile_signs_no_one_in(client, ops, monkeypatch) -> None:
    ends(monkeypatch, ops)

    answer = client.post("/admin/second-factor/passkey/", {"credential": "{}"})

    assert answer.status_code == 403
    assert "_auth_user_id" not in client.session


def test_a_passkey_that_is_removed_meanwhile_is_no_second_factor(client, ops, enrolled, monkeypatch) -> None:
    sign_in(client)
    ends(monkeypatch, ops)

    answer = client.post(ASK, {"credential": "{}"})

    assert answer.status_code == 400
    assert not client.session["proved"][1]


def test_an_app_that_is_removed_meanwhile_is_no_second_factor(client, ops, enrolled, monkeypatch) -> None:
    sign_in(client)
    first_use = tries.first_use

    def removed(*args: Any) -> bool:
        Authenticator.objects.filter(user=ops).delete()
        return first_use(*args)

    monkeypatch.setattr(tries, "first_use", removed)

    assert client.post(ASK, {"code": code()}).status_code == 400
    assert not client.session["proved"][1]


def test_recovery_codes_that_are_removed_meanwhile_stay_removed(client, ops, enrolled, monkeypatch) -> None:
    sign_in(client)
    validate = RecoveryCodes.validate_code

    def before(self: RecoveryCodes, given: str) -> bool:
        Authenticator.objects.filter(user=ops).delete()
        return validate(self, given)

    monkeypatch.setattr(RecoveryCodes, "validate_code", before)

    answer = client.post(ASK, {"code": enrolled[0]})

    assert (answer.status_code, client.session["proved"][1]) == (400, False)
    assert not Authenticator.objects.filter(user=ops).exists()


def test_a_session_that_is_ended_meanwhile_stays_ended(client, ops, enrolled, monkeypatch) -> None:
    sign_in(client)
    use = codes._use

    def ended(*args: Any) -> bool:
        Session.objects.all().delete()
        return use(*args)

    monkeypatch.setattr(codes, "_use", ended)

    answer = client.post(ASK, {"code": code()})

    assert answer.status_code == 400
    assert not Session.objects.exists()


@pytest.mark.parametrize("end", [User.delete, lambda account: User.objects.filter(pk=account.pk).update(is_active=False)])
def test_an_account_that_ends_meanwhile_is_not_signed_in_by_its_passkey(client, ops, monkeypatch, end) -> None:
    monkeypatch.setattr(passkeys, "owner", lambda said: ops)
    enters = proofs.enters_the_console

    def ended(account: Any) -> bool:
        answer = enters(account)
        end(User.objects.get(pk=ops.pk)) if User.objects.filter(pk=ops.pk, is_active=True) else None
        return answer

    monkeypatch.setattr(proofs, "enters_the_console", ended)

    assert client.post("/admin/second-factor/passkey/", {"credential": "{}"}).status_code == 403
    assert "_auth_user_id" not in client.session


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("rule", "left"), [("required", 1), ("off", 0)])
def test_two_sessions_that_remove_the_last_two_factors_at_once_remove_one_after_the_other(ops, enrolled, settings, rule, left) -> None:
    """Where the console requires one, one stays. Where it does not, the recovery codes go with the last one."""
    passkey = Authenticator.objects.create(user=ops, type="webauthn", data={"name": "key", "credential": {}})
    app = Authenticator.objects.get(user=ops, type="totp")
    clients = [Client(), Client()]
    for ahead, one in enumerate(clients):
        sign_in(one)
        one.post(ASK, {"code": code(ahead)})
    settings.CONSOLE_SECOND_FACTOR = rule

    with ThreadPoolExecutor(2) as threads:
        with transaction.atomic():
            list(Authenticator.objects.select_for_update().order_by("pk"))  # so that both have begun before one of them deletes
            removing = [threads.submit(_remove, *pair) for pair in zip(clients, (passkey.pk, app.pk), strict=True)]
            until(lambda: len(fetch(BLOCKED)) == 2, within=20, what="both sessions to wait")
        answers = [one.result(30) for one in removing]

    assert answers == [302, 302]
    factors = Authenticator.objects.exclude(type="recovery_codes")
    assert (factors.count(), Authenticator.objects.filter(type="recovery_codes").count()) == (left, left)


def _remove(client: Client, key: int) -> int:
    try:
        return client.post(f"{ASK}own/", {"remove": key}).status_code
    finally:
        connection.close()
