"""The databases and brokers of a benchmark run: scratch databases, a virtual host, a Redis database, removed afterwards.

Every measurement gets a database copied from a template, so that it begins with empty tables and without leftovers of
another measurement.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from benchmarks import brokers, machine
from benchmarks.children import Command, children
from benchmarks.environment import PYTHON, Peers

PREFIX = "sas_bench"
MUST_BE_ON = ("fsync", "synchronous_commit")
TELLING = ("full_page_writes", "shared_buffers", "max_connections", "max_wal_size", "wal_level")


@dataclass
class Lab:
    """The databases, the brokers and the directory of one run."""

    server: dict[str, str]
    amqp_url: str | None
    redis_url: str | None
    peers: Peers
    directory: Path
    say: Callable[[str], None]
    missing: dict[str, str] = field(default_factory=dict)  # brokers that are not there, and why
    facts: dict[str, str] = field(default_factory=dict)
    _templates: set[str] = field(default_factory=set)

    # ------------------------------------------------------------------------------------------------ databases

    def name(self, kind: str) -> str:
        """The database of this kind of system."""
        return f"{PREFIX}_{os.getpid()}_{kind}"

    def url(self, kind: str, *, host_last: bool = False) -> str:
        """Its URL. host_last: with the host as a parameter, for libraries that read a socket directory only there."""
        user, password = quote(self.server["user"], safe=""), quote(self.server.get("password", ""), safe="")
        who = f"{user}:{password}" if password else user
        host, port = quote(self.server["host"], safe=""), self.server["port"]
        if host_last and self.server["host"].startswith("/"):
            return f"postgresql://{who}@/{self.name(kind)}?host={host}&port={port}"
        return f"postgresql://{who}@{host}:{port}/{self.name(kind)}"

    def pg_env(self, kind: str) -> dict[str, str]:
        """Its address in libpq's own variables."""
        names = {"PGHOST": "host", "PGPORT": "port", "PGUSER": "user", "PGPASSWORD": "password"}
        return {variable: self.server.get(key, "") for variable, key in names.items()} | {"PGDATABASE": self.name(kind)}

    def connect(self, kind: str | None = None) -> psycopg.Connection[Any]:
        """A connection to the database of this kind, or without a kind to the server's default database."""
        name = self.server["dbname"] if kind is None else self.name(kind)
        return psycopg.connect(make_conninfo(**{**self.server, "dbname": name}), autocommit=True)

    def fresh_database(self, kind: str) -> None:
        """Make an empty database of this kind, with its tables."""
        if kind not in self._templates:
            self.say(f"preparing the tables of {kind}")
            self._create(f"{kind}_template", None)
            self._templates.add(kind)
            with children(self.directory / "log") as group:
                group.run(self._preparation(kind))
        self._create(kind, f"{kind}_template")
        self.checkpoint()

    def checkpoint(self) -> None:
        """Checkpoint now, so that none comes during a measurement: after one, the first change of each page logs all of it."""
        with self.connect() as admin, contextlib.suppress(psycopg.errors.InsufficientPrivilege):
            admin.execute("CHECKPOINT")

    def _create(self, kind: str, template: str | None) -> None:
        name = sql.Identifier(self.name(kind))
        with self.connect() as admin:
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(name))
            using = sql.SQL(" TEMPLATE {}").format(sql.Identifier(self.name(template))) if template else sql.SQL("")
            admin.execute(sql.SQL("CREATE DATABASE {}").format(name) + using)

    def _preparation(self, kind: str) -> Command:
        template = f"{kind}_template"
        words: dict[str, list[str]] = {
            "ours": [sys.executable, "-W", "ignore", "-m", "django", "migrate", "--verbosity", "0", "--skip-checks"],
            "shop": [sys.executable, "-W", "ignore", "-m", "benchmarks.shop"],
            "usual": [str(PYTHON), "-m", "benchmarks.peers.usual.tasks"],
            "dbos": [str(PYTHON), "-m", "benchmarks.peers.dbos_orders", "schema"],
            "procrastinate": [str(PYTHON), "-m", "benchmarks.peers.procrastinate_orders", "schema"],
            "absurd": [str(PYTHON), "-m", "benchmarks.peers.absurd_orders", "schema"],
        }
        ours = {"DJANGO_SETTINGS_MODULE": f"{'sasproject' if kind == 'shop' else 'benchmarks'}.settings", "CELERY_BROKER_URL": "pgmq://"}
        peers = {"CELERY_BROKER_URL": self.amqp_url or "memory://", "DBOS_URL": self.url(template, host_last=True), **self.pg_env(template)}
        mine = kind in ("ours", "shop")
        token = {"BENCH_TOKEN": str(self.token)}
        env = {"DATABASE_URL": self.url(template), **our_settings(), **ours, **token} if mine else peers
        return Command(f"prepare-{kind}", words[kind], env)

    @property
    def token(self) -> Path:
        """The file with an API token of the shop."""
        return self.directory / "token"

    def wal(self) -> int:
        """Bytes of write-ahead log so far."""
        with self.connect() as admin:
            return int(admin.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()[0])  # type: ignore[index]

    # -------------------------------------------------------------------------------------------------- brokers

    def broker_url(self, broker: str) -> str | None:
        """The broker's URL, where there is one."""
        return {"amqp": self.amqp_url, "redis": self.redis_url, "pgmq": "pgmq://"}[broker]

    def empty_broker(self, broker: str) -> None:
        """Remove queues and messages that an earlier measurement may have left."""
        if broker == "amqp" and self.amqp_url:
            brokers.delete_queues(self.amqp_url)
        if broker == "redis" and self.redis_url:
            brokers.flush(self.redis_url)

    def database_processes(self) -> list[int]:
        """The postmaster, if the server is on this machine."""
        host, port = self.server["host"], int(self.server["port"])
        found = machine.socket_peer(f"{host}/.s.PGSQL.{port}") if host.startswith("/") else machine.listener(host, port)
        return [found] if found else []

    def broker_processes(self, broker: str) -> list[int]:
        """The broker's process, if it is on this machine; none for pgmq, which runs in the database's processes."""
        url = {"amqp": self.amqp_url, "redis": self.redis_url}.get(broker)
        parts = urlsplit(url or "")
        found = machine.listener(parts.hostname or "", parts.port or 5672) if url else None
        return [found] if found else []


