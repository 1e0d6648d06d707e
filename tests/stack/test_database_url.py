"""DATABASE_URL: everything that libpq knows may stand in it, and what is wrong is said in one line without the password."""

from __future__ import annotations

import uuid

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from psycopg.conninfo import make_conninfo

from sasproject import broker, database
from supervision.postgres import params
from supervision.transports import options

SEVERAL = "postgres://me:p%40%25s@h1:5432,h2:5433,[fd00::1]:5434/shop"


def entry(url: str, purpose: str = "work") -> dict:
    return database.from_url(url, "DATABASE_URL", purpose=purpose)


def test_several_hosts_lead_to_the_one_that_takes_writes():
    found = entry(SEVERAL)

    assert (found["HOST"], found["PORT"], found["PASSWORD"], found["NAME"]) == ("h1,h2,fd00::1", "5432,5433,5434", "p@%s", "shop")
    assert found["OPTIONS"]["target_session_attrs"] == "read-write"
    assert found["OPTIONS"]["connect_timeout"] == 2
    assert "target_session_attrs" not in entry("postgres://me@h1/shop")["OPTIONS"]


def test_each_parameter_of_libpq_wins_over_ours():
    given = "?target_session_attrs=primary&sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem&keepalives_idle=60&options=-c%20jit%3Don"
    found = entry(SEVERAL + given)["OPTIONS"]

    assert (found["target_session_attrs"], found["sslmode"], found["sslrootcert"]) == ("primary", "verify-full", "/etc/ca.pem")
    assert (found["keepalives_idle"], found["options"]) == ("60", "-c jit=on")


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("postgres://me:secret@h/shop?colour=red", "colour"),
        ("postgres://me:secret@h/shop?sslmode=sometimes", "sslmode"),
        ("postgres://me:secret@h1,h2/shop?target_session_attrs=best", "target_session_attrs"),
        ("postgres://me:secret@h/shop?connect_timeout=soon", "connect_timeout"),
        ("postgres://me:secret%zz@h/shop", "percent-encoded"),
        ("postgres://me:secret@[fd00::1/shop", "IPv6"),
        ("postgres://me:secret@h:99999/shop", "port"),
        ("postgres://me:secret@h1:1,h2:2,h3/shop?port=1,2", "3 hosts and 2 ports"),
        ("postgres://me:secret@h", "names no database"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_without_the_password(url, named):
    with pytest.raises(ImproperlyConfigured) as refused:
        entry(url)

    assert named in str(refused.value)
    assert str(refused.value).startswith("DATABASE_URL ")
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)


def test_the_broker_in_the_database_gets_every_parameter_and_a_name_of_its_own(monkeypatch):
    monkeypatch.setenv("SAS_ROLE", "agents")
    told = options.conninfo(entry(SEVERAL + "?sslmode=require"))

    for part in ("host=h1,h2,fd00::1", "sslmode=require", "target_session_attrs=read-write", "tcp_user_timeout=10000"):
        assert part in told
    assert "application_name=sas:agents:queues" in told


@pytest.mark.parametrize(
    ("given", "purpose", "name"),
    [("sas:web:requests", "listen x", "sas:web:listen x"), ("mine", "queues", "mine:queues"), (None, "queues", "supervision:queues")],
)
def test_every_connection_has_a_name(given, purpose, name):
    assert params.named(given, purpose) == name
    assert len(params.named("sas:" + "r" * 80, purpose)) <= 63


@pytest.mark.parametrize(
    ("arguments", "role"),
    [(["manage.py", "work", "agents"], "agents"), (["manage.py", "doctor"], "doctor"), (["/x/gunicorn", "a:b"], "web"), (["-c"], "-c")],
)
def test_a_process_without_a_name_is_named_by_its_command(monkeypatch, arguments, role):
    monkeypatch.delenv("SAS_ROLE", raising=False)
    monkeypatch.setattr("sys.argv", arguments)

    assert database.role() == role


def test_the_web_roles_statements_end_after_a_while(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", SEVERAL)
    monkeypatch.delenv("DATABASE_POOL", raising=False)
    worker = database.entries("", 6)["default"]
    monkeypatch.setenv("DATABASE_POOL", "1")
    web = database.entries("", 6)["default"]

    assert "statement_timeout" not in worker["OPTIONS"]["options"]
    assert "-c statement_timeout=15000" in web["OPTIONS"]["options"]
    assert web["OPTIONS"]["pool"] == {"min_size": 1, "max_size": 10, "timeout": 3.0}


def test_a_pooler_gets_no_startup_options_and_the_direct_way_does(monkeypatch):
    monkeypatch.setenv("DATABASE_URL", "postgres://me@pooler:6432/shop")
    monkeypatch.setenv("DATABASE_DIRECT_URL", SEVERAL)
    found = database.entries("", 6)

    assert "options" not in found["default"]["OPTIONS"]
    assert found["default"]["DISABLE_SERVER_SIDE_CURSORS"] is True
    assert "idle_in_transaction_session_timeout" in found["direct"]["OPTIONS"]["options"]
    assert found["direct"]["HOST"] == "h1,h2,fd00::1"


def of_the_database(name: str) -> str:
    own = params.libpqs(connection.get_connection_params())
    pinned = database.pinned({"OPTIONS": {}})["OPTIONS"]
    return make_conninfo(**{**own, "dbname": name, **pinned})


def of_the_broker(name: str) -> str:
    return str(broker.transport_options(pgmq_url(name), {})["conn_string"])


def of_the_broker_of_another_project(name: str) -> str:
    return str(options.of_broker(pgmq_url(name), {})["conn_string"])


def pgmq_url(name: str) -> str:
    own = params.libpqs(connection.get_connection_params())
    return f"pgmq://{own['user']}@/{name}?host={own['host']}&port={own.get('port') or 5432}"


ALL = ("DateStyle", "standard_conforming_strings", "array_nulls", "default_transaction_isolation")
GIVEN = ("German", "off", "off", "serializable")
OURS = ("ISO", "on", "on", "read committed")


@pytest.mark.django_db
@pytest.mark.parametrize(("way", "names"), [(of_the_database, ALL), (of_the_broker, ALL), (of_the_broker_of_another_project, ALL[:2])])
def test_what_a_database_was_given_does_not_reach_our_sessions(way, names):
    name = f"sas_given_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(**{**params.libpqs(connection.get_connection_params()), "dbname": "postgres"}, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}"')
        try:
            for setting, value in zip(ALL, GIVEN, strict=True):
                admin.execute(f"ALTER DATABASE \"{name}\" SET {setting} = '{value}'")
            with psycopg.connect(way(name)) as ours:
                found = [ours.execute(f"SHOW {setting}").fetchone()[0].partition(",")[0] for setting in names]
                now = ours.execute("SELECT now()").fetchone()[0]
        finally:
            admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    assert tuple(found) == OURS[: len(names)]
    assert now.tzinfo is not None


def test_the_broker_s_own_options_win_over_ours():
    url = "pgmq://q@queues.example/hints?options=-c%20jit%3Don"

    assert "options='-c jit=on'" in broker.transport_options(url, {})["conn_string"]
    assert "options='-c jit=on'" in options.of_broker(url, {})["conn_string"]
