"""What an administrator sees of second factors in the list of accounts."""

from __future__ import annotations

from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django.contrib import admin
from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, QuerySet
from django.utils.translation import gettext_lazy as _

# Tables that allauth would show: ours are seen in the list of accounts.
UNSHOWN = (EmailAddress, Authenticator, SocialAccount, SocialApp, SocialToken)


def with_factors(accounts: QuerySet[User]) -> QuerySet[User]:
    """These accounts, each with `enrolled`."""
    theirs = Authenticator.objects.filter(user_id=OuterRef("pk")).exclude(type=Authenticator.Type.RECOVERY_CODES)
    return accounts.annotate(enrolled=Exists(theirs))


class FactorFilter(admin.SimpleListFilter):
    """With or without a second factor."""

    title = _("second factor")
    parameter_name = "second_factor"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, Any]]:
        return [("1", _("Yes")), ("0", _("No"))]

    def queryset(self, request: Any, queryset: QuerySet[User]) -> QuerySet[User]:
        """The accounts that fit."""
        enrolled: dict[str, Any] = {"enrolled": self.value() == "1"}
        return queryset.filter(**enrolled) if self.value() in ("0", "1") else queryset
