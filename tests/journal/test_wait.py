"""A caller that appended an event can wait for exactly that event (R11)."""

from __future__ import annotations

import threading
import time

import pytest
from django.db import connection, transaction

from supervision.journal import entries
from supervision.journal.entries import State
from supervision.journal.writer import Writer
from supervision.runtime import failpoints
from tests.engine.kit import fetch
from tests.journal.kit import KEY, append, files, flushed

pytestmark = pytest.mark.usefixtures("journal_dir")


class Waiting(threading.Thread):
    """Waits for one event in a separate thread."""

    def __init__(self, event_id: str, timeout: float = 20.0) -> None:
        super().__init__(daemon=True)
        self._asked = (event_id, timeout)
        self.seconds = 0.0
        self.start()

    def run(self) -> None:
        began = time.monotonic()
        self.outcome = entries.wait(*self._asked)
        self.seconds = time.monotonic() - began
        connection.close()

    def answer(self) -> entries.Outcome:
        self.join(30)
        assert not self.is_alive()
        return self.outcome


def listening(count: int = 1) -> bool:
    """Whether this many connections listen for flushes."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN supervision_journal%'"
    return bool(fetch(query)[0][0] >= count)


def test_a_caller_waits_until_its_event_is_on_disk_and_learns_where():
    append("e-1")
    assert entries.outcome("e-1").state is State.WAITING
    waiter = Waiting("e-1")
    flushed()

    found = waiter.answer()

    assert found.state is State.WRITTEN
    assert found.file == files()[0].path
    assert found.at is not None


def test_a_waiter_is_woken_by_the_flush_and_not_by_the_clock(monkeypatch, eventually):
    monkeypatch.setattr("supervision.journal.entries.POLL_SECONDS", 60.0)
    append("e-1")
    waiter = Waiting("e-1", 60.0)
    eventually(listening)

    flushed()

    assert waiter.answer().state is State.WRITTEN
    assert waiter.seconds < 30


def test_a_waiter_whose_connection_is_lost_goes_on_by_polling(monkeypatch, eventually):
    monkeypatch.setattr("supervision.journal.entries.POLL_SECONDS", 0.05)
    append("e-1")
    waiter = Waiting("e-1")
    eventually(listening)
    fetch("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN supervision_journal%'")

    flushed()

    assert waiter.answer().state is State.WRITTEN


def test_who_waits_for_an_event_that_cannot_be_written_learns_why():
    append("bad", lines=[])
    waiter = Waiting("bad")
    flushed("good")

    assert waiter.answer().state is State.FAILED
    assert "column lines" in waiter.answer().reason


def test_each_waiter_learns_of_its_own_event_only(monkeypatch, eventually):
    """A flush of another key and an earlier flush do not end its wait."""
    append("e-1")
    append("other", key="elsewhere")
    first, second = Waiting("e-1", 0.5), Waiting("other", 20.0)
    eventually(lambda: listening(2))

    Writer().flush("elsewhere")

    assert second.answer().state is State.WRITTEN
    assert first.answer().state is State.WAITING


def test_waiting_ends_when_time_is_up():
    append("e-1")

    assert entries.wait("e-1", 0.05).state is State.WAITING
    assert entries.wait("e-1", 0).state is State.WAITING


def test_an_event_that_nobody_appended_is_unknown_at_once():
    began = time.monotonic()

    assert entries.wait("e-0", 20).state is State.UNKNOWN
    assert time.monotonic() - began < 10


def test_a_flush_that_failed_settles_nothing(journal_dir):
    append("e-1")
    failpoints.load({"FAILPOINTS": "journal.after_write=raise", "ALLOW_FAILPOINTS": "1"})
    with pytest.raises(failpoints.Injected):
        Writer().flush(KEY)

    assert entries.outcome("e-1").state is State.WAITING


def test_waiting_in_the_transaction_that_appended_is_refused():
    with transaction.atomic():
        append("e-1")
        with pytest.raises(RuntimeError, match="its own end"):
            entries.wait("e-1", 5)
