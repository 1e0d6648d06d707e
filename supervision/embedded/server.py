"""PostgreSQL as a child process: a real and durable server that needs no installation and leaves nothing behind.

The launcher and the tests start it. Other processes only need `database_url(state_dir)`. The promise: after any crash or
kill, the next `start()` on the same directory works and finds every committed transaction.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import psycopg

from supervision.embedded.binaries import EmbeddedPostgresError, find_binaries, find_identity
from supervision.embedded.leftovers import end_leftovers

log = logging.getLogger(__name__)
USER = DATABASE = "sas"
PORT = 5432  # only a part of the socket's name; always given, because clients would use PGPORT otherwise
PR_SET_PDEATHSIG = 1
TELL_SECONDS = 60.0  # between two lines about a recovery
RECOVERS = ("is starting up", "is not yet accepting", "in recovery mode")  # words of a server that works towards its start
DURABLE = ("max_wal_size=2GB",)
# For data that a test throws away: the server does not wait for the disk.
FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "wal_level=minimal", "max_wal_senders=0")


def socket_dir(state_dir: str | Path) -> Path:
    """The socket directory for `state_dir`: the same for every process, and short (the limit is some 100 bytes)."""
    digest = hashlib.sha256(str(Path(state_dir).resolve()).encode()).hexdigest()[:12]
    return Path("/tmp") / f"sas-{digest}"  # noqa: S108 - not $TMPDIR, which differs between processes; checked below


def database_url(state_dir: str | Path, database: str = DATABASE) -> str:
    """The server's URL; a socket directory has to be percent-encoded in one."""
    return f"postgres://{USER}@{quote(str(socket_dir(state_dir)), safe='')}:{PORT}/{database}"


