"""What is good for one use, used by two at the same moment: a link for a new password, a code of the app, a recovery code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal import auth
from django.contrib.auth.models import User
from django.contrib.auth.tokens import PasswordResetTokenGenerator, default_token_generator
from django.test import Client
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from orders.factors import codes, resetting
from supervision.models import Notification
from supervision.testing import at_once
from tests.factors.conftest import SECRET, code

pytestmark = pytest.mark.django_db(transaction=True)
PASSWORDS = ["the-first-new-words", "the-second-new-words"]


def link_for(account: User) -> str:
    return f"/accounts/reset/{urlsafe_base64_encode(force_bytes(account.pk))}/{default_token_generator.make_token(account)}/"


def form(client: Client, address: str, password: str) -> Any:
    return client.post(address, {"new_password1": password, "new_password2": password})


def test_a_link_for_a_new_password_sets_one_although_two_readers_send_their_forms_together(monkeypatch):
    """The second form is answered after the first one's link was found good, and before its password is saved."""
    ada = User.objects.create_user("ada", "ada@example.com", "the-password-before")
    readers = [Client(), Client()]
    pages = [reader.get(link_for(ada))["Location"] for reader in readers]
    answers: list[Any] = []
    real = PasswordResetTokenGenerator.check_token

    def looked_at(self: Any, account: User, token: str) -> bool:
        good = real(self, account, token)
        monkeypatch.setattr(PasswordResetTokenGenerator, "check_token", real)
        answers.append(form(readers[1], pages[1], PASSWORDS[1]))
        return good

    monkeypatch.setattr(PasswordResetTokenGenerator, "check_token", looked_at)
    answers.append(form(readers[0], pages[0], PASSWORDS[0]))

    ada.refresh_from_db()
    assert [answer.status_code for answer in answers] == [302, 200]
    assert [ada.check_password(each) for each in PASSWORDS] == [False, True]
    assert "This link was used before" in answers[1].content.decode()
    assert Notification.objects.filter(kind="sign-in-changed").count() == 1


@pytest.fixture
def ops() -> User:
    account = User.objects.create_user("ops", "ops@example.com", "the-password-before", is_staff=True)
    auth.TOTP.activate(account, SECRET)
    return account


def test_a_code_is_good_once_although_four_send_it_together(ops):
    recovery = codes.new_recovery_codes(ops)[0]

    right: list[bool] = []
    for one in (code(), recovery):
        at_once(*[lambda one=one: right.append(codes.is_right(ops, one))] * 4)

    assert (sum(right[:4]), sum(right)) == (1, 2)
    assert codes.left(ops) == 9


@pytest.mark.parametrize("ended", [resetting.reset, codes.new_recovery_codes])
def test_a_recovery_code_that_is_ended_while_it_is_looked_at_is_no_right_code(ops, monkeypatch, ended: Callable[..., Any]):
    recovery = codes.new_recovery_codes(ops)[0]
    real = codes.RecoveryCodes.validate_code

    def ended_before(self: Any, said: str) -> bool:
        more = {"by": "root", "reason": "lost"} if ended is resetting.reset else {}
        ended(ops, **more)
        return bool(real(self, said))

    monkeypatch.setattr(codes.RecoveryCodes, "validate_code", ended_before)

    assert codes.is_right(ops, recovery) is False

    kinds = set(Authenticator.objects.values_list("type", flat=True))
    assert kinds == (set() if ended is resetting.reset else {"totp", "recovery_codes"})
