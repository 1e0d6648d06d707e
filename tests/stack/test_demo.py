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
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sasproject import ports
from sasproject.embedded import socket_dir

ROOT = Path(__file__).resolve().parents[2]
ROLES = ("web", "scheduler", "agents", "agents-order", "agents-delivery", "supervisor", "beat", "simulators", "postgres")


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Demo:
    """A running `manage.py demo`."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.state_dir = directory / "state"
        self.ready_file = directory / "ready.json"
        self.output = directory / "output.txt"
        ours = ("DATABASE_URL", "CELERY_BROKER_URL", "SECRET_KEY", "SECURE_SSL_REDIRECT", "PORT", "HOST")
        environment = {name: value for name, value in os.environ.items() if name not in ours}
        places = ["--state-dir", str(self.state_dir), "--ready-file", str(self.ready_file)]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "demo", *places, *options], cwd=ROOT, env=environment, stdout=output, stderr=output
            )

    def facts(self) -> dict[str, Any] | None:
        assert self.process.poll() is None, self.output.read_text()
        with contextlib.suppress(FileNotFoundError):
            return json.loads(self.ready_file.read_text())
        return None

    def healed(self, role: str, before: int) -> dict[str, Any] | None:
        """Wait until the ready file names another process for the role; returns the file's content."""
        facts = self.facts()
        return facts if facts and facts["pids"].get(role) not in (None, before) else None


@pytest.fixture
def demo(tmp_path):
    """Starts demos, and ends those that still run."""
    started: list[Demo] = []

    def start(*options: str) -> Demo:
        started.append(Demo(tmp_path, *options))
        return started[-1]

    yield start
    for one in started:
        one.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            one.process.wait(60)
        one.process.kill()
        shutil.rmtree(socket_dir(one.state_dir), ignore_errors=True)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_it_starts_heals_survives_its_own_death_and_stops(demo, eventually):
    one = demo("--no-traffic")
    facts = eventually(one.facts, within=120, what="the ready file")

    assert set(ROLES) <= set(facts["pids"])
    assert facts["broker_url"] == "pgmq://"
    for page in ("/", "/healthz", "/readyz", "/admin/login/", "/api/docs/"):
        assert urllib.request.urlopen(facts["url"] + page, timeout=20).status == 200, page
    assert urllib.request.urlopen(facts["simulators_url"] + "/ledger/payment", timeout=20).status == 200

    for role in ("agents", "postgres"):
        before = facts["pids"][role]
        os.kill(before, signal.SIGKILL)
        facts = eventually(partial(one.healed, role, before), within=40, what=f"another {role}")

    one.process.kill()
    one.process.wait()
    eventually(lambda: not any(map(is_alive, facts["pids"].values())), within=30, what="the end of everything")
    one.ready_file.unlink()

    two = demo("--no-traffic")
    facts = eventually(two.facts, within=60, what="the second ready file")
    two.process.send_signal(signal.SIGINT)
    assert two.process.wait(60) == 0
    assert not any(map(is_alive, facts["pids"].values()))
    assert not two.ready_file.exists()
    assert "stopped" in two.output.read_text()


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
