"""Flushes: what they write, when, and into which file."""

from __future__ import annotations

import os
import stat

import pytest

from supervision import conf
from supervision.incidents import lifecycle
from supervision.journal import due_work, entries, verify
from supervision.journal.entries import State
from supervision.journal.writer import Writer
from supervision.models import Incident, JournalEntry, JournalFile, WriterLease
from supervision.operations import operator_verbs
from tests.engine.kit import fetch
from tests.journal.kit import KEY, acknowledged, append, files, flushed, ids, waiting, yesterday

pytestmark = pytest.mark.usefixtures("journal_dir")


def test_each_event_type_has_its_file_with_a_header_and_a_line_for_each_event(journal_dir):
    append("e-1", "e-2")
    flushed("e-3", kind="returned", why="broken, badly")

    [sold], [returned] = files("sold"), files("returned")
    day = sold.opened_at.strftime("%Y-%m-%d")
    assert sold.path == f"books/sold-{day}-001.csv"
    lines = (journal_dir / returned.path).read_bytes().split(b"\r\n")
    assert lines[0] == b"event_id,recorded_at,sku,pieces,why"
    assert lines[1].endswith(b'Z,MUG,2,"broken, badly"')
    assert lines[1].startswith(b"e-3,20")
    assert (journal_dir / sold.path).stat().st_size == sold.length
    assert (sold.entries, returned.entries) == (2, 1)


def test_a_flush_appends_to_what_is_there(journal_dir):
    writer = flushed("e-1")
    append("e-2")
    writer.flush(KEY)

    assert ids(journal_dir) == ["e-1", "e-2"]
    assert len(files()) == 1


def test_what_comes_during_a_flush_waits_for_the_next(journal_dir, monkeypatch):
    really = os.fsync

    def late(descriptor: int) -> None:
        really(descriptor)
        if waiting() == ["e-1", "e-2"]:
            append("e-3")

    append("e-1", "e-2")
    monkeypatch.setattr("supervision.journal.files.os.fsync", late)
    writer = Writer()

    first = writer.flush(KEY)
    between = ids(journal_dir), waiting()
    second = writer.flush(KEY)

    assert (first.written, second.written) == (2, 1)
    assert between == (["e-1", "e-2"], ["e-3"])
    assert (ids(journal_dir), waiting()) == (["e-1", "e-2", "e-3"], [])


def test_nothing_is_acknowledged_that_was_not_synced(journal_dir, monkeypatch):
    """A test cannot cut the power, but it can see that fsync comes after the last write and before the commit."""
    synced: list[tuple[int, int, list[str]]] = []
    really = os.fsync

    def spy(descriptor: int) -> None:
        really(descriptor)
        found = os.fstat(descriptor)
        synced.append((found.st_ino, found.st_size, waiting()))

    monkeypatch.setattr("supervision.journal.files.os.fsync", spy)
    flushed("e-1", "e-2")

    [file] = files()
    path = journal_dir / file.path
    assert (path.stat().st_ino, file.length, ["e-1", "e-2"]) in synced
    folders = [path.parent, journal_dir, journal_dir.parent]  # the first holds the file's directory entry, the second that of the first
    assert {folder.stat().st_ino for folder in folders} <= {inode for inode, _, _ in synced}


def test_an_empty_flush_does_nothing(journal_dir):
    writer = flushed("e-1")
    [before] = files()
    seen = (journal_dir / before.path).stat().st_mtime_ns, WriterLease.objects.get().flushed_at

    assert writer.flush(KEY).written == 0

    [after] = files()
    assert (after.length, after.entries) == (before.length, before.entries)
    assert ((journal_dir / before.path).stat().st_mtime_ns, WriterLease.objects.get().flushed_at) == seen


def test_an_empty_journal_has_no_files_and_no_writer(journal_dir):
    Writer().look()

    assert not journal_dir.exists()
    assert not WriterLease.objects.exists()


def test_an_entry_that_cannot_be_written_fails_alone_with_its_reason(journal_dir):
    append("good-1")
    append("bad", lines=["nested"])
    flushed("good-2")

    assert ids(journal_dir) == ["good-1", "good-2"]
    found = entries.outcome("bad")
    assert found.state is State.FAILED
    assert found.reason == "column lines: expected a text, a number, true, false or nothing, got list"
    lifecycle.look()
    incident = Incident.objects.get(closed_at__isnull=True)  # operators have to know
    assert incident.cause == f"journal:{KEY}:refused"
    operator_verbs.acknowledge_incident(incident.pk, by="olga", reason="written by hand")
    lifecycle.look()
    assert not Incident.objects.filter(closed_at__isnull=True).exists()
    assert waiting() == []


