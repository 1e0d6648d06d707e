"""The web role as its line of the Procfile starts it: requests share the connections of a pool."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import connection

ROOT = Path(__file__).resolve().parents[2]
# Nothing before the entry point reads the settings, as in gunicorn.
SERVE = """
import sasproject.asgi
from django.db import connection
connection.ensure_connection()
print(connection.settings_dict["OPTIONS"]["pool"]["max_size"], connection.connection.info.parameter_status("application_name"))
"""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("settings_named", [True, False])
def test_requests_of_the_web_role_share_connections(settings_named: bool) -> None:
    ours = urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{connection.settings_dict['NAME']}").geturl()
    env = {**os.environ, "DATABASE_URL": ours, "CELERY_BROKER_URL": "memory://", "SAS_ROLE": "web", "WEB_THREADS": "7"}
    env.pop("DATABASE_POOL", None)
    env.pop("DJANGO_SETTINGS_MODULE", None)
    if settings_named:
        env["DJANGO_SETTINGS_MODULE"] = "sasproject.settings"

    done = subprocess.run([sys.executable, "-c", SERVE], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "11 sas:web:requests", "WEB_THREADS and 4"
