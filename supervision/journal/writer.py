"""The journal's writer. Every process in the supervisor's role runs one; each key has one active writer at a time.

`look` runs every second. A key is flushed when its oldest entry has waited JOURNAL_FLUSH_SECONDS or JOURNAL_FLUSH_ENTRIES
wait. A flush:

1. takes the key's lease and reads the entries that wait at this moment; later entries belong to the next flush;
2. turns each entry into a line; an entry that cannot be written fails alone, with its reason;
3. claims one file per event type (begins another if the day is over, the file is full, a column is new, or the file
   cannot be continued here), then checks under the files' locks that the lease is still its own;
4. cuts each file to its acknowledged length, appends, syncs;
5. acknowledges: marks the entries and updates the lengths, in one transaction guarded by holder and term.

A writer that dies before step 5 has acknowledged nothing of this flush. The next writer cuts off its leftovers in step 4.
`statements` explains why two writers cannot write the same file.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from supervision import conf
from supervision.journal import due_work
from supervision.journal.csv_format import MOST_COLUMNS
from supervision.journal.files import Page, Unusable, host
from supervision.journal.sheets import Sheet, lines, sort
from supervision.journal.statements import File, Grown, Lease, LeaseLost, Settlement
from supervision.runtime import failpoints
from supervision.runtime.identity import me
from supervision.runtime.periodic import PeriodicLoop

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
TEND_SECONDS = 60.0
FORGET_SECONDS = 1.0  # of each minute
MOST_ENTRIES = 2000  # of one flush


@dataclass(frozen=True)
class Flushed:
    """The result of one flush. more: entries that waited at its beginning are still waiting."""

    written: int = 0
    failed: int = 0
    more: bool = False
    trouble: str = ""


Claimed = tuple[File, bytes, list[int]]  # the file, the bytes to append, and the ids of the entries in them


class Writer:
    """One process's writer of the journal. Not for two threads at once."""

    def __init__(self) -> None:
        self.name = f"{me()}-{uuid.uuid4().hex[:6]}"
        self.stopping = threading.Event()
        self._leases: dict[str, Lease] = {}
        self._renewed: dict[str, float] = {}
        self._not_before: dict[str, float] = {}
        self._tended = float("-inf")

    # -------------------------------------------------------------------------------------------------- when

    def look(self) -> int:
        """Flush the keys that are due and renew the leases; returns how many entries were settled."""
        limits = conf.get()
        settled = 0
        for found in due_work.waiting(limits.journal_flush_entries):
            if found.holder not in (None, self.name):
                continue
            if found.entries >= limits.journal_flush_entries or found.seconds >= limits.journal_flush.total_seconds():
                settled += self._flush_all(found.key)
        now = time.monotonic()
        for key in list(self._leases):
            if now - self._renewed[key] > limits.journal_lease.total_seconds() / 3:
                self._hold(key)
        if now - self._tended > TEND_SECONDS:
            self._tended = now
            for key in due_work.yesterdays():
                self._close_yesterdays(key)
            due_work.delete_old(FORGET_SECONDS)
        return settled

    def _flush_all(self, key: str) -> int:
        settled = 0
        while time.monotonic() >= self._not_before.get(key, 0.0):
            done = self.flush(key)
            if done is None:
                break
            settled += done.written + done.failed
            if not done.more or self.stopping.is_set():
                break
        return settled

    def hand_over(self) -> None:
        """Flush the keys that no other writer holds, then release this writer's leases at once."""
        for found in due_work.waiting(1):
            if found.holder in (None, self.name):
                self.flush(found.key)
        for key in list(self._leases):
            if lease := self._leases.pop(key, None):
                lease.release()

    def _hold(self, key: str) -> Lease | None:
        lease = Lease.hold(key, self.name)
        if lease is None:
            self._leases.pop(key, None)
        else:
            self._leases[key], self._renewed[key] = lease, time.monotonic()
        return lease

    # ------------------------------------------------------------------------------------------------- flush

    def flush(self, key: str) -> Flushed | None:
        """Write the entries that wait under this key now; None while another writer holds its lease."""
        lease = self._hold(key)
        if lease is None:
            return None
        batch = lease.batch(MOST_ENTRIES)
        if not batch:
            return Flushed()
        sheets, failed = sort(key, batch)
        pages: list[Page] = []
        grown: list[Grown] = []
        try:
            contents = []
            known = lease.files()
            for event_type, sheet in sorted(sheets.items()):
                file, content, entries = self._claim(lease, known.get(event_type), event_type, sheet, pages)
                contents.append(content)
                grown.append(Grown(file.id, file.length, file.length + len(content), entries))
            if not lease.is_mine():
                raise LeaseLost(key)  # noqa: TRY301 - one handler for every loss of the lease
            for page, content in zip(pages, contents, strict=True):
                page.append(content)
            for page in pages:
                page.sync()
            failpoints.hit("journal.after_write")
            lease.settle(Settlement(grown, failed))
        except LeaseLost:
            _take_back(pages)
            self._leases.pop(key, None)
            log.warning("the journal %s has another writer by now; nothing was acknowledged", key)
            return None
        except OSError as problem:
            _take_back(pages)
            return self._troubled(lease, problem)
        finally:
            for page in pages:
                page.close()
        for reason in failed.values():
            log.error("an entry of the journal %s cannot be written: %s", key, reason)
        written = sum(len(one.entries) for one in grown)
        return Flushed(written, len(failed), more=len(batch) == MOST_ENTRIES or written + len(failed) < len(batch))

    def _claim(self, lease: Lease, known: File | None, event_type: str, sheet: Sheet, pages: list[Page]) -> Claimed:
        """Claim the file for these lines: the open one if it can be continued, otherwise a new one."""
        most = conf.get().journal_file_bytes
        columns = sheet.columns
        if known is not None:
            new = [name for name in columns if name not in known.columns]
            content, entries = lines(sheet, known.columns, known.length, most=most)
            if entries and not new and known.is_todays and known.host == host():
                try:
                    pages.append(Page.claim(_path(known), known.length))
                except Unusable as problem:
                    log.warning("going on in another file: %s", problem)
                else:
                    return known, content, entries
            else:
                _seal(lease, known)
                if known.is_todays and len(known.columns) + len(new) <= MOST_COLUMNS:
                    columns = [*known.columns, *new]  # otherwise events with different columns would open files in turns
        file = lease.open(event_type, columns, instead_of=known)
        try:
            pages.append(Page.claim(_path(file), 0))
        except Unusable as problem:
            raise OSError(str(problem)) from problem
        return file, *lines(sheet, columns, 0, most=most)

    def _close_yesterdays(self, key: str) -> None:
        """Close the files of past days, so that a program that collects them need not wait for another event."""
        lease = self._hold(key)
        if lease is None:
            return
        try:
            for file in lease.files().values():
                if not file.is_todays:
                    _seal(lease, file)
                    lease.close(file)
        except LeaseLost:
            self._leases.pop(key, None)

    def _troubled(self, lease: Lease, problem: OSError) -> Flushed:
        reason = f"{type(problem).__name__}: {problem}"
        log.error("the journal %s cannot be written, its entries wait: %s", lease.key, reason)
        self._leases.pop(lease.key, None)
        self._not_before[lease.key] = time.monotonic() + conf.get().journal_flush.total_seconds()
        lease.troubled(reason)
        return Flushed(trouble=reason)


