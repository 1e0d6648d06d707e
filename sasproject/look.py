"""The console's names and colours, as its theme reads them from the settings."""

from __future__ import annotations

from typing import Any

from django.templatetags.static import static
from django.utils.translation import gettext_lazy as _

from supervision.console import theme

UNFOLD: dict[str, Any] = {
    **theme.UNFOLD,
    "SCRIPTS": [*theme.UNFOLD["SCRIPTS"], lambda request: static("orders/console-csp.js")],
    "STYLES": [*theme.UNFOLD["STYLES"], lambda request: static("orders/factors.css")],
    "ACCOUNT": {"navigation": "orders.factors.own_pages.account_links"},
    "LOGIN": {"form": "orders.identity.forms.ConsoleSignInForm"},
    "SITE_TITLE": _("Orders"),
    "SITE_HEADER": _("Order operations"),
    "SITE_SUBHEADER": _("Operator console"),
    "SITE_URL": "/",
    "SITE_SYMBOL": "conveyor_belt",
    "SHOW_HISTORY": True,
    "SHOW_VIEW_ON_SITE": False,
    "SHOW_LANGUAGES": True,
    "SITE_FAVICONS": [{"rel": "icon", "type": "image/svg+xml", "href": lambda request: static("orders/icon.svg")}],
    "SIDEBAR": {"show_search": False, "show_all_applications": False, "navigation": "orders.admin.navigation"},
    # The shop's deep teal. White text is shown on 600.
    "COLORS": {
        "primary": {
            "50": "#f0fdfa",
            "100": "#ccfbf1",
            "200": "#99f6e4",
            "300": "#5eead4",
            "400": "#2dd4bf",
            "500": "#14b8a6",
            "600": "#0f766e",
            "700": "#115e59",
            "800": "#134e4a",
            "900": "#123f3c",
            "950": "#042f2e",
        },
    },
}
