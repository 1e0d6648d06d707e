"""Measures the engine and its peers on the same PostgreSQL and broker, with every guarantee on.

  ./run bench smoke|quick|full    measure (about 2, 20 and 110 minutes); prints tables, keeps JSON in benchmarks/results/
  ./run bench report [FILE ...]   write the newest full run (or these) into docs/performance.md and docs/performance.svg

DATABASE_URL names a server on which databases may be created, CELERY_BROKER_URL a RabbitMQ, REDIS_URL a Redis. A server
that is not named is looked for on this machine; without a PostgreSQL there, one is started. The benchmark removes
everything that it creates. It refuses a server whose fsync or synchronous_commit is off.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import django
import psycopg

from benchmarks import environment, machine, report, results, tables
from benchmarks.brokers import NotMeasurable
from benchmarks.lab import Lab, open_lab
from benchmarks.plan import ALL_PEERS, ALL_ROWS, PROFILES, Entry, Profile, Row, chosen
from benchmarks.rows import ROWS
from supervision.embedded.binaries import EmbeddedPostgresError
from supervision.embedded.server import EmbeddedPostgres

DATABASE_URL = "postgres://postgres@127.0.0.1:5432/postgres"
BROKER_URL = "amqp://guest:guest@127.0.0.1:5672//"
REDIS_URL = "redis://127.0.0.1:6379/0"


def say(text: str) -> None:
    """Print progress to standard error. Standard output has only the tables."""
    print(f"bench: {text}", file=sys.stderr, flush=True)


def names(known: tuple[str, ...], kind: str):
    """An option that takes some of these, comma separated."""

    def parse(text: str) -> tuple[str, ...]:
        given = tuple(name for name in text.split(",") if name)
        unknown = [name for name in given if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown {kind} {', '.join(unknown)}; known: {', '.join(known)}")
        return given

    return parse


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="./run bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=(*PROFILES, "report"), default="quick", help="(quick)")
    parser.add_argument("file", nargs="*", type=Path, help="report: the results to write")
    parser.add_argument("--only", type=names(ALL_ROWS, "row"), metavar="ROWS", help=f"of {','.join(ALL_ROWS)}")
    parser.add_argument("--peers", type=names((*ALL_PEERS, "none"), "peer"), metavar="PEERS", help=f"of {','.join(ALL_PEERS)}, or none")
    parser.add_argument("--passes", type=int, help="how often everything is measured in turn")
    parser.add_argument("--output", type=Path, metavar="FILE", help="where the JSON goes")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.what == "report":
        return write_report(options.file)
    if options.file:
        parser.error("a file is for report only")
    profile = PROFILES[options.what]
    peers = profile.peers if options.peers is None else tuple(name for name in options.peers if name != "none")
    profile = replace(profile, rows=options.only or profile.rows, passes=max(1, options.passes or profile.passes), peers=peers)
    try:
        found = measure(profile)
    except (NotMeasurable, EmbeddedPostgresError, psycopg.Error) as problem:
        print(f"bench: {str(problem).strip()}", file=sys.stderr)
        return 2
    path = found.save(options.output)
    show(found)
    print(f"\nkept in {path}")
    return 1 if found.errors() else 0


def write_report(paths: Sequence[Path]) -> int:
    """Write the results into the documents."""
    paths = paths or [path for path in [results.newest()] if path]
    missing = next((path for path in paths or [results.DIRECTORY] if not path.is_file()), None)
    if missing is not None:
        print(f"bench: {missing}: there are no results to report; run ./run bench full", file=sys.stderr)
        return 2
    report.write([results.load(path) for path in paths])
    print(f"wrote {', '.join(map(str, paths))} into docs/performance.md and docs/performance.svg")
    return 0


@contextmanager
def database() -> Iterator[str]:
    """The server that DATABASE_URL names, or the one on this machine, or an embedded one for this run."""
    named = os.environ.get("DATABASE_URL")
    if named is None:
        try:
            psycopg.connect(DATABASE_URL, connect_timeout=3).close()
        except psycopg.OperationalError:
            say("no DATABASE_URL, and no PostgreSQL on this machine: starting one")
            with tempfile.TemporaryDirectory(prefix="sas-bench-pg-") as directory, EmbeddedPostgres(directory) as own:
                yield own.url
            return
    yield named or DATABASE_URL


def measure(profile: Profile) -> results.Results:
    """Measure all passes; in each pass all rows, and in each row all systems in turn."""
    found = results.Results(profile.name)
    peers = environment.prepare(list(profile.peers), say)
    others = [os.environ.get("CELERY_BROKER_URL", BROKER_URL), os.environ.get("REDIS_URL", REDIS_URL)]
    with database() as url, open_lab(url, *others, peers, say) as lab:
        plan = chosen(ROWS, profile, profile.peers)
        own = {"Python": sys.version.split()[0], "Django": django.__version__}
        found.facts = {**machine.description(), **lab.facts, **own, **peers.versions}
        try:
            _passes(found, lab, profile, plan)
        except KeyboardInterrupt:
            say("interrupted; what has been measured is kept")
    return found


def _passes(found: results.Results, lab: Lab, profile: Profile, plan: Sequence[tuple[Row, list[Entry]]]) -> None:
    """Add all measurements to `found`, one after the other."""
    began = time.monotonic()
    for number, (row, entries) in itertools.product(range(profile.passes), plan):
        for entry in entries:
            found.titles[f"{row.name}/{entry.name}"] = entry.title
            why = entry.missing(lab)
            if why is not None:
                if entry.title not in found.skipped:
                    say(f"left out: {entry.title}: {why}")
                found.skipped[entry.title] = why
                continue
            facts = attempt(entry, lab, profile)
            found.add(row.name, entry.name, number, facts)
            at = f"{time.monotonic() - began:5.0f} s, pass {number + 1} of {profile.passes}"
            say(f"{at}: {row.name}: {entry.title}: {brief(facts)}")


def attempt(entry, lab, profile) -> dict[str, object]:
    """Do one measurement. An error is returned as its result, so that the others go on."""
    worked, ticks = machine.busy_share()
    try:
        facts = entry.measure(lab, profile)
    except Exception as problem:  # any error: the output names it
        return {"error": f"{type(problem).__name__}: {problem}"[:500]}
    worked_after, ticks_after = machine.busy_share()
    return {**facts, "machine_busy": (worked_after - worked) / max(1, ticks_after - ticks)}


KEYS = (
    ("orders_per_second", "{:,.0f} orders/s"),
    ("steps_per_second", "{:,.0f} steps/s"),
    ("commits_per_second", "{:,.0f} commits/s"),
    ("accepted_per_second", "{:,.0f} accepted/s"),
    ("cpu_us_all", "{:,.0f} us CPU"),
    ("claim_ms", "claim {:.1f} ms"),
    ("sweep_ms", "sweep {:.0f} ms"),
    ("claim_last_ms", "last claim {:.1f} ms"),
    ("p50_ms", "p50 {:.1f} ms"),
    ("p99_ms", "p99 {:.1f} ms"),
    ("recovered_seconds", "recovered after {:.1f} s"),
)


def brief(facts: dict[str, object]) -> str:
    """One measurement in one line."""
    if "error" in facts:
        return f"failed: {facts['error']}"
    said = [text.format(facts[key]) for key, text in KEYS if key in facts]
    return ", ".join(said) + (f"; {facts['unfinished']} DID NOT END" if facts.get("unfinished") else "")


def show(found: results.Results) -> None:
    """Print all tables."""
    for name, value in found.facts.items():
        print(f"{name}: {value}")
    for title, rows in tables.tables(found):
        print(f"\n## {title}\n")
        print(tables.as_markdown(rows))
    for name, why in found.skipped.items():
        print(f"\nleft out: {name}: {why}")
    for problem in found.errors():
        print(f"\nPROBLEM: {problem}")


if __name__ == "__main__":
    raise SystemExit(main())
