"""A web process while its database is away: it refuses at once, queues nothing, and is right again a moment after."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection
from django.test import RequestFactory
from django.utils.translation import override

from chaos.look import until
from orders.api import errors
from supervision.postgres import advice, db, params
from supervision.postgres.backend import base, outage
from tests.engine import kit
from tests.support.relay import Relay

pytestmark = pytest.mark.django_db(transaction=True)
AT_ONCE = 4.0  # less than one wait of the pool, and far more than twenty refusals take


@pytest.fixture
def relay() -> Iterator[Relay]:
    relay = Relay()
    relay.open()
    yield relay
    relay.close()


@pytest.fixture
def web(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> Iterator[base.DatabaseWrapper]:
    """A connection as the web role's requests have one, through the relay."""
    monkeypatch.setattr(outage, "LOOK_SECONDS", 0.1)
    options = {**connection.settings_dict["OPTIONS"], "pool": {"min_size": 1, "max_size": 4, "timeout": 5.0}}
    place = {"HOST": "127.0.0.1", "PORT": str(relay.port), "OPTIONS": options, "CONN_MAX_AGE": 0}
    wrapper = base.DatabaseWrapper({**connection.settings_dict, **place}, "relayed")
    yield wrapper
    wrapper.close()
    wrapper.close_pool()
    base._outages.pop("relayed", None)


def ask(wrapper: base.DatabaseWrapper) -> int:
    """One request: take a connection, ask, give it back. Returns the server process that answered."""
    try:
        with wrapper.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            return int(cursor.fetchone()[0])
    finally:
        wrapper.close()


def test_a_connection_that_the_server_has_ended_is_replaced_before_a_request_gets_it(web, relay):
    before = ask(web)
    web.ensure_connection()
    kept = web.connection
    web.close()
    relay.cut()
    until(lambda: outage.has_word(kept), what="the server's goodbye")

    assert ask(web) != before


def test_a_connection_in_use_is_taken_without_a_round_trip(web, monkeypatch):
    asked: list[object] = []
    monkeypatch.setattr(base.ConnectionPool, "check_connection", staticmethod(asked.append))
    ask(web)
    asked.clear()

    assert ask(web)
    assert asked == []

    monkeypatch.setattr(base, "CHECK_AFTER_SECONDS", -1.0)
    assert ask(web)
    assert len(asked) == 1


def test_while_the_database_is_away_requests_are_refused_at_once_and_its_return_is_found(web, relay):
    ask(web)
    relay.close()
    with pytest.raises(OperationalError):  # the first one may wait, and learns of the outage
        ask(web)

    began = time.monotonic()
    for _ in range(20):
        with pytest.raises(OperationalError):
            ask(web)
    assert time.monotonic() - began < AT_ONCE

    began = time.monotonic()
    with pytest.raises(OperationalError):
        db.repeat(lambda: ask(web), OperationalError("lost"), deadline=began + 5)
    assert time.monotonic() - began < AT_ONCE, "what repeats after a lost connection is refused, too"

    relay.open()
    kit.until(lambda: web.outage._since is None)
    assert ask(web)


