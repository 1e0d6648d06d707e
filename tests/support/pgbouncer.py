"""A real PgBouncer in front of the tests' PostgreSQL."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sasproject import ports
from supervision.embedded.binaries import find_binaries, find_identity
from tests.support.shop import first_port

PROGRAM = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin:/usr/local/sbin")
START_SECONDS = 30.0


@contextmanager
def pgbouncer(server_url: str, directory: Path, *, mode: str = "transaction", more: str = "") -> Iterator[str]:
    """Run PgBouncer before the server of this URL; yields the URL that leads through it."""
    assert PROGRAM is not None
    parts = urlsplit(server_url)
    user = parts.username or "postgres"
    port = ports.choose("127.0.0.1", None, usual=first_port() + 250)  # far from the ports of the shop behind it
    (directory / "users.txt").write_text(f'"{user}" "{unquote(parts.password or "")}"\n')
    lines = [
        "[databases]",
        f"* = host={unquote(parts.hostname or '')} port={parts.port or 5432}",
        "[pgbouncer]",
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =",
        f"auth_type = trust\nauth_file = {directory / 'users.txt'}",
        f"pool_mode = {mode}\ndefault_pool_size = 20\nmax_client_conn = 500",
        more,
    ]
    (directory / "pgbouncer.ini").write_text("\n".join(lines))
    identity = find_identity(find_binaries())
    with (directory / "pgbouncer.log").open("ab") as log:
        process = subprocess.Popen(
            [*identity.prefix, PROGRAM, str(directory / "pgbouncer.ini")],
            stdout=log,
            stderr=log,
            **identity.popen,  # type: ignore[call-overload]
        )
    try:
        _answers(port, process, directory / "pgbouncer.log")
        yield f"postgres://{user}@127.0.0.1:{port}{parts.path}"
    finally:
        process.terminate()
        process.wait(10)


def _answers(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text()
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"PgBouncer did not start: {log.read_text()}")
