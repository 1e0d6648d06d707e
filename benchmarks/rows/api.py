"""The shop's web role under load, while the workers process the orders that it accepts."""

from __future__ import annotations

import json
import os
import sys
import time

from benchmarks.children import ChildFailed, Children, Command, children
from benchmarks.lab import Lab, our_settings
from benchmarks.machine import Parties
from benchmarks.plan import Entry, Facts, Profile, Row
from benchmarks.systems import EVERY_ROLE
from sasproject import ports
from sasproject.roles import http_answers, procfile

WEB_PROCESSES = 2
CONNECTIONS = {"orders": 8, "page": 4}
READY_SECONDS = 60.0


def under_load(lab: Lab, profile: Profile) -> Facts:
    """Orders accepted a second by two web processes on one core, and how long callers wait for their 202."""
    lab.fresh_database("shop")
    lab.empty_broker("amqp")
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    web_core = frozenset(cores[-1:]) if len(cores) > 1 else None
    others = frozenset(cores[:-1]) or None
    with children(lab.directory / "log" / f"api-{time.monotonic_ns()}") as group:
        env, port = _start(lab, group, web_core, others)
        load = {"BENCH_TOKEN": str(lab.token)}
        _ask(group, env | load, port, "orders", 1.0, others, "warm-up")
        parties = Parties(workers=group.pids("web"))
        before, at = parties.cpu_seconds()["workers"], time.monotonic()
        orders = _ask(group, env | load, port, "orders", profile.api_seconds, others, "orders")
        used, took = parties.cpu_seconds()["workers"] - before, time.monotonic() - at
        done, waiting = _progress(lab)
        page = _ask(group, env, port, "page", profile.api_seconds / 2, others, "page")
        if problem := group.dead():
            raise ChildFailed(problem)
    return {
        "accepted_per_second": orders["per_second"],
        "p50_ms": orders["p50_ms"],
        "p99_ms": orders["p99_ms"],
        "errors": sum(orders["errors"].values()) + sum(page["errors"].values()),
        "web_us": used / max(1, orders["answers"]) * 1e6,
        "web_cores": used / took,
        "processed_meanwhile": done,
        "waiting": waiting,
        "pages_per_second": page["per_second"],
        "page_p50_ms": page["p50_ms"],
        "page_p99_ms": page["p99_ms"],
    }


def _start(lab: Lab, group: Children, web_core: frozenset[int] | None, others: frozenset[int] | None) -> tuple[dict[str, str], int]:
    port = ports.choose("127.0.0.1", None, usual=18800)
    http = ports.choose("127.0.0.1", None, usual=18810, but={port})
    smtp = ports.choose("127.0.0.1", None, usual=18825, but={port, http})
    env = {
        **our_settings(),
        "DATABASE_URL": lab.url("shop"),
        "CELERY_BROKER_URL": lab.amqp_url or "pgmq://",
        "DJANGO_SETTINGS_MODULE": "sasproject.settings",
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "WEB_CONCURRENCY": str(WEB_PROCESSES),
        "STRIPE_API_BASE": f"http://127.0.0.1:{http}",
        "CARRIER_URL": f"http://127.0.0.1:{http}",
        "EMAIL_URL": f"smtp://127.0.0.1:{smtp}",
        "SAS_STATE_DIR": str(lab.directory / "state"),
    }
    ledger = group.logs.parent / f"{group.logs.name}-ledger.jsonl"
    simulators = [sys.executable, "-W", "ignore", "manage.py", "simulators", "--port", str(http), "--smtp-port", str(smtp)]
    group.start(Command("simulators", [*simulators, "--ledger", str(ledger)], env, others))
    lines = procfile()
    group.start(Command("web", ["/bin/sh", "-c", lines["web"]], {**env, "SAS_ROLE": "web"}, web_core))
    for role in EVERY_ROLE:
        group.start(Command(f"worker-{role}", ["/bin/sh", "-c", lines[role]], {**env, "SAS_ROLE": role}, others))
    deadline = time.monotonic() + READY_SECONDS
    while not (http_answers(f"http://127.0.0.1:{port}/healthz") and http_answers(f"http://127.0.0.1:{http}/healthz")):
        if (problem := group.dead()) or time.monotonic() > deadline:
            raise ChildFailed(problem or f"the shop was not ready in {READY_SECONDS:.0f} s")
        time.sleep(0.1)
    return env, port


def _ask(group: Children, env: dict[str, str], port: int, what: str, seconds: float, cores: frozenset[int] | None, name: str) -> Facts:
    words = [sys.executable, "-m", "benchmarks.http_load", str(port), what]
    more = ["--seconds", str(seconds), "--connections", str(CONNECTIONS[what])]
    said = group.run(Command(name, [*words, *more], env, cores), patience=seconds + 60)
    facts = dict(json.loads(said.splitlines()[-1]))
    if not facts["answers"]:
        raise ChildFailed(f"no request of {name} was answered as expected: {facts['errors']}")
    return facts


def _progress(lab: Lab) -> tuple[int, int]:
    """How many orders are Processed, and how many accepted orders are not yet."""
    with lab.connect("shop") as connection:
        row = connection.execute(
            "SELECT (SELECT count(*) FROM supervision_run WHERE process_state = 'Processed'), (SELECT count(*) FROM supervision_submission)"
        ).fetchone()
    return (int(row[0]), int(row[1]) - int(row[0])) if row else (0, 0)


ROW = Row(
    "api",
    "POST /api/v1/orders/, two web processes on one core, workers at work",
    lambda profile: [Entry("api", "this shop's web role", under_load, lambda lab: lab.missing.get("amqp"))],
)
