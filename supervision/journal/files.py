"""The journal's files on disk: opened and locked for one writer, cut to the acknowledged length, appended to, synced.

This module uses no database. A file is written only between `claim` and `close`, under an exclusive lock of the operating
system on the file itself. A writer that is frozen while it holds the lock keeps it, so no other writer touches that file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import shutil
import socket
import stat
import time
from functools import lru_cache
from pathlib import Path

log = logging.getLogger(__name__)

LOCK_SECONDS = 0.5  # how long to wait for another writer's lock: only a frozen or replaced writer still has one
SEALED = 0o440
OPEN = 0o640


class Unusable(Exception):
    """This file cannot be continued. Its acknowledged entries stay; the journal continues in another file."""


@lru_cache(maxsize=1)
def host() -> str:
    """This machine's name and boot id. Locks of the operating system are reliable only within one boot of one machine."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    except OSError:
        boot = ""
    return f"{socket.gethostname()}/{boot}"


class Page:
    """One file, locked. start: its acknowledged length, where this writer begins."""

    def __init__(self, descriptor: int, path: Path, start: int) -> None:
        self.path, self.start, self.length = path, start, start
        self._descriptor = descriptor
        self._touched = False

    @classmethod
    def claim(cls, path: Path, start: int) -> Page:
        """Open and lock a file of which `start` bytes are acknowledged; nothing is changed yet.

        Raises Unusable if those bytes are not here or another process has the lock, OSError if a new file cannot be made.
        """
        if start == 0:
            _make_folders(path.parent)
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (0 if start else os.O_CREAT), OPEN)
        except OSError as problem:
            if start == 0 and not path.exists():
                raise
            raise Unusable(f"{path}: {problem.strerror}") from problem
        page = cls(descriptor, path, start)
        try:
            page._lock()
            found = os.fstat(descriptor)
            if not found.st_mode & stat.S_IWUSR:
                raise Unusable(f"{path}: is sealed")  # noqa: TRY301 - the lock goes back below
            if found.st_size < start:
                raise Unusable(f"{path}: {start} bytes are acknowledged and {found.st_size} are there")  # noqa: TRY301
        except BaseException:
            page.close()
            raise
        return page

    def _lock(self) -> None:
        until = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as problem:
                if problem.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
            else:
                return
            if time.monotonic() > until:
                raise Unusable(f"{self.path}: another process has it locked")
            time.sleep(0.02)

    def append(self, content: bytes) -> None:
        """Write this behind the acknowledged length. The caller must have checked its term after it took the lock."""
        self._cut_off()
        self._touched = True
        rest = memoryview(content)
        at = self.start
        while rest:
            written = os.pwrite(self._descriptor, rest, at)
            rest, at = rest[written:], at + written
        self.length = at

    def sync(self) -> None:
        """Sync the file to disk; for a new file its folder too."""
        os.fsync(self._descriptor)
        if self.start == 0:
            _sync_folder(self.path.parent)

    def take_back(self) -> None:
        """Remove what `append` wrote, because it will not be acknowledged. Optional: the next writer would cut it off."""
        if self._touched:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.start)

    def _cut_off(self) -> None:
        """Remove what a dead writer left beyond the acknowledged length. It is kept beside the file: after a restore of the
        database from a backup, it may hold entries that were acknowledged before."""
        rest = os.fstat(self._descriptor).st_size - self.start
        if rest > 0:
            with open(f"{self.path}.cut", "ab") as kept, open(self.path, "rb") as whole:
                whole.seek(self.start)
                shutil.copyfileobj(whole, kept)
                kept.flush()
                os.fsync(kept.fileno())
            log.warning("%s: %d bytes beyond the acknowledged length were cut off and kept in %s.cut", self.path, rest, self.path.name)
            os.ftruncate(self._descriptor, self.start)

    def seal(self) -> None:
        """Cut a complete file to its length and make it read-only. The caller must have checked its term, as for `append`."""
        self._cut_off()
        os.fchmod(self._descriptor, SEALED)
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file, which releases the lock."""
        os.close(self._descriptor)


def _make_folders(folder: Path) -> None:
    made = []
    while not folder.is_dir():
        made.append(folder)
        folder = folder.parent
    for missing in reversed(made):
        with contextlib.suppress(FileExistsError):
            missing.mkdir(0o750)
        _sync_folder(missing.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
