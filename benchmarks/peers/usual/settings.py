"""Settings of the usual Django + Celery program. Connections are kept (see `tasks`)."""

from __future__ import annotations

import os

SECRET_KEY = "measured, not deployed"  # noqa: S105
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = ["benchmarks.peers.usual.apps.Usual"]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ["PGDATABASE"],
        "HOST": os.environ["PGHOST"],
        "PORT": os.environ["PGPORT"],
        "USER": os.environ["PGUSER"],
        "PASSWORD": os.environ.get("PGPASSWORD", ""),
        "CONN_MAX_AGE": None,
    }
}
