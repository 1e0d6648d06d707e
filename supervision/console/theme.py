"""What the console needs of its theme, django-unfold: a project writes `UNFOLD = theme.UNFOLD`, or adds its own keys to it.

Free of the ORM, because a project's settings import it.
"""

from __future__ import annotations

from typing import Any

from django.templatetags.static import static

DASHBOARD = "supervision.console.dashboard.dashboard"  # `supervision.admin` chooses its page
UNFOLD: dict[str, Any] = {
    "DASHBOARD_CALLBACK": DASHBOARD,
    "STYLES": [lambda request: static("supervision/console.css")],
    "SCRIPTS": [lambda request: static("supervision/console.js"), lambda request: static("supervision/lists.js")],
}
