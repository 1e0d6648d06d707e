"""The settings, read in a new process for each test: from an environment to values or to one error line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked

ROOT = Path(__file__).resolve().parents[2]
READ = """
import json, sys
from django.conf import settings
print(json.dumps({name: getattr(settings, name) for name in sys.argv[1].split()}, default=str))
"""


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    basic = {"PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": "sasproject.settings"}
    command = [sys.executable, *arguments]
    return forked.run(command, cwd=ROOT, env={**basic, **environment}, timeout=60)


def read(names: str, **environment: str) -> dict[str, Any]:
    done = run("-c", READ, names, **environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("key", ["", "  ", "django-insecure-abc", "demo-only-secret-key-that-DEBUG-alone-permits"])
def test_the_project_does_not_start_without_a_real_key_when_debug_is_off(key):
    done = run("manage.py", "check", SECRET_KEY=key, DEBUG="0")

    assert done.returncode != 0
    assert "SECRET_KEY" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_debug_alone_permits_the_demo_values():
    values = read("SECRET_KEY SECURE_SSL_REDIRECT SESSION_COOKIE_SECURE", DEBUG="1")

    assert values["SECRET_KEY"].startswith("demo-only")
    assert values["SECURE_SSL_REDIRECT"] is False
    assert values["SESSION_COOKIE_SECURE"] is False


def test_production_redirects_to_https_except_the_probes():
    on = "SECURE_SSL_REDIRECT SECURE_HSTS_INCLUDE_SUBDOMAINS SESSION_COOKIE_SECURE CSRF_COOKIE_SECURE"
    values = read(f"{on} SECURE_HSTS_SECONDS SECURE_REDIRECT_EXEMPT", SECRET_KEY="a-real-one")

    assert [values[name] for name in on.split()] == [True] * 4
    assert values["SECURE_HSTS_SECONDS"] == 31_536_000
    assert len(values["SECURE_REDIRECT_EXEMPT"]) == 3


def test_cookies_belong_to_this_host_alone_under_https():
    code = """
