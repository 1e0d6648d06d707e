"""`manage.py journal`: status, flush, wait, verify."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.core.management.base import CommandError
from django.db.models.functions import Now

from supervision.journal.writer import Writer
from supervision.models import JournalEntry, WriterLease
from tests.engine.kit import said
from tests.journal.kit import KEY, append, files, flushed, ids, waiting

pytestmark = pytest.mark.usefixtures("journal_dir")


def test_status_of_an_empty_journal_says_so():
    assert said("journal") == "Nothing was ever written down.\n"


def test_status_shows_what_waits_and_who_writes():
    writer = flushed("e-1", "e-2")
    append("e-3")

    header, row = said("journal", "status").splitlines()

    assert header.split()[:4] == ["KEY", "WAITING", "OLDEST", "FAILED"]
    assert row.split()[:2] == [KEY, "1"]
    assert row.endswith(writer.name)


def test_status_shows_what_is_wrong(journal_dir):
    journal_dir.write_text("in the way")
    append("e-1")
    Writer().flush(KEY)

    assert f"{KEY} cannot be written since" in said("journal", "status")
    assert "NotADirectoryError" in said("journal", "status")


def test_status_as_json_gives_the_acknowledged_length_of_every_file(journal_dir):
    flushed("e-1")

    told = json.loads(said("journal", "status", "--json"))

    assert told["directory"] == str(journal_dir)
    [file] = told["files"]
    assert file["length"] == (journal_dir / file["path"]).stat().st_size
    assert told["keys"][0]["entries"] == 1


def test_flush_writes_everything_now_and_leaves_no_lease_behind(journal_dir):
    append("e-1", "e-2")
    append("e-3", key="others", kind="found")

    assert said("journal", "flush") == "3 events are settled.\n"

    assert ids(journal_dir) == ["e-1", "e-2"]
    assert waiting() == []
    flushed("e-4")  # another writer gets the lease at once


def test_flush_waits_for_the_writer_there_is(journal_dir, processes, eventually):
    append("e-1")
    processes.start(JOURNAL_FLUSH_SECONDS=0.3)
    eventually(lambda: WriterLease.objects.exists())
    append("e-2")

    said("journal", "flush", "--timeout", "20")

    assert ids(journal_dir) == ["e-1", "e-2"]


def test_flush_says_when_another_writer_does_not_write():
    append("e-1")
    WriterLease.objects.create(key=KEY, holder="frozen", term=1, until=Now() + timedelta(seconds=25))

    with pytest.raises(CommandError, match="1 events of books still wait: another writer has the lease"):
        said("journal", "flush", "--timeout", "0.3")


def test_flush_says_what_keeps_it_from_writing(journal_dir):
    journal_dir.write_text("in the way")
    append("e-1")

    with pytest.raises(CommandError, match="books cannot be written: NotADirectoryError"):
        said("journal", "flush")


def test_wait_says_where_an_event_was_written():
    flushed("e-1")

    assert said("journal", "wait", "e-1").startswith(f"written to {files()[0].path} on ")


@pytest.mark.parametrize(
    ("event", "words"),
    [("e-0", "no event is named e-0"), ("late", "still waiting after 0.1 s"), ("bad", "cannot be written: column lines")],
)
def test_wait_fails_with_one_line_when_the_event_is_not_written(event, words):
    append("bad", lines=[])
    flushed()
    append("late")

    with pytest.raises(CommandError, match=words):
        said("journal", "wait", event, "--timeout", "0.1")


@pytest.mark.parametrize("arguments", [("wait",), ("status", "e-1")])
def test_an_event_id_belongs_to_wait_alone(arguments):
    with pytest.raises(CommandError, match="event"):
        said("journal", *arguments)


def test_verify_proves_every_file_whole():
    flushed("e-1", "e-2")
    append("waiting")

    assert said("journal", "verify") == "1 files are whole, 2 events.\n"


def test_verify_is_not_disturbed_by_what_is_not_acknowledged(journal_dir):
    flushed("e-1")
    with (journal_dir / files()[0].path).open("ab") as opened:
        opened.write(b"e-2,torn")

    assert "are whole" in said("journal", "verify")


HARM = {
    "a torn line": lambda text: text[:-2] + b"xx",
    "a line twice": lambda text: text.replace(b"e-2", b"e-1"),
    "a stranger": lambda text: text.replace(b"e-2", b"e-9"),
    "another header": lambda text: text.replace(b"pieces", b"PIECES"),
    "a cell too many": lambda text: text.replace(b",2\r\ne-2", b",,\r\ne-2"),
    "no text": lambda text: text.replace(b"MUG", b"\xff\xff\xff", 1),
    "an open quote": lambda text: text.replace(b"MUG", b'"UG', 1),
}


@pytest.mark.parametrize("harm", HARM)
def test_verify_finds_a_file_that_was_changed(journal_dir, harm):
    flushed("e-1", "e-2")
    path = journal_dir / files()[0].path
    before = path.read_bytes()
    path.write_bytes(HARM[harm](before))
    assert len(path.read_bytes()) == len(before)
    assert path.read_bytes() != before

    with pytest.raises(CommandError, match="1 of 1 files are wrong"):
        said("journal", "verify")


def test_verify_finds_a_file_that_is_gone_or_cut(journal_dir):
    flushed("e-1")
    path = journal_dir / files()[0].path
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(CommandError, match="are wrong"):
        said("journal", "verify")

    path.unlink()
    with pytest.raises(CommandError, match="are wrong"):
        said("journal", "verify", "--key", KEY)


def test_verify_finds_an_event_whose_row_says_that_it_is_written_elsewhere():
    flushed("e-1")
    flushed_file = files()[0]
    append("e-2", kind="returned")
    writer = Writer()
    WriterLease.objects.all().delete()
    writer.flush(KEY)
    JournalEntry.objects.filter(event_id="e-2").update(file=flushed_file)

    with pytest.raises(CommandError, match="2 of 2 files are wrong"):
        said("journal", "verify")


def test_verify_says_what_it_cannot_look_at(journal_dir, another_machine):
    flushed("e-1")
    (journal_dir / files()[0].path).unlink()
    another_machine()

    assert "not looked at, it is on" in said("journal", "verify")
