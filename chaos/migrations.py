"""`./run drill migrations`: every migration since release 0.1.0, on tables with many rows, while orders are taken.

`manage.py migrate` runs once, as an operator runs it. For each migration are measured: how long it took, the longest statement
that a client had meanwhile, how much of that was a wait for a lock, and the strongest lock on each table that was there before.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from chaos.old_tables import FIRST_RELEASE, fill, watched
from chaos.order_load import Load
from sasproject.roles import ROOT
from supervision.embedded.server import EmbeddedPostgres

CALM_SECONDS = 10.0
MOST_MS = 200.0
Result = tuple[dict[str, Any], list[str]]
AFTERWARDS = "after the last migration"
# From the weakest to the strongest. All but the first stop writers.
MODES = ("ShareUpdateExclusive", "Share", "ShareRowExclusive", "Exclusive", "AccessExclusive")


@dataclass
class Step:
    """One migration: when it began and ended, in seconds since the epoch, and how often it was begun."""

    name: str
    began: float
    ended: float = 0.0
    tries: int = 1
    locks: dict[str, str] = field(default_factory=dict)  # table -> the strongest lock


def drill(directory: Path, *, events: int, rate: float, most_ms: float, say: Callable[[str], None]) -> Result:
    """Run the drill on a server of its own; returns its figures, and one line for each thing that is wrong."""
    directory.mkdir(parents=True, exist_ok=True)
    with EmbeddedPostgres(directory / "postgres") as postgres:
        orders = make_old(postgres.url, events, say)
        figures, wrong = migrations(postgres.url, directory, rate=rate, say=say, most_ms=most_ms)
        return {"orders in the tables": f"{orders:,}", **figures}, wrong


def make_old(database_url: str, events: int, say: Callable[[str], None]) -> int:
    """Make the tables of release 0.1.0 in an empty database, with so many events; returns how many orders these are."""
    say("making the tables of release 0.1.0")
    for app, name in FIRST_RELEASE:
        subprocess.run([sys.executable, "manage.py", "migrate", app, name, "-v0"], env=_env(database_url), cwd=ROOT, check=True)
    say(f"filling them: {events:,} events")
    return fill(database_url, events, say)


def migrations(
    database_url: str, directory: Path, *, rate: float, say: Callable[[str], None], calm: float = CALM_SECONDS,
    most_ms: float = MOST_MS, **environ: str,
) -> Result:  # fmt: skip
    """Run the drill on such a database; returns its figures, and one line for each thing that is wrong.

    rate: orders a second. calm: seconds of orders before `migrate` begins. most_ms: a longer stall is wrong. environ: variables for
    `manage.py migrate`. The figures of each migration are in the file `migrations.json` of the directory, too.
    """
    env = {**_env(database_url), **environ}
    load = Load(database_url, rate)
    with watched(database_url) as notes:
        load.start()
        began = time.time()
        time.sleep(calm)
        calm_end = time.time()
        say("migrating")
        code, steps, told = _migrate(env, say)
        load.stop()
        locks = notes()
    for note in locks:
        of = next((step for step in steps if step.began <= note["at"] <= step.ended), steps[-1])
        mode = note["mode"].removesuffix("Lock")
        of.locks[note["table"]] = max(of.locks.get(note["table"], mode), mode, key=MODES.index)
    rows = [_row(step, load) for step in steps]
    (directory / "migrations.json").write_text(json.dumps(rows, indent=1))
    figures = {
        "orders taken meanwhile": load.finished,
        "calm: p99, longest statement, ms": f"{_ms(load.p99(began, calm_end))}, {_ms(load.longest(began, calm_end)[0])}",
        "migrating, s": round(steps[-1].ended - steps[0].began, 1),
        "migrating: p99, ms": _ms(load.p99(steps[0].began, steps[-1].ended)),
        "longest stall, ms": max(row["stall_ms"] for row in rows),
        "longest wait for a lock, ms": max(row["lock_wait_ms"] for row in rows),
        **{row["name"]: _line(row) for row in rows},
    }
    wrong = [f"a statement of an order failed: {error}" for error in sorted(set(load.errors))]
    wrong += [f"migrate ended with {code}: {told[-500:]}"] if code else []
    wrong += [f"{row['name']} stalled a client for {row['stall_ms']} ms at {row['stalled']}" for row in rows if row["stall_ms"] > most_ms]
    wrong += [f"{table} was rewritten" for table in sorted({note["table"] for note in locks if note["rewritten"]})]
    wrong += [
        f"{row['name']} built an index of {table} while nothing could be written there"
        for row in rows
        for table, mode in row["locks"].items()
        if mode == "Share"
    ]
    return figures, wrong


def _env(database_url: str) -> dict[str, str]:
    return {**os.environ, "DATABASE_URL": database_url, "CELERY_BROKER_URL": "memory://", "DEBUG": "1", "PYTHONUNBUFFERED": "1"}


def _migrate(env: dict[str, str], say: Callable[[str], None]) -> tuple[int, list[Step], str]:
    """Run `migrate`, and note when it begins and ends each migration; returns its exit code, these, and what it said of errors."""
    steps: list[Step] = []
    with subprocess.Popen(
        [sys.executable, "manage.py", "migrate", "--no-color"], env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        _follow(process.stdout, steps, say)
        told = process.stderr.read().decode(errors="replace")
    last = steps[-1].ended if steps else time.time()
    steps.append(Step(AFTERWARDS, last, time.time()))
    return process.returncode, steps, told


def _follow(pipe: IO[bytes], steps: list[Step], say: Callable[[str], None]) -> None:
    text, tries = "", defaultdict(int)  # type: ignore[var-annotated]
    while part := os.read(pipe.fileno(), 65536):
        text += part.decode(errors="replace")
        while found := re.search(r"Applying (\S+)\.\.\.|( OK)\n", text):
            text = text[found.end() :]
            if found[2]:
                steps[-1].ended = time.time()
                say(f"{steps[-1].name}: {steps[-1].ended - steps[-1].began:.1f} s")
                continue
            tries[found[1]] += 1
            if tries[found[1]] == 1:
                steps.append(Step(found[1], time.time()))
            steps[-1].tries = tries[found[1]]
    for step in steps:
        step.ended = step.ended or time.time()


def _row(step: Step, load: Load) -> dict[str, Any]:
    stall, what = load.longest(step.began, step.ended)
    return {
        "name": step.name,
        "seconds": round(step.ended - step.began, 2),
        "tries": step.tries,
        "stall_ms": _ms(stall),
        "stalled": what,
        "lock_wait_ms": _ms(load.longest_wait(step.began, step.ended)),
        "locks": step.locks,
    }


def _line(row: dict[str, Any]) -> str:
    locks = ", ".join(f"{mode} {table}" for table, mode in sorted(row["locks"].items()))
    again = f", {row['tries']} tries" if row["tries"] > 1 else ""
    return f"{row['seconds']:8.2f} s{again}, stall {row['stall_ms']} ms ({row['stalled']}), lock {row['lock_wait_ms']} ms  {locks}"


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)
