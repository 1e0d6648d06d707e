"""The format of the journal's files: CSV according to RFC 4180, UTF-8, safe to open in a spreadsheet.

Pure functions, used by the writer and by the verification of files (`verify`).

Every file begins with a header line. Its first two columns are the journal's own, the others are the names in the bodies
written to it. A text that a spreadsheet would take for a formula gets an apostrophe before it, which `unguarded` removes;
numbers are written unchanged.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

OWN_COLUMNS = ("event_id", "recorded_at")
MOST_COLUMNS = 200
LONGEST_CELL = 32_767  # what a spreadsheet's cell holds
LONGEST_NAME = 200
LINE_END = "\r\n"

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
# Also the full-width forms of a Japanese keyboard: spreadsheets understand both.
_FORMULA = re.compile("'*[=+\\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")


class Unwritable(Exception):
    """This entry cannot be a line of a CSV file; the message says why."""


@lru_cache
def is_name(text: str) -> bool:
    """Whether this can be a key or an event type: folders and files are named after them."""
    return bool(_NAME.fullmatch(text)) and ".." not in text


def read(body: str) -> dict[str, Any]:
    """The cells of an entry's body, by column. Raises Unwritable."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as problem:
        raise Unwritable(f"the body is not JSON: {problem}") from problem
    if not isinstance(value, dict):
        raise Unwritable(f"the body is not an object: {str(value)[:200]}")
    if len(value) > MOST_COLUMNS:
        raise Unwritable(f"the body has {len(value)} columns, at most {MOST_COLUMNS} are written")
    for name in value:
        if name in OWN_COLUMNS:
            raise Unwritable(f"column {name}: this name is the journal's own")
        if not name or len(name) > LONGEST_NAME:
            raise Unwritable(f"a column's name has 1 to {LONGEST_NAME} characters")
        _storable("a column's name", name)
    return {name: cell(name, part) for name, part in value.items()}


def cell(column: str, value: Any) -> str:
    """One value as its cell. Raises Unwritable."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            if isinstance(value, float) and not math.isfinite(value):
                raise Unwritable(f"column {column}: not a number")
            return str(value)
        case str():
            _storable(f"column {column}", value)
            if len(value) > LONGEST_CELL:
                raise Unwritable(f"column {column}: {len(value)} characters, a cell holds {LONGEST_CELL}")
            return guarded(value)
    raise Unwritable(f"column {column}: expected a text, a number, true, false or nothing, got {type(value).__name__}")


def _storable(what: str, text: str) -> None:
    if "\0" in text:
        raise Unwritable(f"{what}: NUL cannot be written")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Unwritable(f"{what}: lone surrogates cannot be written as UTF-8") from None


def guarded(text: str) -> str:
    """The text, with an apostrophe before it if a spreadsheet would take it for a formula."""
    return f"'{text}" if _FORMULA.match(text) else text


def unguarded(text: str) -> str:
    """The text as it was before it was guarded."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def header(columns: Sequence[str]) -> bytes:
    """The first line of a file with these columns."""
    return _lines([[*OWN_COLUMNS, *map(guarded, columns)]])


def line(columns: Sequence[str], event_id: str, recorded_at: datetime, cells: Mapping[str, str]) -> bytes:
    """One entry's line in a file with these columns; columns that the body does not have are empty."""
    return _lines([[guarded(event_id), moment(recorded_at), *(cells.get(name, "") for name in columns)]])


def moment(at: datetime) -> str:
    """A time in the files' format: ISO 8601, UTC, to the microsecond."""
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def _lines(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator=LINE_END).writerows(rows)
    return text.getvalue().encode()


def parse(content: Iterable[str]) -> Iterator[list[str]]:
    """The rows of a file opened with newline="", still guarded. Raises csv.Error if it is not CSV."""
    return csv.reader(content, strict=True)
