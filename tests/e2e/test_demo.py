"""`manage.py demo` as a new user runs it: embedded PostgreSQL, all roles on one machine; then all processes are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import psycopg

from sasproject.roles import ROOT
from tests.support.shop import order, until

CLEAN = ("DATABASE_URL", "CELERY_BROKER_URL", "DJANGO_SETTINGS_MODULE", "SECRET_KEY", "PYTEST_CURRENT_TEST")


@contextmanager
def demo(state_dir: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """A running demo on this state directory, and the content of its ready file."""
    ready_file = state_dir.parent / "ready.json"
    ready_file.unlink(missing_ok=True)
    environ = {name: value for name, value in os.environ.items() if name not in CLEAN}
    environ |= {"SUPERVISION_COMPLETE_WITHIN": "3", "SUPERVISION_SWEEP_SECONDS": "1"}
    log = (state_dir.parent / "demo.log").open("ab")
    places = ["--state-dir", str(state_dir), "--ready-file", str(ready_file)]
    launcher = subprocess.Popen(
        [sys.executable, str(ROOT / "manage.py"), "demo", "--no-traffic", *places],
        env=environ,
        stdout=log,
        stderr=log,
        cwd=ROOT,
    )
    try:
        until(lambda: ready_file.exists() or launcher.poll() is not None, within=120, what="the demo to get ready")
        assert launcher.poll() is None, (state_dir.parent / "demo.log").read_text()[-3000:]
        yield launcher, json.loads(ready_file.read_text())
    finally:
        if launcher.poll() is None:
            launcher.send_signal(signal.SIGTERM)
            try:
                launcher.wait(40)
            except subprocess.TimeoutExpired:
                launcher.kill()
                raise


def state(facts: dict[str, Any], key: str) -> str | None:
    """The order's run state, from the database."""
    with psycopg.connect(facts["database_url"]) as connection:
        row = connection.execute("SELECT process_state FROM supervision_run WHERE key = %s", [key]).fetchone()
    return row[0] if row else None


def effects(facts: dict[str, Any], service: str, key: str) -> list[dict[str, Any]]:
    """The effects of this order at a simulated service."""
    lines = httpx2.get(f"{facts['simulators_url']}/ledger/{service}", timeout=10).text.splitlines()
    return [entry for entry in map(json.loads, lines) if entry["order"] == key and entry["effect"]]


def test_an_order_survives_a_kill_of_everything_including_the_database(tmp_path: Path) -> None:
    state_dir = tmp_path / "var"
    with demo(state_dir) as (launcher, facts):
        environ = {**os.environ, "DATABASE_URL": facts["database_url"], "DEBUG": "1"}
        command = [sys.executable, str(ROOT / "manage.py"), "create_api_token", "shop"]
        token = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout.split()[-1]
        fault = {"service": "payment", "mode": "slow", "latency_ms": 2000}
        httpx2.post(f"{facts['simulators_url']}/faults", json=fault, timeout=10)
        answer = httpx2.post(f"{facts['url']}/api/v1/orders/", json=order(), headers={"Authorization": f"Token {token}"}, timeout=30)
        assert answer.status_code == 202, answer.text
        key = answer.json()["id"]
        until(lambda: state(facts, key) == "Processing", what="the order to be under way")

        for pid in [launcher.pid, *facts["pids"].values()]:
            with suppress(ProcessLookupError):  # for processes that ended with the launcher
                os.kill(pid, signal.SIGKILL)
        launcher.wait(10)

    began = time.monotonic()
    with demo(state_dir) as (_, facts):
        second_start = time.monotonic() - began
        httpx2.delete(f"{facts['simulators_url']}/faults", timeout=10)

        until(lambda: state(facts, key) == "Processed", within=60, what="the order to be Processed")

        assert len([entry for entry in effects(facts, "payment", key) if entry["operation"] == "confirm"]) == 1
        assert len(effects(facts, "carrier", key)) == 1
        assert len(effects(facts, "mail", key)) == 1
        print(f"second start: {second_start:.1f} s")
