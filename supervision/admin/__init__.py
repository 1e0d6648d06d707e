"""The Django admin of the engine's tables. Importing this package registers all of them, where the console's theme is installed.

May import: console and the rooms below; and the definitions at the top of `supervision`.
Public: tables.
"""

from django.apps import apps
from django.conf import settings
from django.contrib import admin

from supervision.console import theme

if apps.is_installed("unfold"):  # the extra `console`
    from supervision.admin import tables  # noqa: F401

    # A project that names our dashboard in UNFOLD gets its page too, unless it has set another.
    if getattr(settings, "UNFOLD", {}).get("DASHBOARD_CALLBACK") == theme.DASHBOARD and admin.site.index_template is None:
        admin.site.index_template = "admin/supervision/dashboard.html"
