"""Accounts and groups in the console's theme, instead of Django's own pages. Tokens have no page: a command creates them."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from knox.models import AuthToken
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

for model in (User, Group, AuthToken):
    if admin.site.is_registered(model):
        admin.site.unregister(model)


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ModelAdmin):  # type: ignore[type-arg]
    """Accounts and their permissions."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ["username", "email", "is_staff", "is_active", "last_login"]


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, ModelAdmin):
    """The groups customer, client, operator and viewer. Migrations create them."""
