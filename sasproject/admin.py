"""Accounts, groups and API tokens in the console's theme, instead of the packages' own pages."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from knox.models import AuthToken
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from orders.factors import console_admin
from orders.identity.tables import OPERATE, SCOPES
from supervision.console.bounded_lists import CountedAdmin, ReadOnlyAdmin

admin.autodiscover()  # the packages' own pages come first, also where this module is imported by itself
for model in (User, Group, AuthToken, *console_admin.UNSHOWN):
    if admin.site.is_registered(model):
        admin.site.unregister(model)


@admin.register(User)
class UserAdmin(DjangoUserAdmin, CountedAdmin):  # type: ignore[type-arg]
    """Accounts and their permissions."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ["username", "email", "is_staff", "second_factor", "is_active", "last_login"]
    list_filter = [*DjangoUserAdmin.list_filter, console_admin.FactorFilter]

    @transaction.atomic
    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> Any:
        """The page for a new password: it is saved in one commit with the mail to its owner."""
        return super().user_change_password(request, id, form_url)

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        """Each account with whether it has a second factor."""
        return console_admin.with_factors(super().get_queryset(request))

    @admin.display(description=_("second factor"), boolean=True, ordering="enrolled")
    def second_factor(self, account: User) -> bool:
        """Whether an authenticator app or a passkey is enrolled."""
        return bool(account.enrolled)  # type: ignore[attr-defined]  # `with_factors` adds it

    def has_delete_permission(self, request: HttpRequest, obj: User | None = None) -> bool:
        """Not an account that the operators' log names: the log is append-only. Such an account is made inactive instead."""
        return super().has_delete_permission(request, obj) and (obj is None or not LogEntry.objects.filter(user=obj).exists())


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):
    """The groups customer, client, operator and viewer. Migrations create them."""


@admin.register(AuthToken)
class TokenAdmin(ReadOnlyAdmin):
    """The API tokens of all accounts. An administrator revokes one by deleting it; a command or its owner makes it."""

    empty_means = _("No account has an API token.")
    list_display = ["token_key", "user", "purpose", "scope", "created", "expiry"]
    list_select_related = ["user", "grant"]
    search_fields = ["user__username", "user__email", "token_key"]
    fields = ["token_key", "user", "purpose", "scope", "created", "expiry"]

    @admin.display(description=_("name"))
    def purpose(self, token: AuthToken) -> str:
        """What the owner says that it is for."""
        return token.grant.name if hasattr(token, "grant") else ""

    @admin.display(description=_("scope"))
    def scope(self, token: AuthToken) -> str:
        """How much of the account's rights it carries."""
        return str(token.grant.get_scope_display() if hasattr(token, "grant") else SCOPES[OPERATE])

    def has_delete_permission(self, request: HttpRequest, obj: AuthToken | None = None) -> bool:
        """Whether this account may revoke tokens of others."""
        return request.user.has_perm("knox.delete_authtoken")
