"""Who may place orders: accounts in a group of buyers. The engine's permissions decide who may see and steer others' orders."""

from __future__ import annotations

from typing import Any

from rest_framework.request import Request

from supervision.api.permissions import SignedIn

BUYERS = frozenset({"customer", "client"})


def groups_of(user: Any) -> frozenset[str]:
    """The names of the account's groups: one query per request."""
    known: frozenset[str] | None = getattr(user, "_group_names", None)
    if known is None:
        known = user._group_names = frozenset(user.groups.values_list("name", flat=True))
    return known


def is_client(user: Any) -> bool:
    """Whether the account is a shop's own server."""
    return bool(user.is_superuser or "client" in groups_of(user))


class ReadOrBuy(SignedIn):
    """Any account may read; customers and clients may place orders."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if not super().has_permission(request, view):
            return False
        return request.method != "POST" or request.user.is_superuser or bool(groups_of(request.user) & BUYERS)