import json, django
django.setup()
from django.conf import settings
from orders.identity import devices
from sasproject.cookies import HostCookies
kinds = ("SESSION", "CSRF", "LANGUAGE")
names = [getattr(settings, f"{kind}_COOKIE_NAME") for kind in kinds] + [devices.COOKIE, HostCookies.cookie_name]
rules = [[getattr(settings, f"{kind}_COOKIE_{rule}") for rule in ("SECURE", "HTTPONLY", "SAMESITE", "PATH", "DOMAIN")] for kind in kinds]
print(json.dumps([names, rules, settings.MESSAGE_STORAGE]))
"""
    (names, rules, storage), (plain, _rules, _storage) = (
        json.loads(run("-c", code, SECRET_KEY="a-real-one", **debug).stdout) for debug in ({}, {"DEBUG": "1"})
    )

    assert names == [f"__Host-{name}" for name in plain]
    assert plain == ["sessionid", "csrftoken", "language", "known-browser", "messages"]
    assert rules == [[True, True, "Lax", "/", None]] * 3
    assert storage == "sasproject.cookies.Messages"


def test_passwords_are_hashed_as_slowly_as_django_does():
    code = "from django.contrib.auth.hashers import get_hasher; h = get_hasher(); print(h.algorithm, h.iterations)"
    algorithm, rounds = run("-c", code, SECRET_KEY="a-real-one").stdout.split()

    assert algorithm == "pbkdf2_sha256"
    assert int(rounds) >= 600_000


def test_what_an_old_secret_key_signed_holds_until_it_is_taken_away():
    sign = "from django.core import signing; print(signing.dumps('said', salt='t'))"
    signed = run("-c", sign, SECRET_KEY="the-old-one").stdout.strip()
    look = f"from django.core import signing; print(signing.loads({signed!r}, salt='t'))"

    assert run("-c", look, SECRET_KEY="the-new-one", SECRET_KEY_FALLBACKS="older, the-old-one").stdout.strip() == "said"
    assert "BadSignature" in run("-c", look, SECRET_KEY="the-new-one").stderr


def test_a_proxy_is_believed_only_when_told_so():
    believing = read("SECURE_PROXY_SSL_HEADER", SECRET_KEY="a-real-one", TRUST_PROXY="1")
    doubting = read("SECURE_PROXY_SSL_HEADER", SECRET_KEY="a-real-one")

    assert believing["SECURE_PROXY_SSL_HEADER"] == ["HTTP_X_FORWARDED_PROTO", "https"]
    assert doubting["SECURE_PROXY_SSL_HEADER"] is None


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("DEBUG", "perhaps"),
        ("PORT", "http"),
        ("DATABASE_URL", "mysql://root@db/shop"),
        ("DATABASE_URL", "postgres://user@host:port/shop"),
        ("DATABASE_URL", "postgres://user@host"),
        ("CELERY_BROKER_URL", "sqs://"),
        ("EMAIL_URL", "mail.example.com:25"),
        ("SUPERVISION_SWEEP_SECONDS", "often"),
        ("SUPERVISION_SWEEP_SECONDS", "-1"),
        ("OPERATOR_IDLE_SECONDS", "nan"),
        ("SUPERVISION_LONG_WAIT", "inf"),
        ("SUPERVISION_FAILURE_THRESHOLD", "0"),
        ("SUPERVISION_ON_EXHAUSTED", "explode"),
        ("SUPERVISION_ON_PERMANENT", "wait"),
        ("CONSOLE_SECOND_FACTOR", "sometimes"),
        ("REAUTHENTICATE_SECONDS", "never"),
        ("OIDC_GROUPS", "desk=customer"),
        ("OIDC_ISSUER", "http://login.example.com"),
        ("OIDC_TRUSTS_MFA", "perhaps"),
        ("WEBHOOK_PORTS", "443,https"),
    ],
)
def test_a_value_that_cannot_be_read_is_refused_in_one_line_that_names_it(variable, value):
    done = run("manage.py", "check", **{"SECRET_KEY": "a-real-one", variable: value})

    assert done.returncode != 0
    assert done.stderr.startswith(f"manage.py: {variable} ")
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(("debug", "mode"), [("0", "required"), ("1", "off")])
def test_the_console_requires_a_second_factor_except_in_the_demo(debug, mode):
    values = read("CONSOLE_SECOND_FACTOR REAUTHENTICATE_SECONDS", SECRET_KEY="a-real-one", DEBUG=debug, CONSOLE_SECOND_FACTOR="")

    assert values == {"CONSOLE_SECOND_FACTOR": mode, "REAUTHENTICATE_SECONDS": 900.0}


def test_a_provider_without_its_secret_or_groups_is_refused():
    given = {"SECRET_KEY": "a-real-one", "OIDC_ISSUER": "https://login.example.com", "OIDC_CLIENT_ID": "console"}

    assert run("manage.py", "check", **given).stderr == "manage.py: OIDC_CLIENT_SECRET must be given where OIDC_ISSUER is.\n"
    without = run("manage.py", "check", **given, OIDC_CLIENT_SECRET="s")
    assert without.stderr == "manage.py: OIDC_GROUPS must be given where OIDC_ISSUER is.\n"
    assert run("manage.py", "check", **given, OIDC_CLIENT_SECRET="s", OIDC_GROUPS="desk=operator").returncode == 0


def test_without_a_database_url_the_embedded_server_of_the_state_directory_is_meant(tmp_path):
    values = read("DATABASES", DEBUG="1", SAS_STATE_DIR=str(tmp_path))

    assert values["DATABASES"]["default"]["HOST"].startswith("/tmp/sas-")
    assert values["DATABASES"]["default"]["NAME"] == "sas"


def test_a_socket_directory_may_be_percent_encoded_in_the_database_url():
    values = read("DATABASES", DEBUG="1", DATABASE_URL="postgres://me:p%40ss@%2FVar%2Frun%2Fpg/shop?sslmode=disable")
    database = values["DATABASES"]["default"]

    assert (database["HOST"], database["USER"], database["PASSWORD"], database["NAME"]) == ("/Var/run/pg", "me", "p@ss", "shop")
    assert database["OPTIONS"]["sslmode"] == "disable"


def test_the_default_broker_lives_in_the_database():
    names = "CELERY_BROKER_URL CELERY_BROKER_TRANSPORT_OPTIONS"
    values = read(names, DEBUG="1", DATABASE_URL="postgres://me@db.example/shop")
    options = values["CELERY_BROKER_TRANSPORT_OPTIONS"]

    assert values["CELERY_BROKER_URL"] == "pgmq://"
    assert "host=db.example" in options["conn_string"]
    assert "dbname=shop" in options["conn_string"]
    assert (options["use_notify"], options["init_extension"]) == (True, False)


def test_a_broker_on_another_postgresql_is_told_by_its_url():
    values = read("CELERY_BROKER_TRANSPORT_OPTIONS", DEBUG="1", CELERY_BROKER_URL="pgmq://q:secret@queues.example:6432/hints")

    for part in ("host=queues.example", "port=6432", "dbname=hints", "user=q", "password=secret"):
        assert part in values["CELERY_BROKER_TRANSPORT_OPTIONS"]["conn_string"]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("pgmq://", None),
        ("pgmq://q:secret@h1:5432,h2:5433/hints?sslmode=require", "pgmq://h1,h2/hints"),
        ("pgmq://q@/hints?host=/run/pg&password=secret", "pgmq://%2Frun%2Fpg/hints"),
        ("pgmq:///hints", "pgmq:///hints"),
        ("amqp://guest:guest@127.0.0.1:5672//", None),
    ],
)
def test_kombu_gets_an_address_of_pgmq_that_it_can_read(url, address):
    names = "CELERY_BROKER_READ_URL CELERY_BROKER_WRITE_URL"

    assert read(names, DEBUG="1", CELERY_BROKER_URL=url) == dict.fromkeys(names.split(), address)


@pytest.mark.parametrize("url", ["amqp://guest:guest@127.0.0.1:5672//", "redis://127.0.0.1:6379/0"])
def test_no_publisher_can_hang_for_long_on_a_broker(url):
    options = read("CELERY_BROKER_TRANSPORT_OPTIONS", DEBUG="1", CELERY_BROKER_URL=url)["CELERY_BROKER_TRANSPORT_OPTIONS"]

    assert any(0 < value <= 5 for name, value in options.items() if "connect" in name)
    assert any(0 < value <= 5 for name, value in options.items() if name in ("write_timeout", "socket_timeout"))


def test_workers_keep_their_connection_and_the_web_role_pools():
    worker = read("DATABASES", DEBUG="1")["DATABASES"]["default"]
    web = read("DATABASES", DEBUG="1", DATABASE_POOL="1")["DATABASES"]["default"]

    assert worker["CONN_MAX_AGE"] is None
    assert "pool" not in worker["OPTIONS"]
    assert web["CONN_MAX_AGE"] == 0
    assert web["OPTIONS"]["pool"]["max_size"] > 1


def test_celery_keeps_the_database_connection_between_tasks():
    code = "from sasproject import celery_app; print(celery_app.conf.get('CELERY_DB_REUSE_MAX'), celery_app.conf.task_acks_late)"
    done = run("-c", code, DEBUG="1")

    assert done.stdout.split() == ["1000000000", "False"]


def test_importing_the_project_reads_no_settings():
    code = "import sasproject; from django.conf import settings; print(settings.configured)"

    assert run("-c", code).stdout.strip() == "False"


def test_the_engine_gets_its_numbers_from_the_environment():
    given = {"SUPERVISION_SWEEP_SECONDS": "0.5", "SUPERVISION_COMPLETE_WITHIN": "2", "SUPERVISION_ON_EXHAUSTED": "compensate"}
    values = read("SUPERVISION", DEBUG="1", **given)

    assert values["SUPERVISION"]["SWEEP_SECONDS"] == 0.5
    assert values["SUPERVISION"]["COMPLETE_WITHIN"] == 2
    assert values["SUPERVISION"]["ON_EXHAUSTED"] == "compensate"


def test_throttling_can_be_switched_off():
    assert read("API_THROTTLE", DEBUG="1")["API_THROTTLE"] == "120/min"
    assert read("API_THROTTLE", DEBUG="1", API_THROTTLE="off")["API_THROTTLE"] is None


def test_orders_of_guests_are_limited_except_in_the_demo():
    assert read("GUEST_ORDERS", SECRET_KEY="x" * 50)["GUEST_ORDERS"] == "20/h"
    assert read("GUEST_ORDERS", SECRET_KEY="x" * 50, GUEST_ORDERS="5/min")["GUEST_ORDERS"] == "5/min"
    assert read("GUEST_ORDERS", DEBUG="1")["GUEST_ORDERS"] is None


@pytest.mark.django_db(transaction=True)  # the readiness probe has a connection of its own
@pytest.mark.parametrize("redirects", [True, False])
def test_probes_answer_under_every_name_and_all_other_paths_under_the_shops_alone(client, settings, redirects):
    settings.ALLOWED_HOSTS, settings.SECURE_SSL_REDIRECT = ["shop.example.com"], redirects

    for host in ("web:8000", "10.0.0.7:8000", "not a name"):
        for probe in ("/healthz", "/readyz", "/metrics", "/healthz/", "/readyz/", "/metrics/"):
            answer = client.get(probe, headers={"host": host})
            assert (answer.status_code, answer["X-Content-Type-Options"]) == (200, "nosniff"), (probe, host)
            assert host.encode() not in answer.content
        for path in ("/", "/accounts/login/", "/api/v1/products/", "/healthz/x", "/metricsx"):
            assert client.get(path, headers={"host": host}).status_code == 400, (path, host)
    assert client.get("/accounts/login/", headers={"host": "shop.example.com"}).status_code == (301 if redirects else 200)
    assert client.post("/healthz", headers={"host": "web:8000"}).status_code == 405