@pytest.fixture
def one(web: base.DatabaseWrapper) -> Iterator[Callable[[], psycopg.Connection[Any]]]:
    """The web role's user may have one connection, and its requests wait for one. A function that takes it from elsewhere."""
    role = f"one_{uuid.uuid4().hex[:8]}"
    own = params.libpqs(connection.get_connection_params())
    web.settings_dict["OPTIONS"]["pool"]["timeout"] = 20.0
    with psycopg.connect(**own, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN CONNECTION LIMIT 1 PASSWORD 'of this test'")
        web.settings_dict["USER"], web.settings_dict["PASSWORD"] = role, "of this test"
        try:
            yield lambda: psycopg.connect(**{**own, "user": role, "password": "of this test"}, autocommit=True)
        finally:
            web.close()
            web.close_pool()
            kit.until(lambda: web.outage._since is None)
            admin.execute(f"DROP ROLE {role}")


def test_a_request_does_not_wait_for_a_server_that_is_full(web, one):
    with one(), pytest.raises(OperationalError, match="one_"):
        ask(web)

    kit.until(lambda: web.outage._since is None)
    assert ask(web)


def test_while_the_server_is_full_requests_share_the_connections_that_the_process_has(web, one):
    mine = ask(web)
    web.ensure_connection()
    answers: list[int] = []
    another = threading.Thread(target=lambda: answers.append(ask(base.DatabaseWrapper(web.settings_dict, "relayed"))))
    another.start()
    kit.until(lambda: web.outage._since is not None and web.outage._said)
    web.close()
    another.join(30)

    assert answers == [mine]
    assert web.outage._since is not None, "the server is full as before"
    assert ask(web) == mine


REFUSED = 'connection failed: connection to server at "192.0.2.1", port 5432 failed: '
PGBOUNCER = "FATAL:  server login has been failing, try again later (server_login_retry)"
NO_MORE = "FATAL:  no more connections allowed (max_client_conn)"


@pytest.mark.parametrize(
    ("said", "direct", "pooler"),
    [
        (f"{REFUSED}FATAL:  zu viele Verbindungen für Rolle »web«", True, False),
        (f"{REFUSED}ВАЖНО:  извините, уже слишком много клиентов", True, False),
        (f"{REFUSED}FATALE:  spiacente, troppi client già connessi", True, False),
        (f"{REFUSED}FATAL:  sorry, too many clients already", True, True),
        (f"{REFUSED}{NO_MORE}", True, True),
        (f"{REFUSED}{PGBOUNCER}", True, False),
        (f"{REFUSED}Connection refused\n\tIs the server running on that host and accepting TCP/IP connections?", False, False),
        ('connection failed: could not translate host name "db" to address: Name or service not known', False, False),
        ("connection timeout expired", False, False),
        ("", False, False),
    ],
)
def test_a_server_that_refuses_is_known_in_any_language(said, direct, pooler, monkeypatch):
    known = outage.Outage(dict)
    known._said = said

    assert known.is_full is direct
    monkeypatch.setattr(outage.params, "direct", lambda: outage.params.DIRECT)
    assert known.is_full is pooler, "a pooler answers also while its server is away"
    assert bool(advice.after(said)) is direct


@pytest.mark.parametrize("does", ["starting up", "shutting down", "in recovery mode", "not accepting connections"])
def test_a_server_that_starts_or_stops_is_waited_for_and_is_not_full(does):
    known = outage.Outage(dict)
    known._said = f"{REFUSED}FATAL:  the database system is {does}"

    assert not known.is_full
    assert "wait until it accepts connections" in str(advice.after(known._said))


def test_a_full_server_is_looked_for_again_with_a_pool_of_other_names(web):
    """`psycopg_pool` may rename what it does not document: those that wait do so until their time is over, and no error is raised."""
    web._connection_pools["relayed"] = SimpleNamespace(get_stats=lambda: {"pool_size": 0})
    try:
        web._refuse_waiting()
    finally:
        del web._connection_pools["relayed"]


def test_a_full_disk_is_waited_for_by_workers_and_not_by_requests(web, monkeypatch):
    tries: list[int] = []

    def write() -> str:
        tries.append(1)
        with web.cursor() as cursor:
            cursor.execute(f"DO $$ BEGIN IF {len(tries)} < 4 THEN RAISE 'no room' USING ERRCODE = 'disk_full'; END IF; END $$")
        return "written"

    with pytest.raises(OperationalError, match="no room") as full:
        write()
    monkeypatch.setattr(db, "_FULL_SECONDS", 0.0)
    connection.close()
    with monkeypatch.context() as patched:
        patched.setitem(connection.settings_dict["OPTIONS"], "pool", True)
        with pytest.raises(OperationalError, match="no room"):
            db.repeat(write, full.value, deadline=time.monotonic() + 60)

    assert len(tries) == 1
    assert db.repeat(write, full.value, deadline=time.monotonic() + 60) == "written"


def test_a_page_says_that_it_may_be_tried_again(rf: RequestFactory, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(errors.sys, "exc_info", lambda: (None, OperationalError("gone"), None))
    answers = [errors.server_error(rf.get(where)) for where in ("/", "/api/v1/orders/")]
    monkeypatch.setattr(errors.sys, "exc_info", lambda: (None, ZeroDivisionError(), None))
    broken = errors.server_error(rf.get("/"))

    assert [(answer.status_code, answer.headers["Retry-After"]) for answer in answers] == [
        (503, str(errors.errors.RETRY_AFTER_SECONDS))
    ] * 2
    assert broken.status_code == 500


def test_the_page_of_an_error_names_its_language(rf: RequestFactory):
    with override("it"):
        page = errors.server_error(rf.get("/"))

    assert re.findall(r'<html lang="([\w-]+)">', page.text) == ["it"]
