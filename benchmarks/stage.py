"""Runs one system for a measurement: with fresh tables and queues, its workers and a client. All of them end afterwards."""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import restate_server
from benchmarks.children import ChildFailed, Children, children
from benchmarks.lab import Lab
from benchmarks.ledger import VARIABLE, Reader
from benchmarks.machine import Parties
from benchmarks.network.links import Links, measured_ms
from benchmarks.systems import System

FIRST_ORDER_SECONDS = 90.0
DRAIN_SECONDS = 45.0
LOOK_SECONDS = 0.1
STEPS = 4  # of an order


@dataclass
class Stage:
    """A running system, and the reader of its counts."""

    lab: Lab
    system: System
    slow: bool
    group: Children
    reader: Reader
    ledger: Path
    extra: Mapping[str, str]
    links: Links | None = None  # None: database and broker are where they are
    seen: Lab = None  # type: ignore[assignment]  # the lab as the system sees it; without links the same

    def __post_init__(self) -> None:
        self.seen = self.seen or self.lab

    def start_workers(self) -> None:
        """Start all of the system's worker processes."""
        host = partial(self.links.far, self.lab) if self.links and self.system.apart else None
        for command in self.system.workers(self.seen, slow=self.slow, host=host):
            self.group.start(_with(command, self.extra))

    def start_client(self, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        """Start the process that submits."""
        self.group.start(_with(self.system.load(self.seen, *arguments, slow=self.slow, env=env), self.extra))

    def stop_client(self) -> int:
        """End the load; returns how many orders it submitted."""
        self.group.stop(["client"])
        lines = (self.group.logs / "client.log").read_text(errors="replace").splitlines()
        facts = [line for line in lines if line.startswith('{"submitted"')]
        if not facts:
            raise ChildFailed(f"the client reported no count: {self.group.last_words('client')}")
        return int(json.loads(facts[-1])["submitted"])

    def parties(self) -> Parties:
        """The processes of workers, client, database and broker."""
        broker = self.lab.broker_processes(self.system.broker or "") + self.group.pids("restate")
        links = self.group.pids("proxy")
        return Parties(self.group.pids("worker"), self.group.pids("client"), self.lab.database_processes(), broker, links)

    def wait_for_orders(self, count: int, patience: float) -> bool:
        """Wait until so many orders are done; returns whether they were in time."""
        deadline = time.monotonic() + patience
        while self.reader.orders() < count:
            if problem := self.group.dead():
                raise ChildFailed(problem)
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def processed(self) -> int:
        """The number of Processed orders in our engine's database."""
        with self.lab.connect("ours") as connection:
            row = connection.execute("SELECT count(*) FROM supervision_run WHERE process_state = 'Processed'").fetchone()
        return int(row[0]) if row else 0

    def unfinished(self, submitted: int, patience: float = DRAIN_SECONDS) -> int:
        """Wait for the orders under way; returns how many did not end in time. Our engine's are counted in the database."""
        counted = self.wait_for_orders(submitted, patience)
        if not self.system.is_ours:
            return 0 if counted else submitted - self.reader.orders()
        deadline = time.monotonic() + (patience if counted else 1.0)
        while (done := self.processed()) < submitted and time.monotonic() < deadline:
            time.sleep(0.1)
        return submitted - done


def _with(command: Any, extra: Mapping[str, str]) -> Any:
    return type(command)(command.name, command.words, {**command.env, **extra}, command.cores)


@contextmanager
def stage(lab: Lab, system: System, *, slow: bool = False, env: Mapping[str, str] | None = None) -> Iterator[Stage]:
    """The system with fresh tables and queues. No process runs yet, except for Restate's server."""
    if system.kind:
        lab.fresh_database(system.kind)
    lab.empty_broker(system.broker or "")
    ledger = Path(tempfile.mkdtemp(prefix="ledger-", dir=lab.directory))
    extra = {VARIABLE: str(ledger), **(env or {})}
    logs = lab.directory / "log" / f"{system.name}-{ledger.name}"
    with contextlib.ExitStack() as leaving:
        leaving.callback(shutil.rmtree, ledger, ignore_errors=True)
        group = leaving.enter_context(children(logs))
        links = None if system.delay_ms is None else Links(group, system.delay_ms)
        if system.peer == "restate":
            extra |= restate_server.start(group, lab, links)
        seen = links.far(lab) if links and system.peer != "restate" else lab
        yield Stage(lab, system, slow, group, Reader(ledger), ledger, extra, links, seen)


@dataclass
class Window:
    """The measurements of one period. orders: steps / 4, because some systems finish orders in bursts, but steps steadily."""

    seconds: float
    orders: float
    steps: int
    cpu: dict[str, float]
    wal: int
    resident: list[float]
    durations: list[float]

    def facts(self) -> dict[str, Any]:
        """The figures for the results."""
        orders = max(1, self.orders)
        cpu = {group: seconds / orders * 1e6 for group, seconds in self.cpu.items()}
        return {
            "orders_per_second": self.orders / self.seconds,
            "steps_per_second": self.steps / self.seconds,
            "seconds": self.seconds,
            "orders": self.orders,
            "cpu_us": cpu,
            "cpu_us_all": sum(used for group, used in cpu.items() if group != "links"),
            "wal_bytes": self.wal / orders,
            "resident_mb": self.resident,
            "p50_ms": _percentile(self.durations, 0.5) * 1000,
            "p99_ms": _percentile(self.durations, 0.99) * 1000,
        }


def observe(play: Stage, seconds: float) -> Window:
    """Measure the running system for so many seconds."""
    parties = play.parties()
    marks, (steps, _) = play.reader.marks(), play.reader.counts()
    cpu, wal, began = parties.cpu_seconds(), play.lab.wal(), time.monotonic()
    while (now := time.monotonic() - began) < seconds:
        time.sleep(min(LOOK_SECONDS, seconds - now))
        if problem := play.group.dead():
            raise ChildFailed(problem)
    (steps_after, _), took = play.reader.counts(), time.monotonic() - began
    cpu_after, wal_after = parties.cpu_seconds(), play.lab.wal()
    return Window(
        seconds=took,
        orders=(steps_after - steps) / STEPS,
        steps=steps_after - steps,
        cpu={group: cpu_after[group] - cpu[group] for group in cpu},
        wal=wal_after - wal,
        resident=parties.resident_mb(),
        durations=play.reader.seconds(marks),
    )


def closed_loop(lab: Lab, system: System, *, seconds: float, warm: float, slow: bool = False) -> dict[str, Any]:
    """Measure orders a second in steady state, and the cost of one. All accepted orders must end well afterwards."""
    with stage(lab, system, slow=slow) as play:
        play.start_workers()
        window = system.wide if slow else system.window
        play.start_client("--window", str(window), "--threads", str(system.threads))
        if not play.wait_for_orders(1, FIRST_ORDER_SECONDS):
            raise ChildFailed(f"no order was done in {FIRST_ORDER_SECONDS:.0f} s: {_all_last_words(play)}")
        time.sleep(warm)
        facts = observe(play, seconds).facts()
        submitted = play.stop_client()
        return {**facts, "submitted": submitted, "unfinished": play.unfinished(submitted)}


def at_rate(lab: Lab, system: System, *, rate: float, seconds: float, slow: bool = False) -> dict[str, Any]:
    """Measure latency at a low rate: from before the submission to the last step's end (our engine: the run's last commit)."""
    with stage(lab, system, slow=slow) as play:
        play.start_workers()
        play.start_client("--rate", str(rate), env={"BENCH_HEARD": "1"})
        if not play.wait_for_orders(1, FIRST_ORDER_SECONDS):
            raise ChildFailed(f"no order was done in {FIRST_ORDER_SECONDS:.0f} s: {_all_last_words(play)}")
        time.sleep(3.0)  # until all processes have opened their connections
        marks = play.reader.marks()
        time.sleep(seconds)
        durations = play.reader.seconds(marks)
        submitted = play.stop_client()
        return {
            "p50_ms": _percentile(durations, 0.5) * 1000,
            "p99_ms": _percentile(durations, 0.99) * 1000,
            "mean_ms": statistics.fmean(durations) * 1000 if durations else 0.0,
            "samples": len(durations),
            "unfinished": play.unfinished(submitted),
        }


def over_network(lab: Lab, system: System, *, seconds: float, warm: float, rate: float, rate_seconds: float) -> dict[str, Any]:
    """Orders a second, then latency at a low rate, of a system behind its links, and the round trip that the links really make."""
    with stage(lab, system) as play:
        measured = measured_ms(lab, play.seen) if play.links and system.kind else None
    loop = closed_loop(lab, system, seconds=seconds, warm=warm)
    return {**loop, **at_rate(lab, system, rate=rate, seconds=rate_seconds), "unfinished": loop["unfinished"], "measured_ms": measured}


def _percentile(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0


def _all_last_words(play: Stage) -> str:
    return "; ".join(f"{name}: {play.group.last_words(name)}" for name in play.group.running)
