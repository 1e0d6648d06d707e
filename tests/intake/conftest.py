"""Workers on each broker that use the tests' database."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from django.conf import settings
from django.db import connection

from supervision.transports.pgmq_tables import install_pgmq
from tests import services
from tests.engine.conftest import engine, store_database, tuned
from tests.intake.brokers import Amqp, Broker, Pgmq, Redis
from tests.support import forked
from tests.support.shop import until

__all__ = ["engine", "store_database", "tuned"]

ROOT = Path(__file__).resolve().parents[2]


def database_url() -> str:
    """The URL of the test database for another process."""
    given = {**settings.DATABASES["default"], **connection.get_connection_params()}
    who = f"{given['user']}:{given.get('password') or ''}"
    return f"postgres://{who}@{quote(given['host'], safe='')}:{given.get('port') or 5432}/{given['dbname']}"


class Worker:
    """A Celery worker as a process."""

    def __init__(self, broker_url: str, queues: str, directory: Path, **environ: str) -> None:
        self.path = directory / f"{queues}.log"
        self.arguments = [
            sys.executable, "-m", "celery", "-A", "tests.intake.worker", "worker", "-n", f"tests-{os.getpid()}-{id(self)}@%h",
            "-Q", queues, "-P", "threads", "-c", "4", "--prefetch-multiplier", "1", "-l", "INFO",
            "--without-gossip", "--without-mingle", "--without-heartbeat",
        ]  # fmt: skip
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
            "DATABASE_URL": database_url(),
            "CELERY_BROKER_URL": broker_url,
            "DEBUG": "1",
            "SAS_STATE_DIR": str(directory),
            "ALLOW_FAILPOINTS": "1",
            "SUPERVISION_CANARY_SECONDS": "600",
            **environ,
        }
        self.process: subprocess.Popen[bytes] | None = None

    def launch(self, **environ: str) -> int:
        """Start it without waiting; returns the position in the log file where its lines begin."""
        began = self.path.stat().st_size if self.path.exists() else 0
        with self.path.open("ab") as log:
            self.process = forked.Popen(self.arguments, cwd=ROOT, env={**self.env, **environ}, stdout=log, stderr=log)
        return began

    def start(self, **environ: str) -> None:
        """Start it and wait until it is ready."""
        began = self.launch(**environ)
        until(lambda: b" ready." in self.path.read_bytes()[began:] or not self.lives(), within=60, what="the worker")
        assert self.lives(), self.log()[-3000:]

    def lives(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def send(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def cpu_seconds(self) -> float:
        """The CPU seconds that the worker has used so far."""
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def log(self) -> str:
        return self.path.read_text(errors="replace")

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        if self.process is not None and self.lives():
            self.process.send_signal(number)
            self.process.wait(30)


@contextmanager
def worker_on(broker_url: str, queues: str, directory: Path, **environ: str) -> Iterator[Worker]:
    worker = Worker(broker_url, queues, directory, **environ)
    try:
        yield worker
    finally:
        worker.end()


@contextmanager
def database_away() -> Iterator[None]:
    """No connection to the test database works inside this block."""
    name = str(connection.settings_dict["NAME"])
    connection.close()
    given = {**connection.get_connection_params(), "dbname": "postgres"}
    server = {key: given[key] for key in ("host", "port", "user", "password", "dbname") if given.get(key)}

    def rename(before: str, after: str) -> None:
        with psycopg.connect(**server, autocommit=True) as admin:

            def done() -> bool:
                admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (before,))
                try:
                    admin.execute(f'ALTER DATABASE "{before}" RENAME TO "{after}"')  # type: ignore[arg-type]
                except psycopg.errors.ObjectInUse:
                    return False
                return True

            until(done)

    rename(name, f"{name}_away")
    try:
        yield
    finally:
        rename(f"{name}_away", name)


@pytest.fixture
def neighbours(engine: None) -> Iterator[Any]:
    """A table in which the task of the healthy messages notes them; yields a function that reads it."""

    def noted() -> list[int]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT number FROM tests_neighbour ORDER BY number")
            return [number for (number,) in cursor.fetchall()]

    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE tests_neighbour (number int, at timestamptz DEFAULT clock_timestamp())")
    try:
        yield noted
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE tests_neighbour")


@pytest.fixture(params=["amqp", "redis", "pgmq"])
def broker(request: pytest.FixtureRequest, engine: None) -> Iterator[tuple[str, Broker]]:
    """Each broker in turn: its URL, and a `Broker` that publishes to its queues."""
    if request.param == "amqp":
        with services.own_vhost() as url:
            amqp = Amqp(url)
            yield url, amqp
            amqp.close()
    elif request.param == "redis":
        with services.own_redis() as url:
            client = Redis(url)
            yield url, client
            client.close()
    else:
        install_pgmq("default")
        client_of_pgmq = Pgmq(database_url())
        yield "pgmq://", client_of_pgmq
        client_of_pgmq.close()
