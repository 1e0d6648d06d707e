"""The WSGI entry point: what its processes have counted is told, as that of all others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from supervision.models import Metric

ROOT = Path(__file__).resolve().parents[2]
# Answers one request and ends.
ANSWER = """
import sys
from django.conf import settings
settings.DATABASES["default"]["NAME"] = sys.argv[1]
import sasproject.wsgi
from django.test import Client
from supervision.runtime.identity import me
print(me(), Client(SERVER_NAME="localhost").get("/nothing/").status_code)
"""


@pytest.mark.django_db(transaction=True)
def test_what_a_web_process_without_asgi_has_counted_is_told() -> None:
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "sasproject.settings", "CELERY_BROKER_URL": "memory://", "SAS_ROLE": ""}
    name = connection.settings_dict["NAME"]

    done = subprocess.run([sys.executable, "-c", ANSWER, name], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"web@\S+ 404\n", done.stdout), done.stdout
    assert Metric.objects.filter(name="sas_http_request_seconds", labels='["GET", "unmatched", "4xx"]').count() == 1
