"""How values reach PostgreSQL and come back, and what happens to a statement that fails."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest
from django.db import DataError, IntegrityError, OperationalError, connection, connections, transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervision.postgres import db, params
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("engine")

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])) | st.sampled_from(
    ["NULL", "null", "", '"', "\\", '\\"', '","', "{}", "a,b", " x ", "\n"]
)
ARRAYS = {
    "text[]": st.lists(TEXT | st.none()),
    "bigint[]": st.lists(st.integers(-(2**63), 2**63 - 1) | st.none()),
    "float8[]": st.lists(st.floats(allow_nan=False) | st.integers(-(2**50), 2**50) | st.none()),
    "bool[]": st.lists(st.booleans() | st.none()),
    "timestamptz[]": st.lists(
        st.datetimes(datetime(2, 1, 1), timezones=st.sampled_from([UTC, timezone(timedelta(hours=-9, minutes=-30))]))  # noqa: DTZ001
    ),
    "jsonb[]": st.lists(
        st.recursive(TEXT | st.integers() | st.none(), lambda inner: st.dictionaries(TEXT, inner) | st.lists(inner), max_leaves=8).map(
            json.dumps
        ),
        max_size=5,
    ),
}


@pytest.mark.parametrize("kind", ARRAYS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(data=st.data())
def test_postgresql_reads_each_element_of_a_list_as_it_was(kind, data):
    values = data.draw(ARRAYS[kind])

    rows = db.fetch(f"SELECT v FROM unnest(%(values)s::{kind}) WITH ORDINALITY u(v, n) ORDER BY n", {"values": values})  # noqa: S608

    assert [row[0] for row in rows] == (list(map(json.loads, values)) if kind == "jsonb[]" else values)


def test_a_list_with_a_nul_is_refused_as_a_whole():
    with pytest.raises(DataError, match="NUL"):
        db.fetch("SELECT %(values)s::text[]", {"values": ["a", "b\0c"]})


@pytest.mark.parametrize("value", [None, "text", 1.5, [1, {"a": "b"}], {"n": None}, '"'])
@pytest.mark.parametrize("kind", ["json", "jsonb"])
def test_json_comes_back_as_it_was(value, kind):
    assert db.fetch(f"SELECT %(value)s::{kind}", {"value": json.dumps(value)}) == [(value,)]


def test_a_lost_connection_is_opened_again_and_the_statement_repeated():
    kit.fetch("SELECT 1")
    connection.connection.close()

    assert db.run("SELECT 2") == [(2,)]


def test_after_a_loss_the_caller_that_asked_for_it_answers_instead():
    kit.fetch("SELECT 1")
    connection.connection.close()

    assert db.run("SELECT 2", after_loss=lambda: [(3,)]) == [(3,)]


def test_nothing_is_repeated_in_a_transaction_or_without_patience():
    asked: list[float | None] = []

    def lose(patience: float | None) -> None:
        kit.fetch("SELECT 1")
        connection.connection.close()
        db.run("SELECT 2", patience=patience, after_loss=lambda: asked.append(patience) or [])

    for attempt in (lambda: transaction.atomic(lose)(20.0), lambda: lose(None)):
        with pytest.raises(OperationalError):
            attempt()
        connection.close()
    assert asked == []


def test_a_mistake_is_raised_as_djangos_error_and_not_repeated():
    asked = []
    with pytest.raises(IntegrityError):
        db.run("INSERT INTO supervision_run (key) VALUES (NULL)", after_loss=lambda: asked.append(1) or [])

    assert asked == []


def test_a_block_that_is_left_open_is_found_also_after_a_session_of_its_own(monkeypatch):
    """Behind a pooler `own_session` puts another connection in the place of this thread's for a while."""
    monkeypatch.setitem(connections.settings, params.DIRECT, connections.settings["default"])
    try:
        connections[params.DIRECT].ensure_connection()
        with params.own_session():
            assert not db.end_open_transactions()
        transaction.atomic().__enter__()
        kit.fetch("SELECT 1")

        assert db.end_open_transactions()
        assert not connection.in_atomic_block
    finally:
        connections[params.DIRECT].close()
        del connections[params.DIRECT]
        params.known.wrappers = ()
