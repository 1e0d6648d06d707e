"""API tokens: issued with a name, a scope and an end, listed and revoked by their owner, ended by a new password.

The database keeps a token's hash. The token itself is shown once, where it is issued.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models.functions import Now
from django.db.models.signals import post_save
from django.dispatch import receiver
from django.utils.translation import gettext_lazy as _
from knox.models import AuthToken
from rest_framework.exceptions import PermissionDenied
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request

from orders.identity.tables import OPERATE, ORDERS, READ, SCOPES, TokenGrant

MOST_DAYS = 366
MOST_TOKENS = 20


class ReadOnlyToken(PermissionDenied):
    """The token's scope is `read`, and the request would change something."""

    default_code = "token_reads_only"
    default_detail = _("This token may only read. Make one with another scope.")


def scopes_for(account: User) -> Mapping[str, Any]:
    """The scopes that an account may choose: only those who enter the console have verbs to give away."""
    return SCOPES if account.is_staff else {scope: words for scope, words in SCOPES.items() if scope != OPERATE}


def issue(account: User, *, name: str, scope: str, days: int | None) -> str:
    """A new token of this account. days: until it expires; None: it does not. The account's expired tokens are deleted.

    Raises ValueError for an unknown scope.
    """
    if scope not in SCOPES:
        raise ValueError(f"scope must be one of {', '.join(SCOPES)}, not {scope!r}")
    with transaction.atomic():
        AuthToken.objects.filter(user=account, expiry__lte=Now()).delete()
        kept, token = AuthToken.objects.create(account, expiry=timedelta(days=days) if days else None)
        TokenGrant.objects.create(token=kept, name=name, scope=scope)
    return str(token)


def of(account: User) -> list[AuthToken]:
    """The account's tokens, newest first, those that have expired included."""
    return list(AuthToken.objects.filter(user=account).select_related("grant").order_by("-created"))


def has_many(account: User) -> bool:
    """Whether the account has so many tokens that it may make no more. Expired ones do not count."""
    live: int = AuthToken.objects.filter(user=account).exclude(expiry__lte=Now()).count()
    return live >= MOST_TOKENS


def revoke(account: User, key: str) -> bool:
    """End the account's token of this key, the first characters of it; False if there is none."""
    return bool(AuthToken.objects.filter(user=account, token_key=key).delete()[0])


def restrict(request: Request, account: Any, scope: str | None) -> None:
    """Take from the account, for this request, what its token's scope does not carry. Raises ReadOnlyToken.

    Every door asks the account itself for its rights (`has_perm`), so none can be forgotten. scope: None for a token that was
    issued before there were scopes.
    """
    if scope == READ and request.method not in SAFE_METHODS:
        raise ReadOnlyToken
    if scope in (READ, ORDERS):
        has_perm, all_permissions = account.has_perm, account.get_all_permissions
        account.has_perm = lambda perm, obj=None: _reads(perm) and has_perm(perm, obj)
        account.get_all_permissions = lambda obj=None: {perm for perm in all_permissions(obj) if _reads(perm)}


def _reads(permission: str) -> bool:
    return permission.partition(".")[2].startswith("view_")


@receiver(post_save, sender=User, dispatch_uid="orders.identity.tokens")
def _end_with_the_password(instance: User, created: bool, **kwargs: Any) -> None:
    """A new password ends every token. Django stores an old password under a better hash by itself; that is no new password."""
    if not created and getattr(instance, "_password", None) is not None:
        AuthToken.objects.filter(user=instance).delete()
