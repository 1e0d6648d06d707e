"""Load for a web server: persistent connections that send the next request after each response, or at a fixed rate.

`python -m benchmarks.http_load PORT orders|page --seconds S --connections N [--rate R]`; prints one JSON object. Responses
are read to their end. A response with another status than the expected one counts as an error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from pathlib import Path

ORDER = {
    "email": "ada@example.com",
    "shipping_address": {"name": "Ada L.", "line1": "Via Roma 1", "line2": "", "city": "Torino", "postal_code": "10121", "country": "IT"},
    "lines": [{"sku": "MUG-BLUE", "quantity": 1}, {"sku": "TEAPOT-SAND", "quantity": 2}],
    "payment_method": "pm_card_visa",
}


class Load:
    """One kind of request, and how long each took."""

    def __init__(self, port: int, request: bytes, expected: int) -> None:
        self.port, self.request, self.expected = port, request, expected
        self.milliseconds: list[float] = []
        self.errors: dict[str, int] = {}

    async def connection(self, until: float, pause: float, first: float) -> None:
        """Send requests one after the other, on one connection as long as the server keeps it open."""
        due, streams = time.monotonic() + first, None
        while (now := time.monotonic()) < until:
            if pause:
                await asyncio.sleep(max(0.0, due - now))
                began, due = due, due + pause  # a slow response delays the next request, and this delay counts
            else:
                began = now
            try:
                streams = streams or await asyncio.open_connection("127.0.0.1", self.port)
                status, keep = await self._ask(*streams)
            except (OSError, asyncio.IncompleteReadError, ValueError) as problem:
                status, keep = type(problem).__name__, False
            if not keep and streams:
                streams[1].close()
                streams = None
            if status == self.expected:
                self.milliseconds.append((time.monotonic() - began) * 1000)
            else:
                self.errors[str(status)] = self.errors.get(str(status), 0) + 1
                await asyncio.sleep(0.05)
        if streams:
            streams[1].close()

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[int, bool]:
        writer.write(self.request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length:")[2].partition(b"\r\n")[0].strip()
        if length:
            await reader.readexactly(int(length))
        elif b"transfer-encoding: chunked" in head:
            while (size := int((await reader.readuntil(b"\r\n")).strip(), 16)) or await reader.readuntil(b"\r\n") != b"\r\n":
                await reader.readexactly(size + 2)
        return int(head.split(None, 2)[1]), b"connection: close" not in head


def request(what: str, token: str) -> tuple[bytes, int]:
    """The bytes to send, and the status to expect."""
    if what == "page":
        return b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/html\r\n\r\n", 200
    body = json.dumps(ORDER).encode()
    lines = (
        "POST /api/v1/orders/ HTTP/1.1",
        "Host: 127.0.0.1",
        f"Authorization: Token {token}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body, 202


async def main() -> None:
    """Send for a while, then print the figures."""
    parser = argparse.ArgumentParser(prog="benchmarks.http_load", description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("what", choices=("orders", "page"))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--rate", type=float, help="requests a second over all connections; else as fast as answers come")
    options = parser.parse_args()
    token = Path(os.environ["BENCH_TOKEN"]).read_text() if options.what == "orders" else ""
    load = Load(options.port, *request(options.what, token))
    pause = options.connections / options.rate if options.rate else 0.0
    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for n in range(options.connections):
            group.create_task(load.connection(began + options.seconds, pause, pause * n / options.connections))
    took, times = time.monotonic() - began, sorted(load.milliseconds)
    place = {name: times[min(len(times) - 1, int(len(times) * share))] if times else 0.0 for name, share in (("p50", 0.5), ("p99", 0.99))}
    facts = {"answers": len(times), "per_second": len(times) / took, "p50_ms": place["p50"], "p99_ms": place["p99"], "errors": load.errors}
    print(json.dumps(facts))


if __name__ == "__main__":
    asyncio.run(main())
