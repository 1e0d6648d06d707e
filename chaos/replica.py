"""A second PostgreSQL that replaces the primary, without the primary's newest commits. There are two ways.

Failover: the follower is a streaming replica. `cut` ends the streaming, so that later commits exist on the primary only.
`fail_over` kills the primary and promotes the follower at the same address, on a new timeline.
Restore: `back_up` copies the primary. `restore` kills the primary and starts a server from the copy, on the same timeline.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from supervision.embedded.server import DATABASE, PORT, USER, EmbeddedPostgres

FOLLOWER_PORT = PORT + 1
WAIT_SECONDS = 60.0


class Follower:
    """A copy of `primary`. While it streams, it listens on another port in the same socket directory."""

    def __init__(self, primary: EmbeddedPostgres) -> None:
        self.primary = primary
        self.data_dir = primary.data_dir.with_name(primary.data_dir.name + "-follower")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Copy the primary and start the copy as a streaming replica. Returns when it streams."""
        self._copy("-R")
        self._launch()
        self._until(
            lambda: self._one("SELECT count(*) FROM pg_stat_wal_receiver WHERE status = 'streaming'") == 1, "the follower to stream"
        )

    def cut(self) -> None:
        """End the streaming. Commits of the primary no longer reach the follower."""
        with self._connect() as connection:
            connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
            connection.execute("SELECT pg_reload_conf()")
        self._until(lambda: self._one("SELECT count(*) FROM pg_stat_wal_receiver") == 0, "the streaming to end")

    def fail_over(self) -> None:
        """Kill the primary with SIGKILL and put the follower in its place. Returns when the follower accepts writes."""
        self._kill_primary()
        with self._connect() as connection:
            connection.execute("SELECT pg_promote()")
        self._until(lambda: self._one("SELECT pg_is_in_recovery()") is False, "the promotion")
        self._stop()
        self._take_over()

    def promote(self, after: float = 0.0) -> float:
        """Kill the primary with SIGKILL and let the follower take over at its own address; returns when that was, a monotonic time.

        after: seconds without any server that takes writes, as long as the site's failover takes to notice.
        """
        self._kill_primary()
        time.sleep(after)
        with self._connect() as connection:
            connection.execute("SELECT pg_promote()")
        self._until(lambda: self._one("SELECT pg_is_in_recovery()") is False, "the promotion")
        return time.monotonic()

    @property
    def url_of_both(self) -> str:
        """A URL with both servers' hosts."""
        place = quote(str(self.primary.socket_dir), safe="")
        return f"postgres://{USER}@{place}:{PORT},{place}:{FOLLOWER_PORT}/{DATABASE}"

    def restore_to(self, moment: str, archive: Path) -> None:
        """Kill the primary and recover the copy from the archived log up to this time, in the primary's place."""
        self._kill_primary()
        with (self.data_dir / "postgresql.auto.conf").open("a") as configuration:
            configuration.write(
                f"archive_mode = off\nrestore_command = 'cp {archive}/%f %p'\nrecovery_target_time = '{moment}'\n"
                "recovery_target_action = 'promote'\n"
            )
        (self.data_dir / "recovery.signal").touch()
        self._take_over()
        self._until(lambda: self._primary_one("SELECT pg_is_in_recovery()") is False, "the recovery")

    def _primary_one(self, query: str) -> Any:
        with psycopg.connect(self.primary.url, autocommit=True) as connection:
            row = connection.execute(query).fetchone()  # type: ignore[arg-type]
        return row[0] if row else None

    def back_up(self) -> None:
        """Copy the primary once, without streaming. Later commits are not in the copy."""
        self._copy()

    def restore(self) -> None:
        """Kill the primary and start a server from the copy in its place. Returns when the server accepts writes."""
        self._kill_primary()
        self._take_over()

    def close(self) -> None:
        """Stop the follower and remove its files, if it has not taken the primary's place."""
        self._stop()
        shutil.rmtree(self.data_dir, ignore_errors=True)

    # ---------------------------------------------------------------------------------------------------- pieces

    def _copy(self, *options: str) -> None:
        shutil.rmtree(self.data_dir, ignore_errors=True)
        self.data_dir.mkdir(mode=0o700)
        if self.primary.identity.uid is not None:
            os.chown(self.data_dir, self.primary.identity.uid, -1)
        address = ["-h", str(self.primary.socket_dir), "-p", str(PORT), "-U", USER]
        self._tool("pg_basebackup", *address, "-D", str(self.data_dir), "-X", "stream", "-c", "fast", *options)

    def _kill_primary(self) -> None:
        process = self.primary.process
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)

    def _take_over(self) -> None:
        lost = self.primary.data_dir.with_name(self.primary.data_dir.name + "-lost")
        shutil.rmtree(lost, ignore_errors=True)
        self.primary.data_dir.rename(lost)
        self.data_dir.rename(self.primary.data_dir)
        self.primary.start()
        shutil.rmtree(lost, ignore_errors=True)

    def _program(self, name: str) -> str:
        found = Path(self.primary.binaries[name])
        if not found.is_file():
            raise SystemExit(f"chaos: {found} is missing; set SAS_PG_BIN to a PostgreSQL that has {name}")
        return str(found)

    def _tool(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [*self.primary.identity.prefix, self._program(name), *arguments],
            capture_output=True,
            check=False,
            cwd="/",
            **self.primary.identity.popen,  # type: ignore[call-overload]
        )
        if done.returncode:
            raise SystemExit(f"chaos: {name} failed: {done.stderr.decode(errors='replace').strip()}")

    def _launch(self) -> None:
        settings = [
            "listen_addresses=",
            f"port={FOLLOWER_PORT}",
            f"unix_socket_directories={self.primary.socket_dir}",
            "max_connections=300",
        ]
        command = [self._program("postgres"), "-D", str(self.data_dir)]
        for setting in settings:
            command += ["-c", setting]
        with self.primary.log.with_name("follower.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self.primary.identity.prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self.primary.identity.popen,  # type: ignore[call-overload]
            )

    def _stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)  # a fast shutdown
            self._process.wait(30)
        self._process = None

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(host=str(self.primary.socket_dir), port=FOLLOWER_PORT, user=USER, dbname=DATABASE, autocommit=True)

    def _one(self, query: str) -> Any:
        with self._connect() as connection:
            row = connection.execute(query).fetchone()  # type: ignore[arg-type]
        return row[0] if row else None

    def _until(self, condition: Any, what: str) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            try:
                if condition():
                    return
            except psycopg.OperationalError:
                pass  # the server is still starting
            if self._process is not None and self._process.poll() is not None:
                raise SystemExit(f"chaos: the follower ended; see {self.primary.log.with_name('follower.log')}")
            if time.monotonic() > deadline:
                raise SystemExit(f"chaos: {what} took longer than {WAIT_SECONDS:.0f} s")
            time.sleep(0.05)
