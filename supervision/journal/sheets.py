"""Turns a batch of entries into lines of files, one sheet per event type. An entry that cannot be written fails alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from supervision.journal import csv_format
from supervision.journal.csv_format import MOST_COLUMNS, Unwritable
from supervision.journal.statements import Entry


@dataclass
class Sheet:
    """The lines that go to one event type's file."""

    columns: list[str] = field(default_factory=list)
    rows: list[tuple[Entry, dict[str, str]]] = field(default_factory=list)

    def add(self, entry: Entry) -> None:
        """Add one entry. Raises Unwritable."""
        if not csv_format.is_name(entry.event_type):
            raise Unwritable(f"no file can be named after the event type {entry.event_type[:200]!r}")
        cells = csv_format.read(entry.body)
        new = [name for name in cells if name not in self.columns]
        if len(self.columns) + len(new) > MOST_COLUMNS:
            raise Unwritable(f"the file would have more than {MOST_COLUMNS} columns")
        self.columns += new
        self.rows.append((entry, cells))


def sort(key: str, batch: Sequence[Entry]) -> tuple[dict[str, Sheet], dict[int, str]]:
    """The batch by event type, and the entries that cannot be written, each with its reason."""
    if not csv_format.is_name(key):
        return {}, {entry.id: f"no folder can be named after the key {key[:200]!r}" for entry in batch}
    sheets: dict[str, Sheet] = {}
    failed: dict[int, str] = {}
    for entry in batch:
        try:
            sheets.setdefault(entry.event_type, Sheet()).add(entry)
        except Unwritable as problem:
            failed[entry.id] = str(problem)
    return {event_type: sheet for event_type, sheet in sheets.items() if sheet.rows}, failed


def lines(sheet: Sheet, columns: Sequence[str], length: int, *, most: int) -> tuple[bytes, list[int]]:
    """The content to append to a file of this length, and its entries. Lines that do not fit wait for the next file.

    If no line fits into a file that has lines, the caller needs another file. An empty file takes at least one line.
    """
    content = bytearray(b"" if length else csv_format.header(columns))
    entries: list[int] = []
    for entry, cells in sheet.rows:
        line = csv_format.line(columns, entry.event_id, entry.appended_at, cells)
        if (entries or length) and length + len(content) + len(line) > most:
            break
        content += line
        entries.append(entry.id)
    return bytes(content), entries
