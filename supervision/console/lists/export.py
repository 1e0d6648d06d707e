"""A list as a CSV file: read and sent in portions, so that a million rows need no more memory than a thousand.

A cell that a spreadsheet would take for a formula begins with an apostrophe, as in the journal's files.
"""

from __future__ import annotations

import csv
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from django.db.models import Q, QuerySet

from supervision.journal.csv_format import guarded

PORTION = 1_000
# What begins a cell in another program, also where the line is divided within quotation marks, and the letter after it.
DIVIDES = re.compile('([;\t\r\n][ "]*)([^;\t\r\n "])')
logger = logging.getLogger(__name__)
Cells = Callable[[Sequence[Any]], Iterable[Sequence[Any]]]


def safe(value: Any) -> str:
    """A cell's text: no formula, also where a spreadsheet divides at semicolons, tabs and ends of lines; one form for times."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return "" if value is None else re.sub(DIVIDES, lambda at: f"{at[1]}{guarded(at[2])}", guarded(str(value)))


def lines(header: Sequence[str], rows: QuerySet[Any], newest_first: Sequence[str], cells: Cells) -> Iterator[bytes]:
    """The file, the header first. cells: what is written of each row of a portion."""
    writer = csv.writer(_Line())
    yield b"\xef\xbb\xbf" + writer.writerow([safe(name) for name in header])  # type: ignore[operator]  # its file returns the line
    count = 0
    for portion in portions(rows, newest_first):
        count += len(portion)
        yield b"".join(writer.writerow([safe(cell) for cell in row]) for row in cells(portion))  # type: ignore[misc]
    logger.info("a file of %s was sent to its end: %d rows", rows.model._meta.verbose_name_plural, count)


def portions(rows: QuerySet[Any], newest_first: Sequence[str]) -> Iterator[list[Any]]:
    """All rows, newest first, each portion by a statement of its own that begins where the last one ended.

    No cursor is held meanwhile: each portion may be read on another thread."""
    ordered = rows.order_by(*newest_first)
    portion = list(ordered[:PORTION])
    while portion:
        yield portion
        portion = list(ordered.filter(_after(portion[-1], newest_first))[:PORTION]) if len(portion) == PORTION else []


def _after(last: Any, newest_first: Sequence[str]) -> Q:
    """The rows after this one in a descending order. The first condition is for the index."""
    names = [name.removeprefix("-") for name in newest_first]
    after = Q()
    for number, name in enumerate(names):
        equal = {before: getattr(last, before) for before in names[:number]}
        after |= Q(**equal, **{f"{name}__lt": getattr(last, name)})
    return Q(**{f"{names[0]}__lte": getattr(last, names[0])}) & after


class _Line:
    """A file that returns what is written to it."""

    def write(self, text: str) -> bytes:
        return text.encode()
