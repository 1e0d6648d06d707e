"""A round of the supervisor: a part whose statement PostgreSQL refuses keeps no other part from its work, and is told of once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import DatabaseError, OperationalError, connection
from django.utils import timezone

from supervision import tasks
from supervision.management.commands import supervise
from supervision.models import Heartbeat, Receipt
from supervision.postgres import db
from supervision.recovery import supervisor, upkeep
from supervision.runtime import periodic
from tests.engine import kit


@pytest.fixture
def woken(engine: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hour is over, so the next round deletes what is old. How often the deliveries were woken."""
    found: list[str] = []
    monkeypatch.setattr(tasks.delivery_worker, "wake", lambda: found.append("deliveries"))  # it would start a thread
    monkeypatch.setattr(upkeep, "_tidied", float("-inf"))
    Receipt.objects.create(digest="old")
    Receipt.objects.update(seen_at=timezone.now() - timedelta(days=400))
    return found


@contextmanager
def refused(event: str, table: str) -> Iterator[None]:
    """PostgreSQL refuses these statements, also those that find no row."""
    kit.fetch("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused: %', current_query(); END $$")
    try:
        kit.fetch(f"CREATE TRIGGER refuse BEFORE {event} ON {table} EXECUTE FUNCTION refuse()")
        yield
    finally:
        kit.fetch("DROP FUNCTION refuse CASCADE")


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log tells of refused statements."""
    return [str(record.exc_info[1]) for record in caplog.records if record.exc_info]


def test_a_loop_whose_sweep_raises_does_the_rest_of_its_round_and_goes_on(woken: list[str], caplog: pytest.LogCaptureFixture):
    kit.waiting(1, "toy-plain")
    with refused("UPDATE OF complete_by", "supervision_stepstate"):
        report = supervise.Command().one_round()

    assert report == {}
    assert woken == ["deliveries"]
    assert not Receipt.objects.exists()
    assert Heartbeat.objects.filter(role="supervisor").exists()
    assert len(told(caplog)) == len(set(told(caplog))) == 2, "the recall of attempts and the end of waits"


def test_who_leads_is_not_known_and_the_deliveries_are_woken(woken: list[str], caplog: pytest.LogCaptureFixture):
    with refused("INSERT", "supervision_leaderlease"), pytest.raises(DatabaseError, match="refused"):  # Celery logs it
        tasks.sweep()

    assert woken == ["deliveries"]
    assert told(caplog) == []


def test_a_part_of_the_sweep_that_raises_is_told_of_once(engine: None, caplog: pytest.LogCaptureFixture):
    with refused("UPDATE OF complete_by", "supervision_stepstate"), pytest.raises(DatabaseError, match="refused") as first:
        supervisor.sweep_once()

    [second] = told(caplog)
    assert second != str(first.value), "the caller tells of the first one"


def ends(statement: str) -> bool:
    """Whether a part that fails with this statement is the last one of its round."""
    later: list[str] = []
    with pytest.raises(OperationalError):
        periodic.call_each([lambda: db.fetch(statement), lambda: later.append("the next part")])
    connection.close()
    return not later


def test_a_lost_connection_ends_the_round(engine: None):
    assert ends("SELECT pg_terminate_backend(pg_backend_pid())")


@pytest.mark.parametrize("state", ["53200", "40P01", "57014"])
def test_what_may_fail_for_one_statement_alone_ends_no_round(engine: None, state: str):
    assert not ends(f"DO $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END $$")