def _path(file: File) -> Path:
    return conf.get().journal_dir / file.path


def _seal(lease: Lease, file: File) -> None:
    """Cut a complete file to its acknowledged length and make it read-only, if it is on this machine. Raises LeaseLost."""
    if file.host != host():
        return
    try:
        page = Page.claim(_path(file), file.length)
    except (Unusable, OSError) as problem:
        log.warning("a file is closed as it is: %s", problem)
        return
    try:
        if not lease.is_mine():
            raise LeaseLost(lease.key)
        page.seal()
    except OSError as problem:
        log.warning("a file is closed as it is: %s", problem)
    finally:
        page.close()


def _take_back(pages: Sequence[Page]) -> None:
    for page in pages:
        page.take_back()


# --------------------------------------------------------------------------------------------------- in a process

_loop: tuple[PeriodicLoop, Writer] | None = None


def start() -> None:
    """Start a thread that writes the journal of all keys whose lease this process gets."""
    global _loop
    if _loop is None:
        writer = Writer()
        _loop = PeriodicLoop("journal", LOOK_SECONDS, writer.look, writer.hand_over).start(), writer


def stop(seconds: float) -> None:
    """Flush the waiting entries and release the leases. Another process does the work not done in so many seconds."""
    global _loop
    if _loop is not None:
        loop, writer = _loop
        _loop = None
        writer.stopping.set()
        if not loop.stop(seconds):
            log.warning("the journal's last flush did not end in time; another process continues when the lease expires")
