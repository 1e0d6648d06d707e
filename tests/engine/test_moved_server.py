"""A server that takes no writes any more: every connection leaves it, and the next one finds the primary."""

from __future__ import annotations

import psycopg
import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection, transaction
from psycopg.errors import ReadOnlySqlTransaction

from supervision.postgres import db, listener
from supervision.postgres.listener import Listener
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("engine")
DEMOTED = "SET default_transaction_read_only = on"  # this session's server is a standby from now on
WRITE = "INSERT INTO supervision_writeprobe VALUES (2, now(), now()) ON CONFLICT (id) DO UPDATE SET written_at = now()"


def session() -> int:
    return kit.fetch("SELECT pg_backend_pid()")[0][0]


def test_a_statement_of_the_engine_is_repeated_on_the_primary():
    before = session()
    db.run(DEMOTED)

    assert db.run(WRITE + " RETURNING id") == [(2,)]
    assert session() != before


def test_a_transaction_of_the_engine_is_repeated_on_the_primary():
    db.run(DEMOTED)

    assert db.transact(lambda: db.fetch(WRITE + " RETURNING id")) == [(2,)]


def takes_no_writes(error: Exception) -> bool:
    return isinstance(error.__cause__, ReadOnlySqlTransaction)


def test_any_other_code_leaves_it_with_an_error_that_says_that_the_database_is_away():
    before = session()
    kit.fetch(DEMOTED)
    with pytest.raises(OperationalError, check=takes_no_writes):
        Group.objects.create(name="written to a standby")
    assert session() != before

    kit.fetch(DEMOTED)
    with pytest.raises(OperationalError, check=takes_no_writes), transaction.atomic():
        Group.objects.create(name="written to a standby")
    Group.objects.create(name="written to the primary")
    assert connection.get_autocommit()


def test_a_listener_that_hears_nothing_leaves_a_server_that_takes_no_writes(monkeypatch):
    monkeypatch.setattr(listener, "HEARTBEAT_SECONDS", 0.1)
    ear = Listener("moved_test")
    assert ear.wait(0) is None
    assert ear.wait(0.3) == []  # its heartbeats are answered
    ear.execute(DEMOTED, {})

    with pytest.raises(psycopg.OperationalError, match="takes no writes"):
        ear.wait(60)
    assert ear.wait(0) is None, "it has connected anew"
    ear.close()


def test_a_listener_leaves_a_server_that_does_not_answer(monkeypatch):
    monkeypatch.setattr(listener, "HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(listener, "ANSWER_SECONDS", 0.2)
    ear = Listener("moved_test")
    assert ear.wait(0) is None
    monkeypatch.setattr(listener, "_TAKES_WRITES", b"SELECT pg_sleep(60)")

    with pytest.raises(psycopg.OperationalError, match="not answered"):
        ear.wait(60)
    ear.close()


def test_what_is_said_with_a_heartbeats_answer_is_heard(monkeypatch):
    monkeypatch.setattr(listener, "HEARTBEAT_SECONDS", 0.1)
    monkeypatch.setattr(listener, "_TAKES_WRITES", b"SELECT pg_notify('moved_test', 'beside'), true; SELECT true")
    ear = Listener("moved_test")
    assert ear.wait(0) is None

    assert ear.wait(60) == ["beside"]
    ear.close()


def test_a_listener_has_a_name_and_the_parameters_of_all_others():
    ear = Listener("moved_test")
    ear.wait(0)
    names = kit.fetch("SELECT application_name FROM pg_stat_activity WHERE query = 'LISTEN moved_test'")

    assert names[0][0].endswith(":listen moved_test")
    assert names[0][0].startswith("sas:")
    assert ear._connection is not None
    assert ear._connection.info.get_parameters()["tcp_user_timeout"] == "10000"
    ear.close()