def our_settings() -> dict[str, str]:
    """The environment variables of our own processes, apart from database and broker."""
    return {
        "SECRET_KEY": "measured, not deployed: fifty characters that are no secret",
        "DEBUG": "0",
        "SECURE_SSL_REDIRECT": "0",
        "LOG_LEVEL": "WARNING",
        "API_THROTTLE": "off",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    }


# ----------------------------------------------------------------------------------------------- opening, closing


@contextmanager
def open_lab(database_url: str, broker_url: str, redis_url: str, peers: Peers, say: Callable[[str], None]) -> Iterator[Lab]:
    """A lab for one run, removed afterwards with everything in it. Refuses a server that may lose commits in a crash."""
    server = {key: str(value) for key, value in conninfo_to_dict(database_url).items()}
    server = {"host": "127.0.0.1", "port": "5432", "user": os.environ.get("USER", "postgres"), "dbname": "postgres", **server}
    with contextlib.ExitStack() as leaving:
        lab = Lab(server, None, None, peers, Path(tempfile.mkdtemp(prefix="sas-bench-")), say)
        leaving.callback(shutil.rmtree, lab.directory, ignore_errors=True)
        _look_at(lab, database_url)
        _drop_databases(lab, of_the_dead=True)
        leaving.callback(_drop_databases, lab)
        lab.amqp_url = leaving.enter_context(brokers.virtual_host(broker_url, f"{PREFIX}_{os.getpid()}", lab.facts, lab.missing))
        lab.redis_url = leaving.enter_context(brokers.redis_database(redis_url, lab.facts, lab.missing))
        yield lab


def _look_at(lab: Lab, url: str) -> None:
    try:
        connection = lab.connect()
    except psycopg.OperationalError as problem:
        raise brokers.NotMeasurable(f"no PostgreSQL at {urlsplit(url).hostname or url}: {str(problem).strip().splitlines()[0]}") from None
    with connection:
        settings = {name: str(connection.execute(f"SHOW {name}").fetchone()[0]) for name in (*MUST_BE_ON, *TELLING)}  # type: ignore[index,call-overload]
        version = f"{connection.info.server_version // 10000}.{connection.info.server_version % 10000}"
    off = [name for name in MUST_BE_ON if settings[name] == "off"]
    if off:
        raise brokers.NotMeasurable(f"{' and '.join(off)} off: this server may lose commits in a crash, so its figures would mean nothing")
    lab.facts["PostgreSQL"] = f"{version} ({', '.join(f'{name} {value}' for name, value in settings.items())})"


def _drop_databases(lab: Lab, *, of_the_dead: bool = False) -> None:
    """Drop the databases of this run. of_the_dead: those of killed runs instead, whose process no longer exists."""
    pattern = re.compile(rf"{PREFIX}_(\d+)_\w+")
    with lab.connect() as admin:
        for (name,) in admin.execute("SELECT datname FROM pg_database").fetchall():
            match = pattern.fullmatch(name)
            if match is None or (int(match[1]) == os.getpid()) is of_the_dead:
                continue
            if of_the_dead and Path(f"/proc/{match[1]}").exists():
                continue
            force = sql.SQL("" if of_the_dead else " WITH (FORCE)")
            with contextlib.suppress(psycopg.errors.ObjectInUse):
                admin.execute(sql.SQL("DROP DATABASE IF EXISTS {}").format(sql.Identifier(name)) + force)
