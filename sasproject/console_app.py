"""Django's admin as this project installs it: its pages are imported by what shows or checks them, not by every process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks


class ConsoleConfig(SimpleAdminConfig):
    """The app `django.contrib.admin`. `sasproject.urls` imports its pages; a role of the engine does without them."""

    def ready(self) -> None:
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(check_pages, checks.Tags.admin)


def check_pages(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[checks.CheckMessage]:
    """Django's check of the admin's pages, of which it looks only at those that are imported."""
    admin.autodiscover()
    return check_admin_app(app_configs, **kwargs)
