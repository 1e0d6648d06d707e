"""Helpers of the journal's tests: append events, read the files as an accountant does, run writers that can be killed."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from supervision.journal import entries
from supervision.journal.writer import Writer
from supervision.models import JournalEntry, JournalFile
from tests.engine.kit import ROOT, fetch

KEY = "books"


def append(*ids: str, kind: str = "sold", key: str = KEY, **body: Any) -> None:
    """Append events with these ids and this body."""
    entries.append(key, [(kind, one, {"sku": "MUG", "pieces": 2, **body}) for one in ids])


def flushed(*ids: str, **facts: Any) -> Writer:
    """Append them and let a writer flush them; returns the writer, which still has the lease."""
    append(*ids, **facts)
    writer = Writer()
    done = writer.flush(KEY)
    assert done is not None
    assert not done.trouble
    return writer


def files(kind: str = "sold") -> list[JournalFile]:
    """The files of one event type, oldest first."""
    return list(JournalFile.objects.filter(event_type=kind).order_by("pk"))


def acknowledged(directory: Path, kind: str = "sold") -> list[dict[str, str]]:
    """Every acknowledged event of one type, as rows by column, in the order of the files."""
    rows: list[dict[str, str]] = []
    for file in files(kind):
        with (directory / file.path).open("rb") as opened:
            text = opened.read(file.length).decode()
        assert text == "" or text.endswith("\r\n"), f"a torn line in {file.path}"
        rows += csv.DictReader(text.splitlines(keepends=True), strict=True)
    return rows


def ids(directory: Path, kind: str = "sold") -> list[str]:
    """The ids of the acknowledged events."""
    return [row["event_id"] for row in acknowledged(directory, kind)]


def waiting() -> list[str]:
    """The ids of the events that wait for a flush."""
    return list(JournalEntry.objects.filter(written_at=None, failed_at=None).order_by("pk").values_list("event_id", flat=True))


def lapse() -> None:
    """Let the writer's lease expire."""
    fetch("UPDATE supervision_writerlease SET until = now() - interval '1 ms' WHERE key = %s", [KEY])


def yesterday() -> None:
    """Make the open file one that was begun yesterday."""
    a_day_ago = "UPDATE supervision_journalfile SET opened_at = opened_at - interval '1 day'"
    fetch(a_day_ago + " WHERE event_type = 'sold' AND closed_at IS NULL")


class Processes:
    """Writers as processes. They are forked from a process that has imported everything, so that a start costs milliseconds."""

    def __init__(self) -> None:
        self._facts: dict[str, Any] = {}
        self._living: set[int] = set()

    def __enter__(self) -> Processes:
        self._forker = subprocess.Popen(
            [sys.executable, "-m", "tests.journal.process"],
            cwd=ROOT,
            env={**os.environ, "LOG_LEVEL": "CRITICAL"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._forker.communicate(timeout=20)

    def use(self, database: str, directory: Path) -> None:
        """Set the database and the directory of the next writers."""
        self._facts = {"database": database, "directory": str(directory)}

    def start(self, *, failpoints: str = "", file_size: int | None = None, **settings: Any) -> int:
        """Start one writer that looks without pauses; returns its process id."""
        pid = self._ask({**self._facts, "failpoints": failpoints, "file_size": file_size, "settings": settings})
        self._living.add(pid)
        return pid

    def ended(self, pid: int) -> int | None:
        """The writer's exit status (negative: the signal), None while it runs."""
        status = self._ask({"poll": pid})
        if status is not None:
            self._living.discard(pid)
        return status

    def kill_all(self) -> None:
        for pid in list(self._living):
            os.kill(pid, signal.SIGKILL)
            while self.ended(pid) is None:
                pass

    def _ask(self, request: Mapping[str, Any]) -> Any:
        assert self._forker.stdin is not None
        assert self._forker.stdout is not None
        self._forker.stdin.write(json.dumps(request) + "\n")
        self._forker.stdin.flush()
        return json.loads(self._forker.stdout.readline())
