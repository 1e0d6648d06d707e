"""Hazard 14: runs that wait live through the death of every process, of the database, too; and through a failover or a restore."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from supervision import AwaitSignal, ChildRun, Timer
from supervision.embedded import binaries
from supervision.embedded.server import EmbeddedPostgres
from supervision.store import epochs
from tests.support import toy
from tests.support.shop import until
from tests.workflows.conftest import ALPHA, BETA, HOUR, asleep, flow, paid
from tests.workflows.test_children import child_of, family

__all__ = ["family", "flow"]

ROOT = Path(__file__).resolve().parents[2]
ORDERS = 6


class Shop:
    """A database of its own, whose processes all die at once."""

    def __init__(self, directory: Path) -> None:
        self.server = EmbeddedPostgres(directory / "state")
        self.calls = directory / "calls"
        self.calls.touch()
        self.workers: list[subprocess.Popen[Any]] = []
        keep = {"LOG_LEVEL": "CRITICAL", "SUPERVISION_COMPLETE_WITHIN": "3", "DEBUG": "1", "CELERY_BROKER_URL": "memory://"}
        self.env = {**os.environ, **keep, "DATABASE_URL": self.server.url}

    def start(self) -> None:
        self.server.start()
        command = [sys.executable, "-m", "tests.workflows.worker", "sas", str(self.calls)]
        self.workers = [subprocess.Popen(command, cwd=ROOT, env=self.env, stdout=subprocess.DEVNULL) for _ in range(2)]
        client = [sys.executable, "-m", "tests.hazards.restarted"]
        self.client = subprocess.Popen(client, cwd=ROOT, env=self.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.workers.append(self.client)

    def die(self) -> None:
        """SIGKILL for the workers; the database is ended without a checkpoint, and recovers when it starts."""
        for one in self.workers:
            one.kill()
        for one in self.workers:
            one.wait()
        self.workers = []
        process = self.server.process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGQUIT)
            process.wait(20)
        self.server.stop()

    def ask(self, *words: str) -> Any:
        assert self.client.stdin is not None
        assert self.client.stdout is not None
        self.client.stdin.write(json.dumps(words) + "\n")
        self.client.stdin.flush()
        return json.loads(self.client.stdout.readline())

    def steps(self, name: str) -> dict[str, str]:
        return {key: steps.get(name, "") for key, steps in self.ask("show").items()}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    if binaries.find_identity(binaries.find_binaries()).uid is not None:
        pytest.skip("the data belong to another user here")
    shop = Shop(tmp_path)
    shop.server.start()
    migrate = [sys.executable, "-W", "ignore", "manage.py", "migrate", "--verbosity", "0"]
    subprocess.run(migrate, cwd=ROOT, env=shop.env, capture_output=True, check=True)
    yield shop
    shop.die()
    shutil.rmtree(shop.server.socket_dir, ignore_errors=True)


@pytest.mark.timeout(720)
def test_runs_in_each_kind_of_wait_live_through_the_death_of_all_processes_and_of_the_database(shop: Shop):
    shop.start()
    keys = shop.ask("submit", str(ORDERS))
    until(lambda: set(shop.steps("paid").values()) == {"asleep"} and len(shop.steps("paid")) == ORDERS, within=60)
    shop.ask("signal", "paid", *keys[:4])
    until(lambda: [shop.steps("capture")[key] for key in keys[:4]] == ["asleep"] * 4, within=60)
    shop.ask("signal", "captured", *keys[:2])  # accepted, and perhaps not taken yet

    shop.die()
    shop.start()

    waits = shop.ask("show")
    assert [waits[key]["paid"] for key in keys[4:]] == ["asleep"] * 2
    assert [waits[key]["capture"] for key in keys[2:4]] == ["asleep"] * 2
    until(lambda: all(shop.ask("show")[key][""] == "Processed" for key in keys[:2]), within=60)
    shop.ask("signal", "paid", *keys[4:])
    shop.ask("signal", "captured", *keys[2:])  # to a wait that stands, and to one that is yet to come

    until(lambda: {steps[""] for steps in shop.ask("show").values()} == {"Processed"}, within=90)
    assert shop.ask("audit") == []
    assert len(set(shop.calls.read_text().split())) == 3 * ORDERS  # ask, capture, ship: each under one key


KINDS = ["event", "timer", "handed over", "child"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_in_each_kind_of_wait_goes_on_after_a_failover_or_a_restore(sas, family, monkeypatch, kind):
    """The database of the new epoch holds the wait as it was. What ends it ends it there, once."""
    monkeypatch.setattr(toy.ToyAgent, "signals", ("captured",), raising=False)

    def hears(request):
        if kind == "handed over" and request.signal is None:
            raise AwaitSignal("captured", within=HOUR)
        return {}

    toy.ALPHA.on_perform = hears
    steps = {
        "event": (paid(), ALPHA),
        "timer": (Timer("rest", lasts=timedelta(hours=2)), ALPHA),
        "handed over": (ALPHA,),
        "child": (ChildRun("pack", workflow="packing", retry=toy.RETRY), ALPHA),
    }
    family(*steps[kind], child=(paid(), BETA))
    run = sas.start("waiting")
    waiting = asleep()

    epochs.begin("a test", declared=True)
    sas.sweep()
    sas.run()
    assert asleep() == waiting
    sas.assert_healthy()

    if kind == "timer":
        sas.advance("2h")
    elif kind == "child":
        child_of(run).signal("paid")
    else:
        run.signal("captured" if kind == "handed over" else "paid")
    sas.run()
    run.assert_state("Processed")
    assert len({request.idempotency_key for request in toy.ALPHA.performed}) == 1
    sas.assert_healthy()
