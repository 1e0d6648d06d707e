"""Codes: those of an authenticator app (TOTP, RFC 6238), and recovery codes, each of which is good for one sign-in."""

from __future__ import annotations

import base64
import logging
import re
from typing import Any

from allauth.mfa.adapter import get_adapter
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal import auth
from django.db import IntegrityError, transaction
from django.db.models.functions import Now
from django.http import HttpRequest

from orders.factors import telling, tries
from orders.factors.library import Unreadable
from orders.identity import security_log

log = logging.getLogger(__name__)


def is_right(account: Any, code: str) -> bool:
    """Whether this is a code of the account's app, or one of its recovery codes. It is used up then."""
    right = _use(account, code)
    if not right:
        security_log.note("wrong_code", account=account.pk)
    return right


def _use(account: Any, code: str) -> bool:
    code = re.sub(r"[\s-]", "", code)
    if not re.fullmatch(r"[0-9]{6,8}", code, re.ASCII):
        return False
    for one in Authenticator.objects.filter(user_id=account.pk).exclude(type=Authenticator.Type.WEBAUTHN).order_by("pk"):
        if _is_of(one, account, code):
            return bool(Authenticator.objects.filter(pk=one.pk).update(last_used_at=Now()))  # not if it was removed meanwhile
    return False


def _is_of(one: Authenticator, account: Any, code: str) -> bool:
    try:
        if one.type == Authenticator.Type.RECOVERY_CODES:
            return bool(RecoveryCodes(one).validate_code(code))
        secret = get_adapter().decrypt(one.data["secret"])
    except Authenticator.DoesNotExist:
        return False  # ended by another request at this moment
    except Unreadable as problem:
        log.warning("the %s of account %s: %s; see manage.py second_factor --help", one.type, account.pk, problem)
        return False
    return auth.validate_totp_code(secret, code) and tries.first_use(account, code)


def new_secret(*, again: bool) -> str:
    """The secret that this session's user is about to enrol. again: the one that the page showed."""
    return str(auth.get_totp_secret(regenerate=not again))


def picture(account: Any, secret: str) -> str:
    """The QR code that an authenticator app reads, as an address of an image."""
    svg = get_adapter().build_totp_svg(get_adapter().build_totp_url(account, secret))
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def enrol_app(request: HttpRequest, account: Any, secret: str, code: str) -> bool:
    """Enrol the authenticator app that shows this code; False if the code is wrong or the account has an app already."""
    code = re.sub(r"\s", "", code)
    if not auth.validate_totp_code(secret, code) or not tries.first_use(account, code):
        return False
    try:
        with transaction.atomic():
            auth.TOTP.activate(account, secret)
            telling.tell(account, telling.APP_ADDED)
    except IntegrityError:
        return False
    auth.clear_totp_secret(request)
    return True


def new_recovery_codes(account: Any) -> list[str]:
    """New recovery codes; those of before end."""
    with transaction.atomic():
        account.__class__.objects.select_for_update(no_key=True).get(pk=account.pk)
        if Authenticator.objects.filter(user_id=account.pk, type=Authenticator.Type.RECOVERY_CODES).delete()[0]:
            telling.tell(account, telling.CODES_MADE)  # those of the first second factor are part of its mail
        return list(RecoveryCodes.activate(account).generate_codes())


def left(account: Any) -> int:
    """How many recovery codes are not used yet."""
    kept = Authenticator.objects.filter(user_id=account.pk, type=Authenticator.Type.RECOVERY_CODES).first()
    try:
        return len(RecoveryCodes(kept).get_unused_codes()) if kept else 0
    except Unreadable:
        return 0
