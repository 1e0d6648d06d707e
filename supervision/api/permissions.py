"""The API's permissions: Django's permissions decide who may see and steer all orders; the directory decides who is a client."""

from __future__ import annotations

from typing import Any, cast

from django.contrib.auth.models import AbstractBaseUser
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from supervision.approvals import rights
from supervision.insight import directory

OPERATE = "supervision.operate"
SEE_ALL = "supervision.view_run"


def operates(user: Any) -> bool:
    """Whether the account may act on orders of other accounts."""
    return bool(user.has_perm(OPERATE))


def sees_all(user: Any) -> bool:
    """Whether the account may see the orders of all accounts."""
    return bool(user.has_perm(SEE_ALL) or user.has_perm(OPERATE))


class SignedIn(BasePermission):
    """Any account."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return bool(request.user and request.user.is_authenticated)


class Clients(SignedIn):
    """An application's own server, which may have webhooks and reply queues."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return super().has_permission(request, view) and directory.current().client_of(cast(AbstractBaseUser, request.user)) is not None


class Operators(SignedIn):
    """Accounts that may act on orders of other accounts: in all ways, or by the view's `verb`."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return super().has_permission(request, view) and rights.may(request.user, getattr(view, "verb", ""))


class Watchers(SignedIn):
    """Operators and viewers may read; only operators may act."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if not super().has_permission(request, view):
            return False
        return sees_all(request.user) if request.method in ("GET", "HEAD") else rights.may(request.user, getattr(view, "verb", ""))


class AnyOperators(SignedIn):
    """Operators and viewers may read; accounts that have the right to any verb may act. The verb's own right is asked for where it acts."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if not super().has_permission(request, view):
            return False
        return sees_all(request.user) if request.method in ("GET", "HEAD") else rights.is_operator(request.user)


class Senders(Watchers):
    """A client has to do with its own orders and deliveries. Operators and viewers see all; only operators act on those of others."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return Clients().has_permission(request, view) or super().has_permission(request, view)
