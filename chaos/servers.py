"""A broker server for one run, which the run can kill and start again. It needs the broker's program on the machine."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from sasproject import ports

START_SECONDS = 120.0


class Server:
    """A program that listens on one port of this machine. When killed it loses the data that it has not written to disk."""

    def __init__(self, command: Sequence[str], port: int, log: Path, env: Mapping[str, str] | None = None) -> None:
        self.port, self._command, self._log = port, command, log
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; returns at once."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self._env, start_new_session=True
            )

    def wait(self) -> None:
        """Wait until it listens."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.2)
        raise SystemExit(f"chaos: {self._command[0]} did not start; see {self._log}")

    def kill(self) -> None:
        """Send SIGKILL to it and to all processes that it has started."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)

    def restart(self) -> None:
        """Kill it and start it again; it listens a moment later."""
        self.kill()
        self.start()


def redis_server(directory: Path) -> Server | None:
    """A Redis that writes nothing to disk; None where the program is missing."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        return None
    port = ports.choose("127.0.0.1", None, usual=16400)
    return Server([program, "--port", str(port), "--save", "", "--appendonly", "no"], port, directory / "broker.log")


def rabbitmq_server(directory: Path) -> tuple[Server, list[str], dict[str, str]] | None:
    """A RabbitMQ node, the `rabbitmqctl` command for it and the environment of both; None where the program is missing."""
    home = Path("/usr/lib/rabbitmq/bin")  # the scripts on the PATH switch to the package's user
    if not (home / "rabbitmq-server").is_file():
        return None
    port = ports.choose("127.0.0.1", None, usual=16500)
    node, base = f"sas-chaos-{port}@localhost", directory / "rabbitmq"
    base.mkdir(parents=True, exist_ok=True)
    env = {
        "HOME": str(base),  # RabbitMQ keeps its Erlang cookie there
        "RABBITMQ_NODENAME": node,
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_DIST_PORT": str(ports.choose("127.0.0.1", None, usual=16600)),
        "RABBITMQ_MNESIA_BASE": str(base / "mnesia"),
        "RABBITMQ_LOGS": "-",
        "RABBITMQ_PID_FILE": str(base / "pid"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(base / "no-plugins"),
        "RABBITMQ_CONF_ENV_FILE": str(base / "no-conf"),
        "RABBITMQ_CONFIG_FILE": str(base / "no-config"),
    }
    return Server([str(home / "rabbitmq-server")], port, directory / "broker.log", env), [str(home / "rabbitmqctl"), "-n", node], env
