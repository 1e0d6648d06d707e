"""Closed loops and fixed rates: throughput, bulk submission, brokers, slow steps, latency, growth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from benchmarks import stage, systems
from benchmarks.lab import Lab
from benchmarks.plan import Entry, Facts, Profile, Row
from benchmarks.systems import System

RATE = 10.0  # orders a second, where latency is measured


def _loop(system: System, lab: Lab, profile: Profile, *, slow: bool = False) -> Facts:
    return stage.closed_loop(lab, system, seconds=profile.seconds, warm=profile.warm, slow=slow)


def _rate(system: System, lab: Lab, profile: Profile, *, slow: bool = False) -> Facts:
    return stage.at_rate(lab, system, rate=RATE, seconds=profile.latency_seconds, slow=slow)


def _entry(system: System, measure: partial[Facts] | None = None) -> Entry:
    return Entry(system.name, system.title, measure or partial(_loop, system), system.missing, system.peer)


def _entries(chosen: Sequence[System]) -> list[Entry]:
    return [_entry(system) for system in chosen]


PEERS = [systems.SYSTEMS[name] for name in systems.PEERS]


def _throughput(profile: Profile) -> list[Entry]:
    ours = [systems.OURS] if profile.name == "smoke" else [systems.OURS_1, systems.OURS]
    return _entries([*ours, systems.OURS_SCHEDULED, *PEERS])


def _slow(profile: Profile) -> list[Entry]:
    titles = {
        "ours-4": "this engine, 128 calls side by side",
        "chain": "Celery chain, threads 128",
        "usual": "Django + Celery, threads 64",
        "dbos": "DBOS, 2 processes, 64 threads each",
        "procrastinate": "Procrastinate, concurrency 128",
    }
    return [
        replace(_entry(each, partial(_loop, each, slow=True)), title=titles.get(each.name, each.title)) for each in (systems.OURS, *PEERS)
    ]


def _latency(profile: Profile) -> list[Entry]:
    ours = [systems.OURS] if profile.name == "smoke" else [systems.OURS, systems.OURS_REDIS, systems.OURS_PGMQ]
    titles = {"ours-4": "this engine on RabbitMQ"}
    peers = [each for each in PEERS if profile.name != "smoke" or each.name == "chain"]
    return [
        replace(_entry(each, partial(_rate, each)), title=titles.get(each.name, each.title))
        for each in (*ours, systems.OURS_SCHEDULED, *peers)
    ]


def _branches(profile: Profile) -> list[Entry]:
    as_list = replace(_entry(systems.OURS, partial(_rate, systems.OURS, slow=True)), title="a list of four steps")
    return [as_list, _entry(systems.OURS_BRANCHES, partial(_rate, systems.OURS_BRANCHES, slow=True))]


DELAYS_MS = (0.0, 0.5, 1.0, 2.0)  # how much longer a round trip takes
HOSTS_MS = 1.0  # between the hosts of the agents processes and the database and the broker


def _over_network(system: System, lab: Lab, profile: Profile) -> Facts:
    return stage.over_network(
        lab, system, seconds=profile.network_seconds, warm=profile.warm, rate=RATE, rate_seconds=2 * profile.network_seconds
    )


def _network(profile: Profile) -> list[Entry]:
    far = [systems.behind(each, delay) for delay in DELAYS_MS for each in (systems.OURS, *PEERS)]
    return [_entry(each, partial(_over_network, each)) for each in far]


def _growth(profile: Profile) -> list[Entry]:
    counts = [systems.with_agents(count) for count in (1, 2, 4)]
    waiting = [replace(_entry(each, partial(_loop, each, slow=True)), title=f"{each.title}, steps of 20 ms") for each in counts]
    working = [replace(_entry(each), name=f"{each.name}-noop", title=f"{each.title}, no-op steps") for each in counts]
    far = [systems.on_hosts(count, HOSTS_MS) for count in (1, 2, 4)]
    hosts = [
        replace(_entry(each, partial(_loop, each, slow=True)), title=f"{each.title} away, each on a host, steps of 20 ms") for each in far
    ]
    return [*waiting, *working, *hosts]


ROWS = (
    Row("throughput", "Four no-op steps, closed loop, one commit per order", _throughput),
    Row("bulk", "The same, 200 orders per commit", lambda profile: _entries([systems.OURS_BULK])),
    Row("effects", "The same with the effect ledger", lambda profile: _entries([systems.OURS_EFFECT, systems.OURS_EFFECTS])),
    Row("shapes", "The same with branches, and with a wait", lambda profile: _entries([systems.OURS_BRANCHES, systems.OURS_WAITING])),
    Row("brokers", "The same on other brokers", lambda profile: _entries([systems.OURS_REDIS, systems.OURS_PGMQ])),
    Row("slow", "Four steps of 20 ms, closed loop", _slow),
    Row("latency", "Latency at 10 orders/s", _latency),
    Row("branches", "Four steps of 20 ms at 10 orders/s", _branches),
    Row("network", "Behind a network: database and broker on other hosts", _network),
    Row("growth", "Growth with processes", _growth),
)
