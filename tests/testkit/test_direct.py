"""A project behind a pooler, whose `DATABASES["direct"]` names the server itself: its tests leave its own database alone."""

from __future__ import annotations

import os
import subprocess
import sys

import psycopg
import pytest
from django.db import connection

from sasproject.roles import ROOT

SETTINGS = """
import os

SECRET_KEY, USE_TZ, CELERY_BROKER_URL, ROOT_URLCONF = "x", True, "memory://", "settings"
INSTALLED_APPS = ["django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django_celery_beat", "supervision"]
ENTRY = {"ENGINE": "django.db.backends.postgresql", **{name: os.environ["OWN_" + name] for name in ("NAME", "HOST", "PORT", "USER")}}
DATABASES = {"default": ENTRY, "direct": {**ENTRY}}
urlpatterns = []
"""
TESTS = """
from django.db import connection
from supervision.models import Run
from supervision.postgres import params

OWN = connection.settings_dict["NAME"]


def test_it(sas):
    assert connection.settings_dict["NAME"] == "test_" + OWN == params.of_own("tests")["dbname"]
    assert not Run.objects.exists()
    with params.own_session(), connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        assert cursor.fetchone() == ("test_" + OWN,)
"""


@pytest.fixture
def own(transactional_db):
    """The parameters of an empty database, which is the project's own."""
    server = {**connection.get_connection_params(), "dbname": "postgres"}
    kept = {name: server[name] for name in ("dbname", "host", "port", "user", "password") if server.get(name)}
    name = f"own_{os.getpid()}"
    with psycopg.connect(**kept, autocommit=True) as database:
        database.execute(f"CREATE DATABASE {name}")
        yield {**kept, "dbname": name}
        database.execute(f"DROP DATABASE {name} WITH (FORCE)")
        database.execute(f"DROP DATABASE IF EXISTS test_{name} WITH (FORCE)")


def test_the_tests_migrate_and_use_the_test_database(own, tmp_path):
    (tmp_path / "settings.py").write_text(SETTINGS)
    (tmp_path / "test_it.py").write_text(TESTS)
    ours = {"NAME": own["dbname"], "HOST": own.get("host", ""), "PORT": str(own.get("port", "")), "USER": own.get("user", "")}
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "DJANGO", "DATABASE"))}
    env |= {f"OWN_{name}": value for name, value in ours.items()} | {"PGPASSWORD": own.get("password", "")}
    env |= {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "DJANGO_SETTINGS_MODULE": "settings"}
    options = ["-p", "supervision.testkit.plugin", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", os.devnull]

    said = subprocess.run([sys.executable, "-m", "pytest", *options, "test_it.py"], cwd=tmp_path, env=env, capture_output=True, text=True)

    assert "1 passed" in said.stdout, said.stdout + said.stderr
    with psycopg.connect(**own) as database:
        assert database.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)
