"""Results as tables, for the terminal and for `docs/performance.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from benchmarks.goals import GOALS
from benchmarks.results import Results, Spread
from benchmarks.systems import SYSTEMS

GROUPS = ("workers", "client", "database", "broker")


def tables(results: Results) -> Iterator[tuple[str, list[list[str]]]]:
    """Each table with its title; the first line of each is its head."""
    for title, rows in (
        ("Goals", list(_goals(results))),
        ("Four no-op steps, closed loop", list(_loops(results, ("throughput", "bulk", "effects", "shapes", "brokers"), "throughput"))),
        ("Four steps of 20 ms, closed loop", list(_loops(results, ("slow",), "slow"))),
        ("Latency at 10 orders/s", list(_latency(results))),
        ("Four steps of 20 ms at 10 orders/s, as a list and in two branches", list(_latency(results, "branches"))),
        ("Engine only: a backlog worked off by one agents process", list(_drain(results))),
        ("Claim of 200 and sweep of 1,000 expired, ms", list(_store(results))),
        ("Where the time goes: microseconds of CPU and bytes of log per order", list(_verbs(results))),
        ("API and storefront: two web processes on one core", list(_api(results))),
        ("Growth with agents processes", list(_growth(results))),
        ("Database and broker on other hosts: proxies make each round trip longer", list(_network(results))),
        ("SIGKILL for all workers at full load", list(_recovery(results))),
    ):
        if len(rows) > 1:
            yield title, rows


def _text(found: Spread | None, unit: str = "") -> str:
    return "" if found is None else f"{found}{unit}"


def _goals(results: Results) -> Iterator[list[str]]:
    yield ["what", "goal", "measured", "reached"]
    for goal in GOALS:
        verdict = goal.verdict(results)
        if verdict is not None:
            yield [goal.title, goal.wanted, *verdict]


def _loops(results: Results, rows: Sequence[str], reference: str) -> Iterator[list[str]]:
    ours = (reference, "ours-4")
    yield [
        "system",
        "step state",
        "orders/s",
        "ours / it",
        "CPU us/order: workers + client + PostgreSQL + broker = all",
        "WAL bytes/order",
        "worker MB",
    ]
    for row in rows:
        for entry in results.entries(row):
            cpu = [results.median(row, entry, f"cpu_us.{group}") or 0.0 for group in GROUPS]
            memory = [sum(each["resident_mb"]) for each in results.of(row, entry) if each.get("resident_mb")]
            yield [
                results.titles.get(f"{row}/{entry}", entry),
                SYSTEMS[entry].durable if entry in SYSTEMS else "yes",
                _text(results.spread(row, entry, "orders_per_second")),
                "" if (row, entry) == ours else _text(results.ratio(ours, (row, entry), "orders_per_second"), " x"),
                f"{' + '.join(f'{value:,.0f}' for value in cpu)} = {sum(cpu):,.0f}",
                f"{results.median(row, entry, 'wal_bytes') or 0:,.0f}",
                f"{max(memory):,.0f}" if memory else "",
            ]


def _latency(results: Results, row: str = "latency") -> Iterator[list[str]]:
    if not results.entries(row):
        return
    yield ["system", "median ms", "p99 ms", "median, ours / it", "samples per pass"]
    for entry in results.entries(row):
        yield [
            results.titles.get(f"{row}/{entry}", entry),
            _text(results.spread(row, entry, "p50_ms")),
            _text(results.spread(row, entry, "p99_ms")),
            "" if entry == "ours-4" else _text(results.ratio((row, "ours-4"), (row, entry), "p50_ms"), " x"),
            f"{results.median(row, entry, 'samples') or 0:,.0f}",
        ]


def _drain(results: Results) -> Iterator[list[str]]:
    yield [
        "what",
        "durable steps/s",
        "orders/s",
        "steps/s, first third",
        "steps/s, last third",
        "CPU us/order",
        "WAL bytes/order",
        "largest process MB",
    ]
    for entry in results.entries("drain"):
        keys = ("steps_per_second", "orders_per_second", "first_third", "last_third", "cpu_us_all", "wal_bytes")
        figures = [_text(results.spread("drain", entry, key)) for key in keys]
        yield [results.titles.get(f"drain/{entry}", entry), *figures, f"{results.largest_process_mb('drain', entry) or 0:,.0f}"]


def _store(results: Results) -> Iterator[list[str]]:
    yield ["beside", "claim", "sweep", "sweep with nothing to do", "consume 200: first, last", "claim 200: first, last"]
    for entry in results.entries("store"):
        single = [_text(results.spread("store", entry, key)) for key in ("claim_ms", "sweep_ms", "idle_sweep_ms")]
        pairs = [
            ", ".join(filter(None, (_text(results.spread("store", entry, f"{verb}_{which}_ms")) for which in ("first", "last"))))
            for verb in ("consume", "claim")
        ]
        yield [results.titles.get(f"store/{entry}", entry), *single, *pairs]


def _verbs(results: Results) -> Iterator[list[str]]:
    yield ["orders at once", "verb", "PostgreSQL us", "Python us", "WAL bytes"]
    for entry in results.entries("verbs"):
        totals = [0.0, 0.0, 0.0]
        title = results.titles.get(f"verbs/{entry}", entry)
        for verb in next(each["verbs"] for each in results.of("verbs", entry) if "verbs" in each):
            costs = [results.median("verbs", entry, f"verbs.{verb}.{name}") or 0.0 for name in ("server_us", "python_us", "wal_bytes")]
            totals = [total + cost for total, cost in zip(totals, costs, strict=True)]
            yield [title, verb, *(f"{cost:,.0f}" for cost in costs)]
        yield [title, "all", *(f"{total:,.0f}" for total in totals)]


def _api(results: Results) -> Iterator[list[str]]:
    yield ["what", "per second", "median ms", "p99 ms", "besides"]
    if results.entries("api"):
        done, used = results.spread("api", "api", "processed_meanwhile"), results.spread("api", "api", "web_us")
        answers = [_text(results.spread("api", "api", key)) for key in ("accepted_per_second", "p50_ms", "p99_ms")]
        yield [
            "POST /api/v1/orders/, 8 connections",
            *answers,
            f"{_text(used)} us of the web processes each; {_text(done)} orders Processed meanwhile",
        ]
        pages = [_text(results.spread("api", "api", key)) for key in ("pages_per_second", "page_p50_ms", "page_p99_ms")]
        yield ["GET / (the storefront), 4 connections", *pages, "the workers still at work"]


def _network(results: Results) -> Iterator[list[str]]:
    yield [
        "system",
        "round trip longer by, ms",
        "orders/s",
        "against 0 ms",
        "ours / it",
        "median ms at 10 orders/s",
        "more than at 0 ms",
        "p99 ms",
        "proxies' CPU us/order",
    ]
    for entry in results.entries("network"):
        name, _, delay = entry.partition("+")
        none, ours = ("network", f"{name}+0ms"), ("network", f"ours-4+{delay}")
        here, measured = ("network", entry), results.median("network", entry, "measured_ms")
        slower, base = results.median(*here, "p50_ms"), results.median(*none, "p50_ms")
        yield [
            results.titles.get(f"network/{entry}", entry).rpartition(",")[0],
            delay.removesuffix("ms") + (f" (measured {measured:.2f})" if measured is not None else ""),
            _text(results.spread(*here, "orders_per_second")),
            _text(results.ratio(here, none, "orders_per_second"), " x"),
            "" if name == "ours-4" else _text(results.ratio(ours, here, "orders_per_second"), " x"),
            _text(results.spread(*here, "p50_ms")),
            "" if slower is None or base is None else f"{slower - base:+.1f}",
            _text(results.spread(*here, "p99_ms")),
            f"{results.median(*here, 'cpu_us.links') or 0:,.0f}",
        ]


def _growth(results: Results) -> Iterator[list[str]]:
    yield ["system", "orders/s", "against one process"]
    for entry in results.entries("growth"):
        one = re.sub(r"agents-\d+", "agents-1", entry)
        ratio = "" if entry == one else _text(results.ratio(("growth", entry), ("growth", one), "orders_per_second"), " x")
        yield [results.titles.get(f"growth/{entry}", entry), _text(results.spread("growth", entry, "orders_per_second")), ratio]


def _recovery(results: Results) -> Iterator[list[str]]:
    yield [
        "orders/s before",
        "steps claimed at the kill",
        "seconds to 90 %",
        "seconds to the end of the last order it hit",
        "complete_by + sweep, s",
    ]
    if results.entries("recovery"):
        keys = ("orders_per_second", "hit", "recovered_seconds", "last_hit_seconds", "allowed_seconds")
        yield [_text(results.spread("recovery", "kill", key)) for key in keys]


def as_markdown(rows: Sequence[Sequence[str]]) -> str:
    """A table in GitHub's Markdown."""
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
