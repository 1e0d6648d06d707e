"""The next test has a connection like a new one: a test's session keeps nothing, and one that does not work is replaced."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from django.db import connection, connections, transaction

from supervision import testing
from supervision.postgres import db, params

KEPT = """
SELECT current_setting('lock_timeout'), current_setting('TimeZone'), current_user = session_user, to_regclass('pg_temp.mine'),
    (SELECT count(*) FROM pg_listening_channels()), (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())
"""


def ask(statement: str) -> tuple:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone() if cursor.description else ()


def test_what_a_test_changed_is_as_in_a_new_session_and_the_connection_stays(sas):
    connection.close()
    new, pid = ask(KEPT), ask("SELECT pg_backend_pid()")
    for change in (
        "SET lock_timeout = '7s'",
        "SET TIME ZONE 'Asia/Tokyo'",
        "CREATE TEMP TABLE mine ()",
        "LISTEN mine",
        "SELECT pg_advisory_lock(4712)",
        "SET ROLE pg_monitor",
    ):
        ask(change)
    assert all(was != is_now for was, is_now in zip(new, ask(KEPT), strict=True))

    testing.renew_session()

    assert ask(KEPT) == new
    assert ask("SELECT pg_backend_pid()") == pid


@pytest.mark.parametrize("left", ["transaction", "lost", "ended"])
def test_a_connection_that_cannot_be_renewed_is_replaced(sas, left):
    pid = ask("SELECT pg_backend_pid()")
    if left == "transaction":
        connection.connection.execute("BEGIN")
    elif left == "ended":
        connection.connection.close()
    else:
        with psycopg.connect(**{**connection.get_connection_params(), "cursor_factory": None}, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 10000)", pid)

    testing.renew_session()

    assert connection.connection is None
    assert ask("SELECT pg_backend_pid()") != pid


async def look_in_an_event_loop() -> None:
    """As a test in a browser: there Django has other connections."""
    params.known.wrappers = ()
    db.end_open_transactions()


@pytest.mark.parametrize("looks", [None, look_in_an_event_loop])
def test_a_block_that_a_test_left_open_holds_no_lock_in_the_next(sas, looks):
    if looks:
        asyncio.run(looks())
    block = transaction.atomic()
    block.__enter__()
    ask("SELECT pg_advisory_xact_lock(4713)")

    testing.renew_session()

    assert not connection.in_atomic_block
    assert ask("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4713") == (0,)


def test_without_a_connection_none_is_made(sas):
    connection.close()
    testing.renew_session()
    assert connection.connection is None


def test_the_projects_time_zone_is_set_again(sas, monkeypatch):
    monkeypatch.setitem(vars(connections["default"]), "timezone_name", "Asia/Tokyo")  # not the server's
    connection.close()
    connection.ensure_connection()

    testing.renew_session()

    assert ask("SELECT current_setting('TimeZone')") == ("Asia/Tokyo",)
    connection.close()


def test_a_connection_of_a_pool_goes_back_to_it(sas, monkeypatch):
    connection.close()
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "pool", {"min_size": 1, "max_size": 1})
    try:
        connection.ensure_connection()

        testing.renew_session()

        assert connection.connection is None
    finally:
        connection.close()
        connection.close_pool()
