"""What PostgreSQL's JSON and text refuse: recognised, replaced, or kept without loss.

PostgreSQL's JSON takes neither NUL nor lone surrogates, and JSON has no bytes, times or infinities. `takes` says whether a value
holds a text that the column refuses; `text` escapes it. `storable` and `restored` convert the values of message headers to JSON
and back: a value that JSON cannot hold becomes an object with one key. The key begins with a dollar sign and names the type.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

BYTES, TEXT, TIME, DECIMAL, NUMBER, PAIRS, OTHER = "$bytes", "$text", "$time", "$decimal", "$number", "$pairs", "$other"
MARKS = frozenset({BYTES, TEXT, TIME, DECIMAL, NUMBER, PAIRS, OTHER})
MOST_DEPTH = 50
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# The same in JSON that is not escaped to ASCII. A NUL stands there as an escape, which an even number of backslashes precedes.
_UNSTORABLE_JSON = re.compile(r"(?<!\\)(?:\\\\)*\\u0000|[\ud800-\udfff]")


def text(value: str) -> str:
    """For a text column: NUL and lone surrogates as visible escapes."""
    return _UNSTORABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", value)


def takes(value: Any) -> bool:
    """Whether a JSON column takes the texts of this value, which JSON can hold."""
    return not _UNSTORABLE_JSON.search(json.dumps(value, ensure_ascii=False))


def storable(value: Any, depth: int = 0) -> Any:
    """The value in a form that a JSON column takes."""
    if depth > MOST_DEPTH:
        return {OTHER: "nested too deeply"}
    if isinstance(value, str):
        return {TEXT: b64encode(value.encode("utf-8", "surrogatepass")).decode()} if _UNSTORABLE.search(value) else value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) < 10**1000 else {NUMBER: hex(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else {NUMBER: repr(value)}
    if isinstance(value, bytes | bytearray | memoryview):
        return {BYTES: b64encode(bytes(value)).decode()}
    if isinstance(value, datetime | date):
        return {TIME: value.isoformat()}
    if isinstance(value, Decimal):
        return {DECIMAL: str(value)}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and not _UNSTORABLE.search(key) for key in value) and not MARKS & value.keys():
            return {key: storable(part, depth + 1) for key, part in value.items()}
        return {PAIRS: [[storable(key, depth + 1), storable(part, depth + 1)] for key, part in value.items()]}
    if isinstance(value, list | tuple | set | frozenset):
        return [storable(part, depth + 1) for part in value]
    return {OTHER: text(repr(value)[:1000])}


def restored(value: Any) -> Any:
    """The value that was given to `storable`. Raises ValueError where it could not be kept."""
    if isinstance(value, list):
        return [restored(part) for part in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        [(mark, kept)] = value.items()
        if mark in MARKS:
            return _of_mark(mark, kept)
    return {key: restored(part) for key, part in value.items()}


def _of_mark(mark: str, kept: Any) -> Any:
    if mark == BYTES:
        return b64decode(kept)
    if mark == TEXT:
        return b64decode(kept).decode("utf-8", "surrogatepass")
    if mark == TIME:
        return datetime.fromisoformat(kept)
    if mark == DECIMAL:
        return Decimal(kept)
    if mark == NUMBER:
        return int(kept, 16) if "0x" in kept else float(kept)
    if mark == PAIRS:
        return {restored(key): restored(part) for key, part in kept}
    raise ValueError(kept)