def test_nothing_is_flushed_before_its_time_and_everything_when_it_is_due(tuned):
    tuned(JOURNAL_FLUSH_SECONDS=3600, JOURNAL_FLUSH_ENTRIES=3)
    writer = Writer()
    append("e-1", "e-2")
    assert writer.look() == 0

    append("e-3")  # now there are enough entries for a flush
    assert writer.look() == 3

    append("e-4")
    assert writer.look() == 0
    fetch("UPDATE supervision_journalentry SET appended_at = now() - interval '2 hours' WHERE event_id = 'e-4'")
    assert writer.look() == 1  # the entry has waited long enough


def test_a_backlog_is_written_in_several_flushes_without_a_pause(journal_dir, tuned, monkeypatch):
    monkeypatch.setattr("supervision.journal.writer.MOST_ENTRIES", 4)
    tuned(JOURNAL_FLUSH_ENTRIES=1)
    append(*(f"e-{number}" for number in range(10)))

    assert Writer().look() == 10
    assert len(set(ids(journal_dir))) == 10


def test_a_new_day_begins_a_new_file_and_the_old_one_is_never_written_again(journal_dir):
    writer = flushed("e-1")
    yesterday()
    append("e-2")
    writer.flush(KEY)

    old, new = files()
    assert old.closed_at is not None
    assert new.closed_at is None
    assert stat.S_IMODE(os.stat(journal_dir / old.path).st_mode) == 0o440
    assert ids(journal_dir) == ["e-1", "e-2"]
    assert new.path.endswith("-002.csv")


def test_the_day_before_is_closed_without_waiting_for_another_event(journal_dir):
    flushed("e-1").hand_over()
    yesterday()

    Writer().look()

    [old] = files()
    assert old.closed_at is not None
    assert not (journal_dir / old.path).stat().st_mode & 0o222


def test_a_full_file_is_followed_by_another_and_no_line_is_split(journal_dir, tuned):
    tuned(JOURNAL_FILE_BYTES=300, JOURNAL_FLUSH_ENTRIES=1)
    append(*(f"e-{number:02}" for number in range(20)))

    assert Writer().look() == 20

    assert len(files()) >= 3
    assert max(file.length for file in files()) <= 300
    assert ids(journal_dir) == [f"e-{number:02}" for number in range(20)]
    assert JournalFile.objects.filter(closed_at=None).count() == 1


def test_a_line_that_is_longer_than_a_file_may_be_gets_a_file_of_its_own(journal_dir, tuned):
    tuned(JOURNAL_FILE_BYTES=300, JOURNAL_FLUSH_ENTRIES=1)
    append("short")
    append("long", sku="x" * 1000)
    append("short-too")

    assert Writer().look() == 3
    assert ids(journal_dir) == ["short", "long", "short-too"]


def test_a_new_column_begins_a_file_that_has_the_old_ones_too(journal_dir):
    writer = flushed("e-1")
    append("e-2", colour="blue")
    append("e-3")
    writer.flush(KEY)
    append("e-4")  # columns that an open file already has begin no third file
    writer.flush(KEY)

    assert [file.columns for file in files()] == [["sku", "pieces"], ["sku", "pieces", "colour"]]
    assert [row.get("colour") for row in acknowledged(journal_dir)] == [None, "blue", "", ""]


def test_the_rows_of_files_closed_long_ago_are_forgotten_and_the_files_stay(journal_dir, tuned):
    append("bad", lines=[])
    writer = flushed("e-1", "e-2", "e-3")
    yesterday()
    append("e-4")
    writer.flush(KEY)
    fetch("UPDATE supervision_journalfile SET closed_at = now() - interval '91 days' WHERE closed_at IS NOT NULL")
    fetch("UPDATE supervision_journalentry SET appended_at = now() - interval '91 days' WHERE event_id <> 'e-4'")

    tuned(JOURNAL_KEEP_DAYS=None)
    assert due_work.delete_old(20) == 0
    tuned(JOURNAL_KEEP_DAYS=90)
    assert due_work.delete_old(20, size=2) == 3

    assert list(JournalEntry.objects.order_by("pk").values_list("event_id", flat=True)) == ["bad", "e-4"]
    assert ids(journal_dir) == ["e-1", "e-2", "e-3", "e-4"]
    assert [found.problems for found in verify.verify()] == [[], []]


def test_the_directory_is_the_configured_one(journal_dir):
    assert conf.get().journal_dir == journal_dir
