"""A whole running shop: every role of the Procfile as real processes, any number of each.

A process is named after its role. Further copies are named `role.2`, `role.3` and so on. `DEMO_AGENTS` are agents, too.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit, urlunsplit

import httpx2
import psycopg

from chaos.look import Outlook, until
from sasproject import ports
from sasproject.roles import DEMO_AGENTS, READY_LINES, ROOT, http_answers, procfile

WORKERS = ("scheduler", "agents", "supervisor")
ROLES = (*WORKERS, "beat", "web")


def role_of(name: str) -> str:
    """The role of a process by its name."""
    return "agents" if name in DEMO_AGENTS else name.partition(".")[0]


class Shop(Outlook):
    """The processes of a shop: starts them, sends them signals and reads their logs."""

    popen: ClassVar[type[subprocess.Popen[Any]]] = subprocess.Popen  # the tests have a quicker one

    def __init__(self, database_url: str, broker_url: str, directory: Path, *, first_port: int = 18000, **environ: str) -> None:
        self.directory = directory
        self.database_url = database_url
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.trees: dict[str, Path] = {}  # processes that run another release's code
        self._log_starts: dict[str, int] = {}
        self._ports: set[int] = set()
        self._first_port = first_port
        self.web_ports: dict[str, int] = {"web": self._port(0)}
        self.simulators_port = self._port(100)
        self.smtp_port = self._port(200)
        self.url = self.url_of("web")
        self.simulators_url = f"http://127.0.0.1:{self.simulators_port}"
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
            "DATABASE_URL": database_url,
            "CELERY_BROKER_URL": broker_url,
            "DEBUG": "1",
            "HOST": "127.0.0.1",
            "STRIPE_API_BASE": self.simulators_url,
            "CARRIER_URL": self.simulators_url,
            "EMAIL_URL": f"smtp://127.0.0.1:{self.smtp_port}",
            "PUBLIC_URL": self.url,
            "API_THROTTLE": "off",
            "OPERATOR_EMAILS": "operator@shop.example",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "SAS_STATE_DIR": str(directory),
            "PYTHONUNBUFFERED": "1",
            **environ,
        }
        # Each request has a connection of its own: the server closes idle ones, perhaps just as the next request is sent.
        self.http = httpx2.Client(base_url=self.url, timeout=30, limits=httpx2.Limits(max_keepalive_connections=0))

    def _port(self, offset: int) -> int:
        port = ports.choose("127.0.0.1", None, usual=self._first_port + offset, but=self._ports)
        self._ports.add(port)
        return port

    def url_of(self, name: str) -> str:
        """The address of this copy of the web role."""
        if name not in self.web_ports:
            self.web_ports[name] = self._port(0)
        return f"http://127.0.0.1:{self.web_ports[name]}"

    # -- processes ------------------------------------------------------------------------------------------------

    def manage(self, *arguments: str, check: bool = True, tree: Path = ROOT) -> str:
        """Run a management command of a source tree; returns what it printed."""
        code, out, err = self._run(str(tree / "manage.py"), *arguments, tree=tree)
        if check and code:
            raise AssertionError(f"{' '.join(arguments)} failed: {out}{err}")
        return out

    def _run(self, *arguments: str, tree: Path = ROOT) -> tuple[int, str, str]:
        """The exit code of this Python program in a source tree, and what it printed."""
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        start = self.popen if tree == ROOT else subprocess.Popen
        with start([sys.executable, *arguments], env=self.env, cwd=tree, **pipes) as process:
            try:
                out, err = process.communicate(timeout=120)
            except BaseException:
                process.kill()
                raise
        return process.returncode, out, err

    def prepare(self, tree: Path = ROOT) -> None:
        """Make the tables, the catalogue and the accounts, with the code of this source tree."""
        code, out, err = self._run("-m", "sasproject.prepare", tree=tree)
        assert code == 0, err
        self.accounts = json.loads(out.splitlines()[-1])["accounts"]

    def open(self, *names: str) -> None:
        """Prepare the database and start simulators and roles; returns when all of them answer."""
        self.start_simulators(wait=False)
        self.prepare()
        self._simulators_answer()
        self.start(*(names or ROLES))

    def start_simulators(self, *, wait: bool = True) -> None:
        """Start the simulated remote services. Their ledger is a file, which survives a restart."""
        arguments = ["--port", str(self.simulators_port), "--smtp-port", str(self.smtp_port)]
        ledger = ["--ledger", str(self.ledger_file)]
        webhook = ["--payment-webhook", f"{self.url}/hooks/stripe/", "--carrier-webhook", f"{self.url}/hooks/carrier/"]
        self._spawn("simulators", [sys.executable, str(ROOT / "manage.py"), "simulators", *arguments, *ledger, *webhook])
        if wait:
            self._simulators_answer()

    def _simulators_answer(self) -> None:
        until(lambda: http_answers(f"{self.simulators_url}/healthz"), what="the simulators")

    @property
    def ledger_file(self) -> Path:
        """The simulators' ledger, one JSON object a line."""
        return self.directory / "ledger"

    def start(self, *names: str) -> None:
        """Start these processes and wait until they work."""
        for name in names:
            self.spawn(name)
        for name in names:
            if role_of(name) == "web":
                self._answers(name)
            else:
                self._ready(name)

    def spawn(self, name: str) -> None:
        """Start one process and do not wait for it."""
        if name == "simulators":
            self.start_simulators(wait=False)
            return
        role = role_of(name)
        environ = {"PORT": self.url_of(name).rpartition(":")[2]} if role == "web" else {}
        if name in DEMO_AGENTS:
            environ = {"SAS_ROLE": name, "AGENT_QUEUES": DEMO_AGENTS[name]}
        self._spawn(name, ["/bin/sh", "-c", procfile(self.trees.get(name, ROOT))[role]], **environ)

    def _spawn(self, name: str, command: list[str], **environ: str) -> None:
        path = self.directory / f"{name}.log"
        with path.open("ab") as log:
            self._log_starts[name] = path.stat().st_size
            env = {**self.env, "SAS_ROLE": role_of(name), **environ}
            start = subprocess.Popen if name in self.trees else self.popen
            self.processes[name] = start(command, env=env, stdout=log, stderr=log, start_new_session=True)

    def _answers(self, name: str) -> None:
        until(lambda: http_answers(f"{self.url_of(name)}/healthz"), within=60, what=f"the {name} role")

    def _ready(self, name: str) -> None:
        def ready() -> bool:
            assert self.processes[name].poll() is None, f"{name} ended: {self.log(name)[-3000:]}"
            return READY_LINES[role_of(name)] in self.log(name).encode()

        until(ready, within=60, what=f"{name} to get ready")

    def log(self, name: str) -> str:
        """What a process has written since its last start."""
        return (self.directory / f"{name}.log").read_bytes()[self._log_starts.get(name, 0) :].decode(errors="replace")

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a process and its children. Does nothing if the process has ended."""
        with suppress(ProcessLookupError):
            os.killpg(self.processes[name].pid, number)

    def kill9(self, *names: str) -> None:
        """Send SIGKILL to these processes and their children (without names: to all), then wait for them."""
        for name in names or tuple(self.processes):
            self.signal(name, signal.SIGKILL)
        for name in names or tuple(self.processes):
            self.processes[name].wait(10)

    def close(self) -> None:
        """End everything."""
        self.http.close()
        self.hang_up()
        for name, process in self.processes.items():
            if process.poll() is None:
                self.signal(name, signal.SIGKILL)
                process.wait(10)


@contextmanager
def scratch_database(template: str = "template1") -> Iterator[str]:
    """A database of its own, a copy of `template`, on the server that DATABASE_URL names; yields its URL."""
    parts = urlsplit(os.environ["DATABASE_URL"])
    name = f"sas_shop_{uuid.uuid4().hex[:10]}"
    server = urlunsplit(parts._replace(path="/postgres"))
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')  # type: ignore[arg-type]
    try:
        yield urlunsplit(parts._replace(path=f"/{name}"))
    finally:
        with psycopg.connect(server, autocommit=True) as admin:
            admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')  # type: ignore[arg-type]


@contextmanager
def open_shop(
    broker_url: str, directory: Path, *names: str, first_port: int, template: str = "template1", **environ: str
) -> Iterator[Shop]:
    """A running shop on a scratch database, a copy of `template`; closed and dropped afterwards."""
    with scratch_database(template) as database_url:
        shop = Shop(database_url, broker_url, directory, first_port=first_port, **environ)
        try:
            shop.open(*names)
            yield shop
        finally:
            shop.close()
