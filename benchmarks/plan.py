"""The three profiles: how long and how often each row is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.lab import Lab

Facts = dict[str, Any]


@dataclass(frozen=True)
class Profile:
    """One way to run the benchmark."""

    name: str
    passes: int
    seconds: float  # of steady state per pass and system
    warm: float
    latency_seconds: float  # at 10 orders/s
    backlog: int  # orders
    finished: int  # steps in the large table
    snapshot: int  # orders consumed while a snapshot is held
    api_seconds: float
    network_seconds: float  # of steady state behind each delay; latency is measured for twice as long
    rows: tuple[str, ...]
    peers: tuple[str, ...]


ALL_ROWS = tuple(
    "floor throughput bulk effects shapes brokers slow latency branches drain store verbs api growth recovery network".split()  # noqa: SIM905
)
ALL_PEERS = ("chain", "usual", "dbos", "procrastinate", "restate", "absurd")
PROFILES = {
    "smoke": Profile("smoke", 1, 2.0, 1.0, 4.0, 4_000, 20_000, 2_000, 2.0, 2.0, ("throughput", "latency", "drain"), ("chain", "dbos")),
    "quick": Profile("quick", 1, 4.0, 2.0, 12.0, 20_000, 100_000, 20_000, 5.0, 3.0, ALL_ROWS, ALL_PEERS),
    "full": Profile("full", 3, 8.0, 3.0, 20.0, 100_000, 1_000_000, 100_000, 10.0, 5.0, ALL_ROWS, ALL_PEERS),
}


@dataclass(frozen=True)
class Entry:
    """One line of a row: what is measured, and why it may have to be left out."""

    name: str
    title: str
    measure: Callable[[Lab, Profile], Facts]
    missing: Callable[[Lab], str | None] = lambda lab: None
    peer: str | None = None


@dataclass(frozen=True)
class Row:
    """Entries that are compared with each other, in turn in every pass."""

    name: str
    title: str
    entries: Callable[[Profile], Sequence[Entry]]


def chosen(rows: Mapping[str, Row], profile: Profile, peers: Sequence[str]) -> list[tuple[Row, list[Entry]]]:
    """The profile's rows with the entries that are wanted."""
    wanted = [(rows[name], rows[name].entries(profile)) for name in profile.rows]
    return [(row, [entry for entry in entries if entry.peer is None or entry.peer in peers]) for row, entries in wanted]
