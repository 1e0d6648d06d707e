"""One writer at a time per key: leases, fencing by terms, frozen writers, other machines, files that were changed."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading

import pytest
from django.db import connection

from supervision.journal import verify
from supervision.journal.statements import Grown, Lease, LeaseLost, Settlement
from supervision.journal.writer import Writer
from supervision.models import JournalEntry, WriterLease
from tests.journal.kit import KEY, acknowledged, append, files, flushed, ids, lapse, waiting
from tests.support.forked import state_of

pytestmark = pytest.mark.usefixtures("journal_dir")


def whole() -> bool:
    """Whether every file agrees with its rows."""
    problems = [(found.path, found.problems) for found in verify.verify() if found.problems]
    assert problems == []
    return True


def test_a_second_writer_writes_nothing_while_the_first_has_the_lease():
    first = flushed("e-1")
    append("e-2")

    assert Writer().flush(KEY) is None
    assert waiting() == ["e-2"]
    assert first.flush(KEY).written == 1


def test_each_key_has_its_own_writer(journal_dir):
    flushed("e-1")
    append("e-2", key="others")
    append("e-3")

    assert Writer().flush("others").written == 1

    assert waiting() == ["e-3"]  # the other key's writer has to write it


def test_the_term_rises_with_every_other_holder_and_not_with_a_renewal():
    first = flushed("e-1")
    first.flush(KEY)
    assert WriterLease.objects.get().term == 1

    lapse()
    Writer().flush(KEY)

    assert WriterLease.objects.get().term == 2


def test_a_writer_that_hands_over_writes_what_waits_and_is_followed_at_once(journal_dir):
    first = flushed("e-1")
    append("e-2")

    first.hand_over()
    append("e-3")

    assert Writer().flush(KEY).written == 1
    assert ids(journal_dir) == ["e-1", "e-2", "e-3"]
    assert len(files()) == 1


def test_a_writer_that_ends_writes_what_nobody_else_would(journal_dir):
    append("e-1")

    Writer().hand_over()

    assert ids(journal_dir) == ["e-1"]


def test_an_overtaken_writer_acknowledges_nothing():
    append("e-1")
    old = Lease.hold(KEY, "old")
    lapse()
    Lease.hold(KEY, "new")
    [entry] = JournalEntry.objects.all()
    file = files()

    with pytest.raises(LeaseLost):
        old.settle(Settlement([], {entry.pk: "too late"}))
    with pytest.raises(LeaseLost):
        old.open("sold", ["sku"])

    assert waiting() == ["e-1"]
    assert files() == file == []


def test_a_flush_that_finds_its_work_done_by_another_acknowledges_nothing():
    """Besides the lease, two guards hold: an entry is marked once, and a length only moves on from the value that was read."""
    append("e-1")
    writer = flushed()
    lease = writer._leases[KEY]
    [file], [entry] = files(), list(JournalEntry.objects.all())

    with pytest.raises(LeaseLost):
        lease.settle(Settlement([Grown(file.pk, 0, 10, [])]))
    with pytest.raises(LeaseLost):
        lease.settle(Settlement([Grown(file.pk, file.length, file.length + 5, [entry.pk])]))
    assert whole()


def test_a_frozen_writer_is_overtaken_and_does_no_harm_when_it_wakes(journal_dir, processes, eventually):
    """It froze after it had written lines without acknowledging them, and it still holds the file's lock."""
    append("e-1", "e-2")
    frozen = processes.start(failpoints="journal.after_write=stop@1", JOURNAL_FLUSH_SECONDS=0.01)
    eventually(lambda: state_of(frozen) == "T")
    assert (journal_dir / files()[0].path).stat().st_size > 0
    lapse()

    flushed("e-3")
    assert [file.entries for file in files()] == [0, 3]  # a second file, because the frozen writer still holds the first one's lock
    os.kill(frozen, signal.SIGCONT)
    eventually(lambda: (journal_dir / files()[0].path).stat().st_size == 0, what="its lines taken back")
    append("e-4")
    lapse()
    eventually(lambda: waiting() == [], what="the writer that was frozen gets the lease and writes again")

    assert ids(journal_dir) == ["e-1", "e-2", "e-3", "e-4"]
    assert whole()


def test_a_writer_that_froze_before_it_had_the_lock_changes_nothing(journal_dir):
    """It knows an old length: cutting the file to that length would destroy events that others acknowledged since."""
    old = flushed("e-1")
    append("e-2")
    stale = old._leases[KEY].files()
    lapse()
    other = flushed("e-3")

    class Frozen(Lease):
        def files(self):
            return stale

    lease = Frozen(KEY, old.name, 1)
    old._hold = lambda key: lease
    append("e-4")
    assert old.flush(KEY) is None

    other.flush(KEY)
    assert ids(journal_dir) == ["e-1", "e-2", "e-3", "e-4"]
    assert whole()


