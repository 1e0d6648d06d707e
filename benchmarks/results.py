"""The measurements, kept as JSON, and the figures computed from them: medians, spreads, ratios within a pass."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True)
class Spread:
    """The median of the passes, and the smallest and largest."""

    median: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        digits = 0 if abs(self.median) >= 100 else 1 if abs(self.median) >= 10 else 2
        if self.count == 1:
            return f"{self.median:,.{digits}f}"
        return f"{self.median:,.{digits}f} ({self.low:,.{digits}f} - {self.high:,.{digits}f})"


def spread(values: Sequence[float]) -> Spread | None:
    """The spread of these values; None if there are none."""
    return Spread(statistics.median(values), min(values), max(values), len(values)) if values else None


@dataclass
class Results:
    """One run. samples: one per row, entry and pass; titles and skipped: by entry's name."""

    profile: str
    when: str = field(default_factory=lambda: time.strftime("%Y-%m-%d %H:%M"))
    facts: dict[str, str] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    samples: list[dict[str, Any]] = field(default_factory=list)

    def add(self, row: str, entry: str, number: int, facts: dict[str, Any]) -> None:
        """One entry's facts in one pass."""
        self.samples.append({"row": row, "entry": entry, "pass": number, **facts})

    def entries(self, row: str) -> list[str]:
        """The row's entries that have a figure, in the order of measurement."""
        return list(dict.fromkeys(each["entry"] for each in self.samples if each["row"] == row and "error" not in each))

    def of(self, row: str, entry: str) -> list[dict[str, Any]]:
        """One entry's samples."""
        return [each for each in self.samples if each["row"] == row and each["entry"] == entry]

    def by_pass(self, row: str, entry: str, key: str) -> dict[int, float]:
        """One figure, by pass. A key such as `cpu_us.workers` names a figure inside a group."""
        found = {}
        for each in self.of(row, entry):
            value: Any = each
            for part in key.split("."):
                value = value.get(part) if isinstance(value, dict) else None
            if value is not None:
                found[int(each["pass"])] = float(value)
        return found

    def values(self, row: str, entry: str, key: str) -> list[float]:
        """One figure in every pass."""
        return list(self.by_pass(row, entry, key).values())

    def spread(self, row: str, entry: str, key: str) -> Spread | None:
        """One figure over the passes."""
        return spread(self.values(row, entry, key))

    def median(self, row: str, entry: str, key: str) -> float | None:
        """The median of one figure over the passes."""
        found = self.spread(row, entry, key)
        return found.median if found else None

    def ratio(self, above: tuple[str, str], below: tuple[str, str], key: str, below_key: str | None = None) -> Spread | None:
        """One figure over another, pass by pass: both were measured within minutes of each other."""
        first, second = self.by_pass(*above, key), self.by_pass(*below, below_key or key)
        return spread([first[number] / second[number] for number in first if second.get(number)])

    def largest_process_mb(self, row: str, entry: str) -> float | None:
        """The memory of the largest worker process, in any pass."""
        found = [max(each["resident_mb"]) for each in self.of(row, entry) if each.get("resident_mb")]
        return max(found) if found else None

    def errors(self) -> list[str]:
        """Messages about failed measurements, and about orders that did not end."""
        failed = [f"{each['row']}, {each['entry']}, pass {each['pass'] + 1}: {each['error']}" for each in self.samples if "error" in each]
        left = [
            f"{each['row']}, {each['entry']}, pass {each['pass'] + 1}: {each['unfinished']} orders did not end in time"
            for each in self.samples
            if each.get("unfinished")
        ]
        return failed + left

    def save(self, path: Path | None = None) -> Path:
        """Write the results to a file; returns its path."""
        path = path or DIRECTORY / f"{self.when.replace(' ', '-').replace(':', '')}-{self.profile}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")
        return path


def load(path: Path) -> Results:
    """Read results from a file."""
    return Results(**json.loads(path.read_text()))


def sources(runs: Sequence[Results]) -> dict[str, int]:
    """The number of the last of these runs that measured a row, by row."""
    return {each["row"]: number for number, run in enumerate(runs) for each in run.samples}


def joined(runs: Sequence[Results]) -> Results:
    """Several runs as one, for rows that were measured apart. Of a row that more than one has, only the last one's samples count."""
    source = sources(runs)
    samples = [each for number, run in enumerate(runs) for each in run.samples if source[each["row"]] == number]
    merged = {name: {key: value for run in runs for key, value in getattr(run, name).items()} for name in ("facts", "titles", "skipped")}
    return replace(runs[0], samples=samples, **merged)


def newest() -> Path | None:
    """The file of the newest full run; without a full run, of the newest run."""
    found = sorted(DIRECTORY.glob("*.json"))
    full = [path for path in found if path.stem.endswith("-full")]
    return (full or found or [None])[-1]