class EmbeddedPostgres:
    """One server on one directory. `fast` gives up durability, for tests."""

    def __init__(self, state_dir: str | Path, *, fast: bool = False) -> None:
        self.state_dir = Path(state_dir).resolve()
        self.fast = fast
        self.socket_dir = socket_dir(self.state_dir)
        self.url = database_url(self.state_dir)
        self.log = self.state_dir / "log" / "postgres.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None

    @property
    def pid(self) -> int | None:
        """The postmaster's process id while it runs."""
        return self.process.pid if self.process and self.process.poll() is None else None

    def start(self, timeout: float = 60) -> None:
        """Start the server. Returns when it answers and the database exists. While it says that it recovers, that may take any time."""
        self._take_lock()
        try:
            self.binaries = find_binaries()
            self.identity = find_identity(self.binaries)
            self.data_dir = self._data_dir()
            self._private_socket_dir()
            end_leftovers(self.data_dir, self.socket_dir)
            if not (self.data_dir / "PG_VERSION").exists():
                self._initdb()
            self._check_version()
            self._launch(time.monotonic() + timeout)
            self._create_database()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Fast shutdown; harmless when nothing runs."""
        if self.process is not None:
            for how, patience in ((signal.SIGINT, 15), (signal.SIGQUIT, 5), (signal.SIGKILL, 5)):
                if self.process.poll() is None:
                    self.process.send_signal(how)
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        self.process.wait(patience)
            self.process = None
        with contextlib.suppress(OSError):
            self.socket_dir.rmdir()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def make_directory(self, path: Path) -> None:
        """An empty directory that the server may write to."""
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True, mode=0o700)
        if self.identity.uid is not None:
            os.chown(path, self.identity.uid, -1)

    def __enter__(self) -> EmbeddedPostgres:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _take_lock(self) -> None:
        if self._lock is not None:
            return  # this process still holds it: only the server has ended
        self.log.parent.mkdir(parents=True, exist_ok=True)
        lock = (self.state_dir / "pg.lock").open("a+")
        try:
            # The kernel releases the lock however this process ends; children do not inherit it.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            owner = lock.read().strip() or "another process"
            lock.close()
            raise EmbeddedPostgresError(f"{self.state_dir} is in use by {owner}: stop that, or choose another --state-dir.") from None
        lock.truncate(0)
        lock.write(f"process {os.getpid()}")
        lock.flush()
        self._lock = lock

    def _data_dir(self) -> Path:
        if self.identity.uid is None:
            return self.state_dir / "pg"
        # The unprivileged user cannot enter root's directories.
        return self.socket_dir.with_name(self.socket_dir.name + "-data")

    def _private_socket_dir(self) -> None:
        uid = os.geteuid() if self.identity.uid is None else self.identity.uid
        self.socket_dir.mkdir(mode=0o700, exist_ok=True)
        if os.geteuid() == 0 and self.identity.uid is not None:
            os.chown(self.socket_dir, uid, -1, follow_symlinks=False)
        found = self.socket_dir.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != uid:
            raise EmbeddedPostgresError(f"{self.socket_dir} belongs to another user: remove it, or choose another --state-dir.")
        self.socket_dir.chmod(0o700)

    def _initdb(self) -> None:
        # initdb writes to a new directory, which is renamed when complete: after an interruption the next start repeats it.
        fresh = self.data_dir.with_name(self.data_dir.name + ".new")
        shutil.rmtree(self.data_dir, ignore_errors=True)
        self.make_directory(fresh)
        locale = ["--locale=C"]
        if self.binaries.major >= 17:
            locale += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        command = [self.binaries["initdb"], "-D", str(fresh), "-U", USER, "-A", "trust", "-E", "UTF8", *locale]
        done = self._run([*command, *(["--no-sync"] if self.fast else [])])
        if done.returncode != 0:
            raise EmbeddedPostgresError(f"initdb failed: {done.stderr.decode(errors='replace').strip()}")
        fresh.rename(self.data_dir)

    def _check_version(self) -> None:
        made_by = (self.data_dir / "PG_VERSION").read_text().strip()
        if made_by != str(self.binaries.major):
            raise EmbeddedPostgresError(
                f"{self.data_dir} was made by PostgreSQL {made_by}, {self.binaries.directory} holds {self.binaries.major}: "
                "choose another --state-dir, or set SAS_PG_BIN to the older one."
            )

    def _launch(self, deadline: float) -> None:
        settings = [
            "listen_addresses=",
            f"port={PORT}",
            f"unix_socket_directories={self.socket_dir}",
            "unix_socket_permissions=0700",
            "max_connections=300",
            "jit=off",
            "cluster_name=sas",
            *(FAST if self.fast else DURABLE),
        ]
        command = [self.binaries["postgres"], "-D", str(self.data_dir)]
        for setting in settings:
            command += ["-c", setting]
        while True:
            with self.log.open("ab") as out:
                self.process = subprocess.Popen(
                    [*self.identity.prefix, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=out,
                    start_new_session=True,  # Ctrl-C reaches the launcher, which stops the server last
                    preexec_fn=_die_with_parent,
                    env=_clean_environment(),
                    **self.identity.popen,  # type: ignore[call-overload]
                )
            told_at = deadline
            while self.process.poll() is None:
                if (said := self._refusal()) is None:
                    return
                if (now := time.monotonic()) > told_at:
                    if not any(words in said for words in RECOVERS):
                        raise EmbeddedPostgresError(f"PostgreSQL did not answer in time; see {self.log}")
                    log.warning("PostgreSQL still recovers from a crash; its log is %s", self.log)
                    told_at = now + TELL_SECONDS
                time.sleep(0.02)
            # The children of a killed server may take a moment to end. Until then a new server refuses to start.
            if time.monotonic() > deadline - 45:
                raise EmbeddedPostgresError(f"PostgreSQL ended at once; see {self.log}: {_last_line(self.log)}")
            time.sleep(0.2)
            end_leftovers(self.data_dir, self.socket_dir)

    def _refusal(self) -> str | None:
        """What stands in the way of a connection; None where there is one."""
        try:
            self._connect().close()
        except psycopg.OperationalError as problem:
            return str(problem)
        return None

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host=str(self.socket_dir),
            port=PORT,
            user=USER,
            dbname="postgres",
            connect_timeout=5,
            application_name="sas:launcher:embedded",
            autocommit=True,
        )

    def _create_database(self) -> None:
        with self._connect() as connection:
            if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone() is None:
                connection.execute(f"CREATE DATABASE {DATABASE}")

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(  # type: ignore[call-overload,no-any-return]
            [*self.identity.prefix, *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env=_clean_environment(),
            cwd="/",
            **self.identity.popen,
        )


def _die_with_parent() -> None:
    """Ask the kernel for a fast shutdown when the launcher is killed. Only Linux can do that; elsewhere the next start cleans up."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)


def _clean_environment() -> dict[str, str]:
    """Our environment without PG* and locale variables, which initdb and postgres would use."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PG", "LC_", "LANG"))}
    return {**kept, "LC_ALL": "C"}


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "nothing in the log"
