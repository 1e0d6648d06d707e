"""The API's permissions. Groups decide who may place orders; Django permissions decide who may see and steer others' orders."""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

OPERATE = "supervision.operate"
SEE_ALL = "supervision.view_run"
BUYERS = frozenset({"customer", "client"})


def groups_of(user: Any) -> frozenset[str]:
    """The names of the account's groups: one query per request."""
    known: frozenset[str] | None = getattr(user, "_group_names", None)
    if known is None:
        known = user._group_names = frozenset(user.groups.values_list("name", flat=True))
    return known


def operates(user: Any) -> bool:
    """Whether the account may act on orders of other accounts."""
    return bool(user.has_perm(OPERATE))


def sees_all(user: Any) -> bool:
    """Whether the account may see the orders of all accounts."""
    return bool(user.has_perm(SEE_ALL) or user.has_perm(OPERATE))


def is_client(user: Any) -> bool:
    """Whether the account is a shop's own server."""
    return bool(user.is_superuser or "client" in groups_of(user))


class SignedIn(BasePermission):
    """Any account."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return bool(request.user and request.user.is_authenticated)


class ReadOrBuy(SignedIn):
    """Any account may read; customers and clients may place orders."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if not super().has_permission(request, view):
            return False
        return request.method != "POST" or request.user.is_superuser or bool(groups_of(request.user) & BUYERS)


class Clients(SignedIn):
    """A shop's own server."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if not super().has_permission(request, view):
            return False
        return is_client(request.user)


class Operators(SignedIn):
    """Accounts that may act on orders of other accounts."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return super().has_permission(request, view) and operates(request.user)


class Watchers(SignedIn):
    """Operators and viewers may read; only operators may act."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if not super().has_permission(request, view):
            return False
        return sees_all(request.user) if request.method in ("GET", "HEAD") else operates(request.user)


class Senders(Clients):
    """A shop's own server sees its own deliveries. Operators and viewers see all; only operators act on those of others."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if super().has_permission(request, view):
            return True
        if not SignedIn.has_permission(self, request, view):
            return False
        return sees_all(request.user) if request.method in ("GET", "HEAD") else operates(request.user)
