"""The goals of the benchmark, and whether a run has reached them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.results import Results, Spread, spread

OURS = ("throughput", "ours-4")
FAR = ("network", "ours-4+1ms")
NEAR = ("network", "ours-4+0ms")


@dataclass(frozen=True)
class Goal:
    """One figure and its bound: a lower bound, or with `at_most` an upper bound."""

    title: str
    bound: float
    measured: Callable[[Results], Spread | None]
    unit: str = ""
    at_most: bool = False

    def verdict(self, results: Results) -> tuple[str, str] | None:
        """The figure as text, and whether the goal is reached; None where it was not measured."""
        found = self.measured(results)
        if found is None:
            return None
        reached = found.median <= self.bound if self.at_most else found.median >= self.bound
        return f"{found}{self.unit}", "yes" if reached else "no"

    @property
    def wanted(self) -> str:
        """The bound as text."""
        return f"{'<=' if self.at_most else '>='} {self.bound:,g}{self.unit}"


Figure = Callable[[Results], Spread | None]


def _ratio(above: tuple[str, str], below: tuple[str, str], key: str = "orders_per_second", below_key: str | None = None) -> Figure:
    return lambda results: results.ratio(above, below, key, below_key)


def _faster_than(row: str, peer: str, key: str = "orders_per_second") -> Figure:
    return _ratio((row, "ours-4"), (row, peer), key)


def _of(row: str, entry: str, key: str) -> Figure:
    return lambda results: results.spread(row, entry, key)


def _memory(results: Results) -> Spread | None:
    found = [results.largest_process_mb(row, entry) for row, entry in (OURS, ("drain", "drain"), ("slow", "ours-4"))]
    return spread([max(value for value in found if value is not None)]) if any(found) else None


def _added(results: Results) -> Spread | None:
    """How many milliseconds 1 ms more in a round trip adds to the median."""
    far, near = (results.by_pass(*entry, "p50_ms") for entry in (FAR, NEAR))
    return spread([far[number] - near[number] for number in far if number in near])


def _lead(results: Results) -> Spread | None:
    """Our lead over a peer behind a network against our lead without: the smallest, over all peers and delays."""
    found = []
    for entry in results.entries("network"):
        peer, _, delay = entry.partition("+")
        leads = [results.ratio(("network", f"ours-4+{at}"), ("network", f"{peer}+{at}"), "orders_per_second") for at in (delay, "0ms")]
        if peer != "ours-4" and delay != "0ms" and leads[0] and leads[1]:
            found.append(leads[0].median / leads[1].median)
    return spread([min(found)]) if found else None


GOALS = (
    Goal("no-op orders/s against DBOS", 20, _faster_than("throughput", "dbos"), " x"),
    Goal("no-op orders/s against Restate", 8, _faster_than("throughput", "restate"), " x"),
    Goal("no-op orders/s against the plain Celery chain", 10, _faster_than("throughput", "chain"), " x"),
    Goal("no-op orders/s against the usual Django + Celery", 24, _faster_than("throughput", "usual"), " x"),
    Goal("no-op orders/s against Absurd", 12, _faster_than("throughput", "absurd"), " x"),
    Goal("no-op orders/s against Procrastinate", 10, _faster_than("throughput", "procrastinate"), " x"),
    Goal(
        "bulk submission against our own one commit each, one client thread",
        2,
        _ratio(("bulk", "ours-bulk"), ("throughput", "ours-1")),
        " x",
    ),
    Goal("engine only, one agents process, durable steps/s", 35_000, _of("drain", "drain", "steps_per_second")),
    Goal(
        "the same against the plain chain's orders/s (35,000 and 312 where the goal was set)",
        112,
        _ratio(("drain", "drain"), ("throughput", "chain"), "steps_per_second", "orders_per_second"),
        " x",
    ),
    Goal("steps of 20 ms against DBOS", 6, _faster_than("slow", "dbos"), " x"),
    Goal("steps of 20 ms against Restate", 2, _faster_than("slow", "restate"), " x"),
    Goal(
        "steps of 20 ms, four agents processes against one",
        3.7,
        _ratio(("growth", "ours-agents-4"), ("growth", "ours-agents-1")),
        " x",
    ),
    Goal("median latency at 10 orders/s against the chain", 0.8, _faster_than("latency", "chain", "p50_ms"), " x", at_most=True),
    *(
        Goal(f"the same on {title}", 0.9, _ratio(("latency", entry), ("latency", "chain"), "p50_ms"), " x", at_most=True)
        for title, entry in (("pgmq", "ours-pgmq"), ("Redis", "ours-redis"))
    ),
    Goal("p99 of it against the chain", 1.2, _faster_than("latency", "chain", "p99_ms"), " x", at_most=True),
    Goal(
        "four steps of 20 ms in two branches, median against the list",
        0.6,
        _ratio(("branches", "ours-branches"), ("branches", "ours-4"), "p50_ms"),
        " x",
        at_most=True,
    ),
    Goal("1 ms more to database and broker, orders/s against none", 0.8, _ratio(FAR, NEAR), " x"),
    Goal("1 ms more to database and broker, median at 10 orders/s, more by", 9, _added, " ms", at_most=True),
    Goal("behind a network: the lead over each peer against the lead without", 1, _lead, " x"),
    Goal("CPU per order, all processes", 400, _of(*OURS, "cpu_us_all"), " us", at_most=True),
    Goal(
        "the same against the plain chain's (400 and 5,483 us where the goal was set)",
        0.073,
        _ratio(OURS, ("throughput", "chain"), "cpu_us_all"),
        " x",
        at_most=True,
    ),
    Goal("CPU per order, 200 orders per commit", 240, _of("bulk", "ours-bulk", "cpu_us_all"), " us", at_most=True),
    Goal("write-ahead log per order", 7_000, _of(*OURS, "wal_bytes"), " bytes", at_most=True),
    Goal("claim beside many finished rows against few", 1.2, _ratio(("store", "many"), ("store", "few"), "claim_ms"), " x", at_most=True),
    Goal("sweep beside many finished rows against few", 1.2, _ratio(("store", "many"), ("store", "few"), "sweep_ms"), " x", at_most=True),
    Goal("sweep of 1,000 expired", 200, _of("store", "many", "sweep_ms"), " ms", at_most=True),
    Goal(
        "claim while a snapshot is held against none",
        1.2,
        _ratio(("store", "held"), ("store", "free"), "claim_last_ms"),
        " x",
        at_most=True,
    ),
    Goal("one step of four with a ledger row against none", 0.85, _ratio(("effects", "ours-effect"), OURS), " x"),
    Goal("pgmq against RabbitMQ", 0.55, _ratio(("brokers", "ours-pgmq"), OURS), " x"),
    Goal("API: orders accepted, two web processes on one core", 300, _of("api", "api", "accepted_per_second"), "/s"),
    Goal("API: p99 of the answer meanwhile", 100, _of("api", "api", "p99_ms"), " ms", at_most=True),
    Goal(
        "throughput over the backlog, last third against first",
        0.9,
        _ratio(("drain", "drain"), ("drain", "drain"), "last_third", "first_third"),
        " x",
    ),
    Goal("memory of the largest worker process", 150, _memory, " MB", at_most=True),
    Goal("back to 90 % after SIGKILL of all workers", 6, _of("recovery", "kill", "recovered_seconds"), " s", at_most=True),
)
