"""The requests of `place_orders`: made up from a seed, or read from a file. `services` validates them."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PEOPLE = (
    ("Ada Lovelace", "Via Roma 1", "Torino", "10121", "IT"),
    ("Bento Alves", "Rua Augusta 24", "Lisboa", "1100-053", "PT"),
    ("Clara Wieck", "Inselstrasse 18", "Leipzig", "04103", "DE"),
    ("Denis Diderot", "Rue Taranne 2", "Paris", "75006", "FR"),
)
ADDRESS = ("name", "line1", "line2", "city", "postal_code", "country")
COLUMNS = ("email", *ADDRESS, "sku", "quantity", "payment_method")
OPTIONAL = ("idempotency_key", "priority", "expected_total", "session_key", "line2")


@dataclass(frozen=True)
class Request:
    """One order request and the line it came from, counted from 1."""

    line: int
    data: dict[str, Any]
    idempotency_key: str | None = None


@dataclass(frozen=True)
class Unreadable:
    """A line that is no order request at all."""

    line: int
    problem: str


def made_up(count: int, skus: Sequence[str], *, seed: int, email: str) -> Iterator[Request]:
    """`count` small orders of these products, the same for the same seed."""
    dice = random.Random(seed)  # noqa: S311 - seeded, so that the orders can be repeated
    for line in range(1, count + 1):
        name, line1, city, postal_code, country = dice.choice(PEOPLE)
        wanted = dice.sample(list(skus), k=min(len(skus), dice.choice((1, 1, 2, 3))))
        yield Request(
            line,
            {
                "email": email,
                "shipping_address": {
                    "name": name,
                    "line1": line1,
                    "line2": "",
                    "city": city,
                    "postal_code": postal_code,
                    "country": country,
                },
                "lines": [{"sku": sku, "quantity": dice.choice((1, 1, 1, 2))} for sku in wanted],
                "payment_method": "pm_card_visa",
            },
        )


def read_file(path: Path) -> Iterator[Request | Unreadable]:
    """The file's orders, line by line. Raises OSError or ValueError if the file as a whole cannot be read."""
    readers = {".csv": _read_csv, ".jsonl": _read_jsonl, ".ndjson": _read_jsonl}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ValueError("the name must end in .csv or .jsonl")
    yield from reader(path)


def _read_jsonl(path: Path) -> Iterator[Request | Unreadable]:
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            if not raw.strip():
                continue
            try:
                data = json.loads(raw)
            except (ValueError, RecursionError):
                yield Unreadable(number, "not JSON")
                continue
            if not isinstance(data, dict):
                yield Unreadable(number, "not a JSON object")
                continue
            key = data.pop("idempotency_key", None)
            if key is not None and not isinstance(key, str):
                yield Unreadable(number, "idempotency_key: expected a string")
                continue
            yield Request(number, data, key)


def _read_csv(path: Path) -> Iterator[Request | Unreadable]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        table = csv.DictReader(file)
        named = table.fieldnames or ()
        if missing := [name for name in COLUMNS if name not in named and name not in OPTIONAL]:
            raise ValueError(f"column missing: {', '.join(missing)}")
        if unknown := [name for name in named if name not in COLUMNS and name not in OPTIONAL]:
            raise ValueError(f"column not known: {', '.join(unknown)}")
        for row in table:
            if None in row or None in row.values():
                yield Unreadable(table.line_num, f"expected {len(named)} cells")
                continue
            yield _row(table.line_num, {name: cell.strip() for name, cell in row.items()})


def _row(number: int, cells: dict[str, str]) -> Request | Unreadable:
    if not cells["quantity"].isdecimal():
        return Unreadable(number, f"quantity: expected a whole number, not {cells['quantity']!r}")
    data: dict[str, Any] = {
        "email": cells["email"],
        "shipping_address": {name: cells.get(name, "") for name in ADDRESS},
        "lines": [{"sku": cells["sku"], "quantity": int(cells["quantity"])}],
        "payment_method": cells["payment_method"],
    }
    for name in ("priority", "expected_total", "session_key"):
        if cells.get(name):
            data[name] = cells[name]
    return Request(number, data, cells.get("idempotency_key") or None)
