"""Ends an account's second factors and its sessions, for an operator who has lost them all."""

from __future__ import annotations

from typing import NamedTuple

from allauth.mfa.models import Authenticator
from django.contrib.auth import SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models.functions import Now

from orders.factors import telling
from supervision.operations.audit_log import log

AT_A_TIME = 2000


class Done(NamedTuple):
    """How many were ended."""

    factors: int
    sessions: int


def reset(account: User, *, by: str, reason: str) -> Done:
    """Delete the account's second factors with its recovery codes, and end its sessions. The admin's log of the account keeps why.

    A session is a text that only its reader understands, so all sessions are read: a million take about a minute.
    """
    with transaction.atomic():
        mine = Authenticator.objects.filter(user_id=account.pk)
        factors = mine.exclude(type=Authenticator.Type.RECOVERY_CODES).count()
        mine.delete()
        log(account, account, f"second factors reset by {by}: {reason}"[:2000])
        telling.tell(account, telling.RESET)
    return Done(factors, _end_sessions(account))


def _end_sessions(account: User) -> int:
    live = Session.objects.filter(expire_date__gt=Now())
    keys = [
        session.session_key for session in live.iterator(chunk_size=AT_A_TIME) if session.get_decoded().get(SESSION_KEY) == str(account.pk)
    ]
    return int(Session.objects.filter(session_key__in=keys).delete()[0])
