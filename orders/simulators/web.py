"""A minimal HTTP/1.1 server for the simulators: requests, answers, keep-alive. One thread per connection."""

from __future__ import annotations

import json
import select
import socket
import struct
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from http import HTTPStatus
from socketserver import StreamRequestHandler, ThreadingTCPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

MAX_BODY = 1_000_000
MAX_HEADERS = 100


class Unreadable(Exception):
    """The input is not an HTTP request that this server can read."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request. Header names are lower case; `path` is still percent-encoded."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body as JSON. Raises ValueError."""
        return json.loads(self.body)

    def form(self) -> dict[str, str]:
        """The body as a form: `metadata[order]=...`. Raises ValueError."""
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    def parts(self) -> list[str]:
        """The path's segments, decoded."""
        return [unquote(part) for part in self.path.split("/")[1:]]


@dataclass(frozen=True)
class Answer:
    """One HTTP answer."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = "application/json"

    @classmethod
    def json(cls, status: int, body: Any, **headers: str) -> Answer:
        """An answer with a JSON body."""
        return cls(status, json.dumps(body).encode(), {name.replace("_", "-"): text for name, text in headers.items()})


@dataclass(frozen=True)
class Outcome:
    """A service's result for a request: the answer, whether the state changed, and a future done when it is on the disk."""

    answer: Answer
    changed: bool = False
    written: Future[None] | None = None


class Server(ThreadingTCPServer):
    """Accepts connections for a `Connection` subclass."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 512


class Connection(StreamRequestHandler):
    """One client's connection: reads requests and answers them in turn."""

    timeout = 300
    disable_nagle_algorithm = True

    def answer(self, request: Request) -> Answer | None:
        """The answer to one request; None to end the connection without an answer."""
        raise NotImplementedError

    def handle(self) -> None:
        try:
            while self._one():
                pass
        except (ConnectionError, TimeoutError):
            self.close_connection()

    def _one(self) -> bool:
        try:
            request = self._read()
        except Unreadable as problem:
            self._write(Answer.json(400, {"error": str(problem)}), keep=False)
            return False
        if request is None:
            return False
        answer = self.answer(request)
        if answer is None:
            return False
        keep = request.headers.get("connection", "").lower() != "close"
        self._write(answer, keep=keep, head=request.method == "HEAD")
        return keep

    def _read(self) -> Request | None:
        line = self.rfile.readline(65537)
        if not line.strip():
            return None
        words = line.decode("latin-1").split()
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise Unreadable("not an HTTP/1.1 request")
        headers: dict[str, str] = {}
        while (line := self.rfile.readline(65537)) not in (b"\r\n", b"\n"):
            if not line:
                return None  # the client closed the connection before the end of its request
            name, colon, value = line.decode("latin-1").partition(":")
            if not colon or len(headers) >= MAX_HEADERS:
                raise Unreadable("malformed headers")
            headers[name.strip().lower()] = value.strip()
        if "transfer-encoding" in headers:
            raise Unreadable("send a Content-Length")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY:
            raise Unreadable("malformed or too large Content-Length")
        body = self.rfile.read(int(length))
        if len(body) < int(length):
            return None
        target = urlsplit(words[1])
        return Request(
            method=words[0],
            path=target.path,
            query=dict(parse_qsl(target.query, keep_blank_values=True)),
            headers=headers,
            body=body,
        )

    def _write(self, answer: Answer, *, keep: bool, head: bool = False) -> None:
        phrase = HTTPStatus(answer.status).phrase
        lines = [f"HTTP/1.1 {answer.status} {phrase}", f"Content-Length: {len(answer.body)}"]
        if answer.body:
            lines.append(f"Content-Type: {answer.content_type}")
        lines.extend(f"{name}: {value}" for name, value in answer.headers.items())
        if not keep:
            lines.append("Connection: close")
        text = "\r\n".join([*lines, "", ""]).encode("latin-1")
        self.wfile.write(text if head else text + answer.body)

    def close_connection(self) -> None:
        """Close the connection."""
        self.connection.close()

    def reset_connection(self) -> None:
        """End the connection by a TCP reset, as a crashed host does."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.rfile.close()
        self.wfile.close()
        self.connection.close()

    def client_left(self, within: float) -> bool:
        """Whether the client closes the connection within so many seconds."""
        readable, _, _ = select.select([self.connection], [], [], within)
        return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""
