"""A connection whose request does not come is closed; a request that takes long to answer is not."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WITHIN_SECONDS = 60
# A request is answered a while after the time for headers is over.
APPLICATION = """
import asyncio

async def application(scope, receive, send):
    await asyncio.sleep(1.5)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
    await send({"type": "http.response.body", "body": b"done"})
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Gunicorn with the settings of the web role, but for the time."""
    folder = tmp_path_factory.mktemp("web")
    (folder / "slow.py").write_text(APPLICATION)
    (folder / "short.conf.py").write_text((ROOT / "gunicorn.conf.py").read_text() + "\nHEADERS_WITHIN_SECONDS = 0.5\n")
    options = ["-k", "asgi", "--bind", "127.0.0.1:0", "--no-control-socket", "--asgi-lifespan", "off", "-c", "short.conf.py"]
    command = [sys.executable, "-m", "gunicorn", "slow:application", *options]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        listening = next(line for line in process.stderr if "ASGI server listening" in line)
        yield int(listening.rpartition(":")[2])
    finally:
        process.send_signal(signal.SIGQUIT)
        process.communicate(timeout=WITHIN_SECONDS)


def received(port: int, sent: bytes) -> bytes:
    """What the server says until it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=WITHIN_SECONDS) as connection:
        connection.sendall(sent)
        return b"".join(iter(lambda: connection.recv(4096), b""))


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: 1\r\n"], ids=["nothing", "half of the headers"])
def test_a_connection_whose_headers_do_not_come_is_closed(port: int, sent: bytes):
    assert received(port, sent) == b""


def test_a_request_that_came_in_time_is_answered_however_long_that_takes(port: int):
    said = received(port, b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")

    assert (said.split(b"\r\n")[0], said[-4:]) == (b"HTTP/1.1 200 OK", b"done")
