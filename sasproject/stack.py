"""The demo: every role of the Procfile on one machine, with an embedded database and simulated services.

`manage.py demo` builds a `Stack` and runs it. The stack is also the process manager: it restarts a role or a database that
has ended. It decides nothing about orders; the supervisor does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sasproject import ports
from sasproject.children import Child, Children
from sasproject.roles import DEMO_AGENTS, READY_LINES, ROOT, http_answers, procfile
from supervision.embedded.binaries import EmbeddedPostgresError
from supervision.embedded.server import EmbeddedPostgres

STOP_SECONDS = 15
READY_SECONDS = 120
LAST_TO_STOP = ("simulators",)  # running steps may still call them
TRAFFIC = ["place_orders", "--count", "600", "--rate", "0.5"]


class DemoError(Exception):
    """The demo cannot go on; the message says why and what to do."""


class Stopped(Exception):
    """The user asked the demo to stop, with Ctrl-C or SIGTERM. This is no error."""


@dataclass(frozen=True)
class Options:
    """The options of the command line; None: not given."""

    state_dir: Path
    port: int | None = None
    simulators: bool = True
    traffic: bool = True
    ready_file: Path | None = None


class Stack:
    """Starts everything in order, keeps it running, stops it in order."""

    def __init__(self, options: Options, show: Callable[[str], object]) -> None:
        self.options = options
        self.show = show
        self.log_dir = options.state_dir / "log"
        self.began = time.monotonic()
        self.postgres: EmbeddedPostgres | None = None
        self.children = Children(self.log_dir, self.say, self.write_ready_file)
        self.accounts: dict[str, dict[str, Any]] = {}
        self.answers = False
        self.signals = 0

    # 1. The life cycle -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until asked to stop. Returns when no process is left running."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.on_signal)
        try:
            self.choose_ports()
            self.start_database()
            self.prepare_database()
            self.start_roles()
            self.answers = True
            self.write_ready_file()
            self.announce()
            while True:
                self.tick()
        except Stopped:
            self.say("demo", "stopping")
        finally:
            self.stop()

    def on_signal(self, *_: object) -> None:
        """The first signal stops all processes in order, the second kills them at once."""
        self.signals += 1
        if self.signals == 1:
            raise Stopped
        self.children.kill()

    # 2. Start --------------------------------------------------------------------------------------------------------

    def choose_ports(self) -> None:
        """Choose the given port, or the first free ports near the usual ones. Raises DemoError if the given one is taken."""
        host = os.environ.get("HOST") or "127.0.0.1"
        asked = self.options.port or (int(os.environ["PORT"]) if os.environ.get("PORT", "").isdigit() else None)
        if asked is not None and asked > ports.HIGHEST:
            raise DemoError(f"PORT={asked}: ports go up to {ports.HIGHEST}.")
        try:
            port = ports.choose(host, asked, usual=8000)
        except ports.Taken as problem:
            raise DemoError(f"{problem}: stop what listens there, or choose another with --port.") from None
        self.url = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else host}:{port}"  # noqa: S104 - compared, not bound
        self.shown = self.url.replace("//127.0.0.1:", "//localhost:")  # what a person clicks: browsers permit passkeys there
        self.env = {
            **os.environ,
            "HOST": host,
            "PUBLIC_URL": os.environ.get("PUBLIC_URL") or self.shown,
            "PORT": str(port),
            "SAS_STATE_DIR": str(self.options.state_dir),
            "DEBUG": os.environ.get("DEBUG") or "1",
            **({} if os.environ.get("CELERY_BROKER_URL_FILE") else {"CELERY_BROKER_URL": os.environ.get("CELERY_BROKER_URL") or "pgmq://"}),
            "PYTHONUNBUFFERED": "1",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        }
        self.simulators_url: str | None = None
        if self.options.simulators:
            self.simulators_port = ports.choose("127.0.0.1", None, usual=8010, but={port})
            self.smtp_port = ports.choose("127.0.0.1", None, usual=8025, but={port, self.simulators_port})
            self.simulators_url = f"http://127.0.0.1:{self.simulators_port}"
            self.env |= {
                "STRIPE_API_BASE": self.simulators_url,
                "CARRIER_URL": self.simulators_url,
                "EMAIL_URL": f"smtp://127.0.0.1:{self.smtp_port}",
                "EMAIL_URL_FILE": "",
            }

    def start_database(self) -> None:
        """Use the server that DATABASE_URL names, or start an embedded one."""
        if self.env.get("DATABASE_URL") or self.env.get("DATABASE_URL_FILE"):
            return
        self.postgres = EmbeddedPostgres(self.options.state_dir)
        fresh = not (self.options.state_dir / "pg").exists()
        self.say("demo", "creating the database" if fresh else "starting the database")
        self.run_database(self.postgres)
        self.env["DATABASE_URL"] = self.postgres.url

    def run_database(self, server: EmbeddedPostgres) -> None:
        """Start the embedded server. Raises DemoError if it does not run."""
        try:
            server.start()
        except EmbeddedPostgresError as problem:
            raise DemoError(str(problem)) from problem

    def prepare_database(self) -> None:
        """Make tables, products and accounts. The simulators need none of them and start meanwhile."""
        if self.options.simulators:
            arguments = ["--port", str(self.simulators_port), "--smtp-port", str(self.smtp_port)]
            ledger = ["--ledger", str(self.options.state_dir / "ledger.jsonl")]
            webhook = ["--payment-webhook", f"{self.url}/hooks/stripe/", "--carrier-webhook", f"{self.url}/hooks/carrier/"]
            places = {"url": self.simulators_url, "smtp_port": self.smtp_port}
            (self.options.state_dir / "simulators.json").write_text(json.dumps(places))  # `manage.py doctor` reads it
            self.start_child("simulators", [*self.manage("simulators"), *arguments, *ledger, *webhook])
        self.say("demo", "preparing tables, products and accounts")
        prepare = self.start_child("prepare", [sys.executable, "-m", "sasproject.prepare"], keep=False)
        self.wait(lambda: prepare.pid is None, "the database's preparation", prepare)
        if prepare.process is None or prepare.process.returncode != 0:
            raise DemoError(f"preparing the database failed; see {self.log_dir / 'prepare.log'}")
        self.accounts = json.loads(prepare.last_lines[-1])["accounts"]

    def start_roles(self) -> None:
        """Start all roles at once; returns when each of them answers."""
        self.say("demo", "starting web, scheduler, agents, supervisor and beat")
        for role, command in procfile().items():
            for name, queues in DEMO_AGENTS.items() if role == "agents" else {role: ""}.items():
                self.start_child(name, ["/bin/sh", "-c", command], ready_when=READY_LINES.get(role), AGENT_QUEUES=queues)
        for name, child in list(self.children.by_name.items()):
            if name == "web":
                self.wait(lambda: http_answers(f"{self.url}/healthz"), name, child)
            elif name == "simulators":
                self.wait(lambda: http_answers(f"{self.simulators_url}/ledger/payment"), name, child)
            elif child.ready_when is not None:
                self.wait(lambda child=child: child.ready, name, child)  # type: ignore[misc]
        if self.options.traffic:
            self.start_child("traffic", self.manage(*TRAFFIC), keep=False)

    def start_child(self, name: str, command: list[str], *, keep: bool = True, ready_when: bytes | None = None, **environ: str) -> Child:
        """Start one process under its name, with these additions to its environment."""
        child = Child(name, command, {**self.env, **environ, "SAS_ROLE": name}, ready_when=ready_when, keep=keep)
        self.children.start(child)
        return child

    def manage(self, *arguments: str) -> list[str]:
        """A Django command in this Python."""
        return [sys.executable, str(ROOT / "manage.py"), *arguments]

    def wait(self, condition: Callable[[], bool], what: str, child: Child) -> None:
        """Wait until the condition holds. Raises DemoError, which names the log file, after READY_SECONDS."""
        deadline = time.monotonic() + READY_SECONDS
        while not condition():
            self.tick(0.05)
            if time.monotonic() > deadline:
                raise DemoError(f"{what} did not get ready in {READY_SECONDS} s; see {self.log_dir / child.name}.log")
        self.say(child.name, f"ready after {time.monotonic() - self.began:.1f} s")

    # 3. Running ------------------------------------------------------------------------------------------------------

    def tick(self, timeout: float = 0.2) -> None:
        """Read logs and restart processes that have ended: the database first, since the others need it."""
        if self.postgres is not None and self.postgres.process is not None and self.postgres.pid is None:
            self.say("postgres", "ended; starting it again")
            self.run_database(self.postgres)
            self.write_ready_file()
        self.children.pump(timeout)

    def write_ready_file(self) -> None:
        """Write one JSON object, always the whole file at once, and again whenever a process id in it changes."""
        if self.options.ready_file is None or not self.answers:
            return
        pids = {name: child.pid for name, child in self.children.by_name.items() if child.keep and child.pid}
        for name in DEMO_AGENTS:
            if name in pids:
                pids.setdefault("agents", pids[name])  # the first of them under the name of their role, too
        if self.postgres is not None and self.postgres.pid:
            pids["postgres"] = self.postgres.pid
        facts = {
            "url": self.url,
            "database_url": self.env["DATABASE_URL"],
            "broker_url": self.env["CELERY_BROKER_URL"],
            "simulators_url": self.simulators_url,
            "smtp_url": self.env.get("EMAIL_URL"),
            "pids": {**pids, "demo": os.getpid()},
            "state_dir": str(self.options.state_dir),
            "log_dir": str(self.log_dir),
            "accounts": self.accounts,
        }
        fresh = self.options.ready_file.with_name(self.options.ready_file.name + ".new")
        fresh.parent.mkdir(parents=True, exist_ok=True)
        fresh.write_text(json.dumps(facts, indent=2) + "\n")
        fresh.replace(self.options.ready_file)

    def announce(self) -> None:
        """Show the addresses, the accounts and the log directory."""
        lines = [
            "",
            f"The shop is open ({time.monotonic() - self.began:.1f} s).",
            "",
            f"  shop        {self.shown}/",
            f"  operators   {self.shown}/admin/",
            f"  API         {self.shown}/api/docs/",
            *([f"  simulators  {self.simulators_url}/"] if self.simulators_url else []),
            "",
            *(f"  {name:<11} {facts['password'] or '(its password is unchanged)'}" for name, facts in self.accounts.items()),
            "",
            f"Logs are in {self.log_dir}. Kill any process and watch; Ctrl-C stops everything.",
            "",
        ]
        self.show("\n".join(lines))

    def say(self, who: str, text: str) -> None:
        """One line on the console."""
        self.show(f"{who:>15} | {text}")

    # 4. Stop ---------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop traffic, web and beat first, then the workers, then the simulators that they call, the database last.

        An error on the way, as of a full disk, leaves no process behind.
        """
        try:
            if self.options.ready_file is not None:
                self.options.ready_file.unlink(missing_ok=True)
            first = [name for name in ("traffic", "web", "beat") if name in self.children.by_name]
            others = [name for name in self.children.by_name if name not in (*first, *LAST_TO_STOP)]
            self.children.stop([*first, *others], STOP_SECONDS)
            self.children.stop(LAST_TO_STOP, STOP_SECONDS)
        finally:
            self.children.kill()
            if self.postgres is not None:
                self.postgres.stop()
        self.say("demo", "stopped")
