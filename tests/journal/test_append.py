"""Appending events: in the caller's transaction, once per event, without waiting and without blocking others."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from django.db import transaction

from supervision.journal import entries
from supervision.journal.entries import State
from supervision.journal.writer import Writer
from supervision.models import JournalEntry
from tests.journal.kit import KEY, acknowledged, append, flushed, ids, waiting
from tests.support.forked import state_of

pytestmark = pytest.mark.usefixtures("journal_dir")


def test_an_event_exists_if_and_only_if_the_callers_transaction_commits():
    with transaction.atomic():
        append("e-1")
        transaction.set_rollback(True)
    with transaction.atomic():
        append("e-2")

    assert waiting() == ["e-2"]


def test_an_event_that_is_appended_again_is_the_same_event(journal_dir):
    append("e-1", sku="FIRST")
    append("e-2")
    writer = flushed()

    assert entries.append(KEY, [("sold", "e-1", {"sku": "SECOND"}), ("sold", "e-3", {}), ("sold", "e-3", {})]) == 1
    writer.flush(KEY)

    assert ids(journal_dir) == ["e-1", "e-2", "e-3"]
    assert acknowledged(journal_dir)[0]["sku"] == "FIRST"


def test_the_order_of_one_call_is_the_order_in_the_file(journal_dir):
    flushed(*(f"e-{number}" for number in range(30, 0, -1)))

    assert ids(journal_dir) == [f"e-{number}" for number in range(30, 0, -1)]


def test_amounts_and_times_are_written_as_people_write_them(journal_dir):
    flushed("e-1", total=Decimal("25.80"), at=datetime(2026, 10, 1, tzinfo=UTC))

    [row] = acknowledged(journal_dir)
    assert (row["total"], row["at"]) == ("25.80", "2026-10-01 00:00:00+00:00")


def test_a_body_that_is_no_json_fails_by_itself_and_not_its_caller(journal_dir):
    circle: dict = {}
    circle["a"] = circle
    entries.append(KEY, [("sold", "e-1", circle), ("sold", "e-2", {("a", "b"): 1}), ("sold", "e-3", {"sku": "MUG"})])
    Writer().flush(KEY)

    assert ids(journal_dir) == ["e-3"]
    assert [entries.outcome(one).state for one in ("e-1", "e-2")] == [State.FAILED, State.FAILED]
    assert "could not be turned into JSON" in entries.outcome("e-1").reason


@pytest.mark.parametrize(("key", "kind"), [("../books", "sold"), ("books", "sold/../x"), ("Books", "sold"), ("books", "")])
def test_a_key_or_an_event_type_that_can_name_no_file_is_refused_at_once(key, kind):
    with pytest.raises(ValueError, match="is no key or event type"):
        entries.append(key, [(kind, "e-1", {})])


@pytest.mark.parametrize("event_id", ["", "a\0b", "a\nb", "\ud800", "x" * 201])
def test_an_event_id_that_cannot_be_kept_is_refused_at_once(event_id):
    with pytest.raises(ValueError, match="is no event id"):
        entries.append(KEY, [("sold", event_id, {})])


def test_a_row_with_a_name_that_no_file_can_have_fails_alone_whoever_wrote_it(journal_dir):
    JournalEntry.objects.create(key=KEY, event_type="../../etc/x", event_id="e-1", body="{}")
    JournalEntry.objects.create(key="../etc", event_type="sold", event_id="e-2", body="{}")
    flushed("e-3")
    Writer().flush("../etc")

    assert ids(journal_dir) == ["e-3"]
    assert "no file can be named" in entries.outcome("e-1").reason
    assert "no folder can be named" in entries.outcome("e-2").reason
    assert [path.name for path in journal_dir.parent.iterdir()] == ["journal"]


def test_nobody_who_appends_waits_for_a_flush(journal_dir, processes, eventually):
    """R13: while the writer is between its fsync and its commit, events are still accepted."""
    append("e-1")
    writer = processes.start(failpoints="journal.after_write=stop@1", JOURNAL_FLUSH_SECONDS=0.001)
    eventually(lambda: state_of(writer) == "T")

    append("e-2")

    assert waiting() == ["e-1", "e-2"]
    os.kill(writer, signal.SIGCONT)
    eventually(lambda: waiting() == [])
    # R12: events that came during the flush belong to the next one.
    first, second = JournalEntry.objects.order_by("pk")
    assert first.written_at < second.written_at
    assert ids(journal_dir) == ["e-1", "e-2"]
