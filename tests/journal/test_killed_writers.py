"""Writers that are killed: each acknowledged event is in the files exactly once, and no line is torn."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from datetime import timedelta

from supervision.journal import verify
from supervision.models import JournalEntry, WriterLease
from tests.journal.kit import append, files, ids, waiting

FAST = {"JOURNAL_FLUSH_SECONDS": 0.005, "JOURNAL_FLUSH_ENTRIES": 200, "JOURNAL_LEASE_SECONDS": 0.15}


def test_a_writer_killed_between_write_and_commit_leaves_every_event_once(journal_dir, processes, eventually):
    append("e-1", "e-2")
    first = processes.start(failpoints="journal.after_write=kill9@2", **FAST)
    eventually(lambda: waiting() == [])
    append("e-3", "e-4")
    eventually(lambda: processes.ended(first) == -signal.SIGKILL)
    [file] = files()
    assert (journal_dir / file.path).stat().st_size > file.length  # it had written and not acknowledged
    assert waiting() == ["e-3", "e-4"]

    processes.start(**FAST)
    eventually(lambda: waiting() == [])

    assert ids(journal_dir) == ["e-1", "e-2", "e-3", "e-4"]
    assert len(files()) == 1
    assert [found.problems for found in verify.verify()] == [[]]


def test_a_writer_that_is_asked_to_end_writes_what_waits_and_hands_over(journal_dir, processes, eventually):
    append("e-1", "e-2")
    pid = processes.start(JOURNAL_FLUSH_SECONDS=3600, JOURNAL_FLUSH_ENTRIES=2)
    eventually(lambda: waiting() == [])
    append("e-3")  # alone it is not due
    os.kill(pid, signal.SIGTERM)
    eventually(lambda: processes.ended(pid) == 0)

    assert ids(journal_dir) == ["e-1", "e-2", "e-3"]
    lease = WriterLease.objects.get()
    assert lease.until < lease.flushed_at + timedelta(seconds=9)  # the lease of ten seconds was given back


BATCH = 50


def run(journal_dir, processes, eventually, *, events: int, kills: int) -> str:
    """Append this many events and kill this many writers during their work; returns the figures.

    Two writers live at any time. Each kill hits the one with the lease: half of the kills come between its write and
    its commit, half at any moment. Each time the other writer, or a new one, has to go on.
    """
    dice = random.Random(7)
    began = time.monotonic()
    wanted: list[str] = []

    def more(count: int) -> None:
        for _ in range(0, count, BATCH):
            some = [f"e-{len(wanted) + place}" for place in range(BATCH)]
            append(*some, sku='=CMD("x"), a\nline break')
            wanted.extend(some)

    def start(number: int) -> int:
        return processes.start(failpoints="journal.after_write=kill9@2" if number % 2 else "", **FAST)

    living = [start(0), start(1)]
    for kill in range(2, kills + 2):
        written = JournalEntry.objects.exclude(written_at=None).count()
        more(events // kills // 2)
        eventually(lambda written=written: JournalEntry.objects.exclude(written_at=None).count() > written, what="progress")
        more(events // kills - events // kills // 2)
        holder = WriterLease.objects.get().holder
        victim = next((pid for pid in living if f"-{pid}-" in holder), living[0])
        time.sleep(dice.random() * 0.02)
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        eventually(lambda victim=victim: processes.ended(victim) is not None)
        living[living.index(victim)] = start(kill)
        for pid in [pid for pid in living if processes.ended(pid) is not None]:
            living[living.index(pid)] = start(0)
    eventually(lambda: waiting() == [], within=60)
    seconds = time.monotonic() - began

    found = ids(journal_dir)
    assert len(found) == len(set(found)) == len(wanted) == events
    assert set(found) == set(wanted)
    assert [(one.path, one.problems) for one in verify.verify() if one.problems] == []
    cut = sum(path.stat().st_size for path in journal_dir.rglob("*.cut"))
    delays = sorted(
        (written - appended).total_seconds() for written, appended in JournalEntry.objects.values_list("written_at", "appended_at")
    )
    return (
        f"{events} events, {kills} kills: {seconds:.1f} s, {events / seconds:.0f} events/s, append to acknowledged median "
        f"{delays[len(delays) // 2] * 1000:.0f} ms, max {delays[-1] * 1000:.0f} ms; {WriterLease.objects.get().term} terms, "
        f"{len(files())} files, {cut} bytes cut off"
    )


def test_ten_thousand_events_survive_twenty_kills(journal_dir, processes, eventually):
    """Many kills in one run: every event is in the files exactly once (H31)."""
    print(run(journal_dir, processes, eventually, events=10_000, kills=20))
