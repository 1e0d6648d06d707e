"""Small HTTP servers of a test, each in a thread."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """Keeps connections open, and writes no log. A subclass has `post` and `get`."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.post()

    def do_GET(self) -> None:
        self.get()

    def post(self) -> None:
        """Answer a POST."""
        self.answer(405)

    def get(self) -> None:
        """Answer a GET."""
        self.answer(405)

    def body(self) -> bytes:
        """The body of the request, unpacked."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

    def answer(self, status: int, content: bytes = b"", kind: str = "application/json") -> None:
        """Send this answer."""
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Write nothing."""


@contextmanager
def serving(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server of these requests on a free port, which ends with the block."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