def test_a_writer_that_froze_before_it_closed_a_file_changes_nothing(journal_dir):
    """It froze before it closed yesterday's file and wakes later; meanwhile another writer has appended to that file."""
    old = flushed("e-1")
    append("e-2")
    stale = {name: dataclasses.replace(file, is_todays=False) for name, file in old._leases[KEY].files().items()}
    lapse()
    flushed("e-3")

    class Frozen(Lease):
        def files(self):
            return stale

    old._hold = lambda key: Frozen(KEY, old.name, 1)
    append("e-4")
    assert old.flush(KEY) is None
    old._close_yesterdays(KEY)

    assert ids(journal_dir) == ["e-1", "e-2", "e-3"]
    assert [file.closed_at for file in files()] == [None]
    assert whole()


def test_writers_at_once_never_interleave_and_write_every_event_once(journal_dir, tuned, eventually):
    """Six threads compete to write with a lease so short that it expires all the time; now and then one flush succeeds.

    Which thread gets the lease is chance, so the test goes on until a second thread has had it.
    """
    tuned(JOURNAL_FLUSH_SECONDS=0.001, JOURNAL_LEASE_SECONDS=0.01)
    stop = threading.Event()
    lengthened = threading.Timer(5, tuned, kwargs={"JOURNAL_LEASE_SECONDS": 2})  # on a slow machine a flush takes longer than 0.01 s

    def write() -> None:
        writer = Writer()
        while not stop.is_set():
            writer.look()
        connection.close()

    threads = [threading.Thread(target=write, daemon=True) for _ in range(6)]
    for thread in threads:
        thread.start()
    wanted = []
    lengthened.start()
    try:
        for number in range(2000):
            if number >= 40 and WriterLease.objects.filter(term__gt=1).exists():
                break
            some = [f"e-{number}-{place}" for place in range(10)]
            append(*some, sku="line\nbreak, comma")
            wanted += some
            lapse()
        eventually(lambda: not waiting(), within=60, what="every event written")
    finally:
        stop.set()
        lengthened.cancel()
        for thread in threads:
            thread.join(20)

    assert sorted(ids(journal_dir)) == sorted(wanted)
    assert WriterLease.objects.get().term > 1
    assert whole()


# ------------------------------------------------------------------------------------------ files and machines


def test_a_new_writer_cuts_off_what_a_dead_one_left_and_keeps_it_beside(journal_dir):
    flushed("e-1").hand_over()
    path = journal_dir / files()[0].path
    with path.open("ab") as opened:
        opened.write(b"e-2,2026-10-01T00:00:00.000000Z,torn" * 50)

    flushed("e-2")

    assert ids(journal_dir) == ["e-1", "e-2"]
    assert path.stat().st_size == files()[0].length
    assert path.with_name(path.name + ".cut").read_bytes().endswith(b"torn")
    assert whole()


@pytest.mark.parametrize("harm", ["missing", "shorter", "moved", "sealed"])
def test_a_file_that_is_not_what_is_acknowledged_is_left_alone_and_followed_by_another(journal_dir, harm):
    writer = flushed("e-1")
    path = journal_dir / files()[0].path
    match harm:
        case "missing":
            path.unlink()
        case "shorter":
            os.truncate(path, 10)
        case "moved":
            path.rename(path.with_suffix(".old"))
        case "sealed":
            path.chmod(0o440)
    before = path.read_bytes() if path.exists() else None
    append("e-2")

    assert writer.flush(KEY).written == 1

    old, new = files()
    assert old.closed_at is not None
    assert (new.entries, new.length) == (1, (journal_dir / new.path).stat().st_size)
    assert (path.read_bytes() if path.exists() else None) == before


def test_a_writer_on_another_machine_begins_its_own_files(journal_dir, another_machine):
    """File locks work within one machine only, and another machine may have another disk."""
    flushed("e-1").hand_over()
    size = (journal_dir / files()[0].path).stat().st_size
    another_machine()

    flushed("e-2")

    here, there = files()
    assert here.closed_at is not None
    assert there.host == "elsewhere/12345678"
    assert (journal_dir / here.path).stat().st_size == size
    assert [row["event_id"] for row in acknowledged(journal_dir)] == ["e-1", "e-2"]


def test_an_idle_writer_keeps_its_lease(tuned):
    tuned(JOURNAL_LEASE_SECONDS=0.3)
    writer = flushed("e-1")
    until = WriterLease.objects.get().until

    while WriterLease.objects.get().until == until:
        writer.look()

    append("e-2")
    assert Writer().flush(KEY) is None
