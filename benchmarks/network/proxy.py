"""A TCP proxy that delays both directions, and counts round trips. `python -m benchmarks.network.proxy --help`.

The proxy sends each byte on after half of the delay, in both directions. So an answer arrives later by the whole delay, a long one
as much as a short one. Requests that a client sends together, before the first answer, wait once and not one after the other. A
round trip is counted when a client speaks after it has heard the server. The loop sleeps in `select`, whose resolution is a
microsecond; that of `epoll` is a millisecond.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import mmap
import selectors
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

COUNTS = struct.Struct("=qqqq")  # round trips, connections, bytes to the server, bytes to the client
PR_SET_TIMERSLACK = 29
HIGH_WATER = 1 << 20  # bytes that may wait for a slow reader


class Counts:
    """What has passed so far. It is also written into a file, where a measurement reads it while the proxy runs."""

    def __init__(self, path: Path | None = None) -> None:
        self.trips = self.connections = self.sent = self.received = 0
        self._shared = _mapped(path) if path else bytearray(COUNTS.size)

    def save(self) -> None:
        """Write the counts into the file."""
        COUNTS.pack_into(self._shared, 0, self.trips, self.connections, self.sent, self.received)


def _mapped(path: Path) -> mmap.mmap:
    path.write_bytes(bytes(COUNTS.size))
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), COUNTS.size)


def read_counts(path: Path) -> tuple[int, int, int, int]:
    """Round trips, connections, bytes to the server and bytes to the client so far, as a running proxy has written them."""
    data = path.read_bytes() if path.exists() else b""
    return cast("tuple[int, int, int, int]", COUNTS.unpack(data)) if len(data) == COUNTS.size else (0, 0, 0, 0)


class _Side(asyncio.Protocol):
    """One end of a connection through the proxy. heard: called with the number of bytes that came."""

    def __init__(self, delay: float, heard: Callable[[int], None]) -> None:
        self._delay, self._heard = delay, heard
        self._loop = asyncio.get_running_loop()
        self.other: _Side | None = None
        self.transport: asyncio.Transport | None = None
        self._early: list[bytes] = []
        self._heard_end = self._said_end = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        if (end := self.transport.get_extra_info("socket")).family == socket.AF_INET:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.transport.set_write_buffer_limits(HIGH_WATER)
        for data in self._early:
            self.transport.write(data)
        self._early.clear()

    def data_received(self, data: bytes) -> None:
        self._heard(len(data))
        self._later(lambda: self.other and self.other.write(data))

    def eof_received(self) -> bool:
        self._heard_end = True
        self._later(lambda: self.other and self.other.end())
        if self._said_end:
            self.close()
        return True

    def connection_lost(self, _error: Exception | None) -> None:
        self._later(lambda: self.other and self.other.close())

    def pause_writing(self) -> None:
        if self.other and self.other.transport:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other and self.other.transport:
            self.other.transport.resume_reading()

    def write(self, data: bytes) -> None:
        """Send this on to this end's peer."""
        if self.transport is None:
            self._early.append(data)
        elif not self.transport.is_closing():
            self.transport.write(data)

    def end(self) -> None:
        """Say that nothing more comes; what this end's peer still says is passed on."""
        self._said_end = True
        if self.transport and self.transport.can_write_eof() and not self.transport.is_closing():
            self.transport.write_eof()
        if self._heard_end:
            self.close()

    def close(self) -> None:
        """Close this end, after what was written has been sent."""
        if self.transport:
            self.transport.close()

    def _later(self, work: Callable[[], object]) -> None:
        if self._delay:
            self._loop.call_at(self._loop.time() + self._delay, work)
        else:
            work()


class Proxy:
    """Listens on a free local port and passes connections on. delay: seconds that a round trip takes longer."""

    def __init__(self, host: str, port: int, *, delay: float = 0.0, counts: Counts | None = None) -> None:
        self._to, self._delay = (host, port), delay
        self.counts = counts or Counts()
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self) -> None:
        """Begin to accept connections; `port` is set when this returns."""
        server = await asyncio.get_running_loop().create_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    def _accept(self) -> asyncio.Protocol:
        counts, speaking = self.counts, [False]
        counts.connections += 1

        def asked(size: int) -> None:
            counts.sent += size
            if not speaking[0]:
                speaking[0] = True
                counts.trips += 1
            counts.save()

        def answered(size: int) -> None:
            counts.received += size
            speaking[0] = False
            counts.save()

        near, far = _Side(self._delay / 2, asked), _Side(self._delay / 2, answered)
        near.other, far.other = far, near
        task = asyncio.ensure_future(self._connect(near, far))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return near

    async def _connect(self, near: _Side, far: _Side) -> None:
        host, port = self._to
        try:
            if host.startswith("/"):
                await asyncio.get_running_loop().create_unix_connection(lambda: far, f"{host}/.s.PGSQL.{port}")
            else:
                await asyncio.get_running_loop().create_connection(lambda: far, host, port)
        except OSError:
            near.close()


def precise_loop() -> asyncio.AbstractEventLoop:
    """An event loop that wakes up within some microseconds of the moment that a timer names."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0)  # nanoseconds; Linux's default is 50,000
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def main() -> None:
    """Pass connections on until told to stop. The first line of output is the port."""
    parser = argparse.ArgumentParser(prog="benchmarks.network.proxy", description=__doc__)
    parser.add_argument("host", help="where the server is; a directory: its Unix socket there")
    parser.add_argument("port", type=int)
    parser.add_argument("--delay-ms", type=float, default=0.0, help="milliseconds that a round trip takes longer (0)")
    parser.add_argument("--counts", type=Path, help="a file for the counts")
    options = parser.parse_args()
    loop = precise_loop()
    proxy = Proxy(options.host, options.port, delay=options.delay_ms / 1000, counts=Counts(options.counts))
    loop.run_until_complete(proxy.listen())
    print(proxy.port)
    sys.stdout.flush()
    signal.signal(signal.SIGTERM, lambda *_: loop.call_soon_threadsafe(loop.stop))
    loop.run_forever()


if __name__ == "__main__":
    main()
