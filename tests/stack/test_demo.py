"""The launcher and its processes: it starts, restarts and stops them. Real processes, for minutes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest

from chaos.look import TLS
from sasproject import ports
from supervision.embedded.server import socket_dir
from tests.support import forked
from tests.support.shop import order, until

ROOT = Path(__file__).resolve().parents[2]
ROLES = ("web", "scheduler", "agents", "agents-order", "agents-delivery", "supervisor", "beat", "simulators", "postgres")


class Demo:
    """A running `manage.py demo`."""

    def __init__(self, directory: Path) -> None:
        self.state_dir = directory / "state"
        self.ready_file = directory / "ready.json"
        self.output = directory / "output.txt"
        ours = ("DATABASE_URL", "CELERY_BROKER_URL", "SECRET_KEY", "SECURE_SSL_REDIRECT", "PORT", "HOST")
        environment = {name: value for name, value in os.environ.items() if name not in ours}
        environment |= {"SUPERVISION_COMPLETE_WITHIN": "3", "SUPERVISION_SWEEP_SECONDS": "1"}
        command = [sys.executable, "manage.py", "demo", "--no-traffic", "--state-dir", self.state_dir, "--ready-file", self.ready_file]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
        self.facts: dict[str, Any] = {}

    def read(self) -> dict[str, Any] | None:
        """The content of the ready file, once it exists."""
        assert self.process.poll() is None, self.output.read_text()
        with contextlib.suppress(FileNotFoundError):
            return json.loads(self.ready_file.read_text())
        return None

    def heals(self, role: str) -> None:
        """Kill the role's process and wait until the ready file names another one."""
        before = self.facts["pids"][role]
        os.kill(before, signal.SIGKILL)
        until(lambda: (self.read() or self.facts)["pids"].get(role) not in (None, before), within=40, what=f"another {role}")
        self.facts = self.read() or self.facts

    def lives(self) -> bool:
        """Whether one of its processes does."""
        return any(map(forked.state_of, self.facts["pids"].values()))

    def order(self) -> str:
        """Place an order; returns its key."""
        environ = {**os.environ, "DATABASE_URL": self.facts["database_url"], "DEBUG": "1"}
        token = forked.run([sys.executable, "manage.py", "create_api_token", "shop"], cwd=ROOT, env=environ).stdout.split()[-1]
        to, headers = f"{self.facts['url']}/api/v1/orders/", {"Authorization": f"Token {token}"}
        answer = httpx2.post(to, json=order(), headers=headers, timeout=30, verify=TLS)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def state(self, key: str) -> str | None:
        """The order's state, from the database."""
        with psycopg.connect(self.facts["database_url"]) as connection:
            row = connection.execute("SELECT process_state FROM supervision_run WHERE key = %s", [key]).fetchone()
        return row[0] if row else None

    def effects(self, service: str, key: str) -> list[str]:
        """The operations of this order that had an effect at a simulated service."""
        lines = httpx2.get(f"{self.facts['simulators_url']}/ledger/{service}", timeout=10, verify=TLS).text.splitlines()
        return [entry["operation"] for entry in map(json.loads, lines) if entry["order"] == key and entry["effect"]]


@pytest.fixture
def demo(tmp_path):
    """Starts demos, and ends those that still run."""
    started: list[Demo] = []

    def start() -> Demo:
        one = Demo(tmp_path)
        started.append(one)
        one.facts = until(one.read, within=120, what="the ready file")
        return one

    yield start
    for one in started:
        one.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.process.wait(60)
        one.process.kill()
        shutil.rmtree(socket_dir(one.state_dir), ignore_errors=True)


@pytest.mark.timeout(1200)
def test_an_order_survives_a_kill_of_everything_including_the_database(demo):
    """The launcher starts every role and heals a killed one. When it is killed, all end. The next one goes on, and SIGINT ends it."""
    one = demo()
    assert set(ROLES) <= set(one.facts["pids"])
    assert one.facts["broker_url"] == "pgmq://"
    for page in ("/", "/healthz", "/readyz", "/admin/login/", "/api/docs/"):
        assert httpx2.get(one.facts["url"] + page, timeout=20, verify=TLS).status_code == 200, page
    one.heals("agents")
    one.heals("postgres")
    until(lambda: httpx2.get(f"{one.facts['url']}/readyz", timeout=20, verify=TLS).status_code == 200, what="connections to the new server")
    httpx2.post(
        f"{one.facts['simulators_url']}/faults", json={"service": "payment", "mode": "slow", "latency_ms": 2000}, timeout=10, verify=TLS
    )
    key = one.order()
    until(lambda: one.state(key) == "Processing", what="the order to be under way")

    os.kill(one.facts["pids"]["postgres"], signal.SIGKILL)
    one.process.kill()
    one.process.wait()
    until(lambda: not one.lives(), what="the end of everything")
    one.ready_file.unlink()

    two = demo()
    httpx2.delete(f"{two.facts['simulators_url']}/faults", timeout=10, verify=TLS)
    until(lambda: two.state(key) == "Processed", within=60, what="the order to be Processed")
    assert two.effects("payment", key).count("confirm") == 1
    assert (two.effects("carrier", key), two.effects("mail", key)) == (["create"], ["deliver"])
    two.process.send_signal(signal.SIGINT)
    assert two.process.wait(60) == 0
    assert not two.lives()
    assert not two.ready_file.exists()
    assert "stopped" in two.output.read_text()
    assert two.facts["url"].replace("127.0.0.1", "localhost") + "/admin/" in two.output.read_text()  # browsers permit passkeys there


def test_a_port_that_is_taken_is_refused_in_one_line(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = [sys.executable, "manage.py", "demo", "--port", str(port), "--state-dir", str(tmp_path / "state")]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 1
    assert f"port {port} on 127.0.0.1 is taken" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_taken_port_is_passed_over_when_nobody_asked_for_it():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        usual = taken.getsockname()[1]

        assert ports.choose("127.0.0.1", None, usual=usual) > usual
