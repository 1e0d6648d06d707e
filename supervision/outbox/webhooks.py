"""Sends a signed message to one receiver over HTTP (Standard Webhooks), bounded in time and size. Follows no redirects.

The connection goes to the address that was checked, because the name could resolve to another address a moment later. One
deadline covers all waiting, so a receiver that answers byte by byte gains no time.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import Any

from django.utils.translation import gettext as _
from standardwebhooks.webhooks import Webhook

from supervision.outbox.address_policy import PORTS, Destination, Forbidden, parse, resolve
from supervision.runtime.names import Unresolved

TRY_SECONDS = 10.0  # for everything: finding the host, connecting, sending, and the whole answer
CONNECT_SECONDS = 4.0
MAX_ANSWER = 65_536
MOST_ADDRESSES = 3


@dataclass(frozen=True)
class Outcome:
    """The result of one try. answered: the receiver sent an HTTP answer with any status. seconds: how long it took."""

    delivered: bool
    answered: bool
    status_code: int | None = None
    error: str = ""
    seconds: float = 0.0


class _Late(TimeoutError):
    """The deadline has passed."""


class _Stream(io.RawIOBase):
    """Reads a socket until a deadline, in pieces of any size."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._sock, self._deadline = sock, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_left(self._deadline))
        return self._sock.recv_into(buffer)


class _Readable:
    """The part of a socket that http.client needs to read an answer."""

    def __init__(self, sock: socket.socket, deadline: float) -> None:
        self._stream = io.BufferedReader(_Stream(sock, deadline))

    def makefile(self, _mode: str) -> io.BufferedIOBase:
        return self._stream


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise _Late
    return left


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


class Caller:
    """A connection to one receiver, for one message after another. Close it. Without a secret, its messages are not signed."""

    def __init__(self, url: str, secret: str) -> None:
        self._url = url
        self._signer = Webhook(secret) if secret else None
        self._sock: socket.socket | None = None

    def close(self) -> None:
        """Close the connection."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def send(self, message_id: str, body: str) -> Outcome:
        """Try once. Only a 2xx answer is a delivery. Errors are returned, not raised."""
        began = time.monotonic()
        status: int | None = None
        try:
            status = self._send(message_id, body, began + TRY_SECONDS)
            error = _refusal(status)
        except (Forbidden, Unresolved) as refusal:
            error = str(refusal)
        except TimeoutError:
            error = _("no answer in %(seconds)g seconds") % {"seconds": round(time.monotonic() - began, 1)}
        except ssl.SSLCertVerificationError as problem:
            error = _("the certificate is not valid: %(why)s") % {"why": problem.verify_message}
        except (OSError, UnicodeError, http.client.HTTPException) as problem:
            error = _("no connection: %(why)s") % {"why": _words(problem)}
        if error:
            self.close()
        return Outcome(not error, status is not None, status, error, round(time.monotonic() - began, 3))

    def _send(self, message_id: str, body: str, deadline: float) -> int:
        destination = parse(self._url)
        reused = self._sock is not None
        while True:
            try:
                sock = self._sock = self._sock or _connect(destination, deadline)
                sock.settimeout(_left(deadline))
                sock.sendall(self._request(destination, message_id, body))
                return self._answer(sock, deadline)
            except (ConnectionError, http.client.BadStatusLine):
                # A receiver may close a connection between two messages. In that case one new connection is tried.
                if not reused:
                    raise
                reused = False
                self.close()

    def _request(self, to: Destination, message_id: str, body: str) -> bytes:
        host = f"[{to.host}]" if ":" in to.host else to.host
        content = body.encode()
        lines = {
            "Host": host if to.port == PORTS[to.scheme] else f"{host}:{to.port}",
            "Content-Type": "application/json",
            "Content-Length": str(len(content)),
            "Accept": "*/*",
            "Accept-Encoding": "identity",
            "User-Agent": "order-status/1",
            **(signed_headers(self._signer, message_id, body) if self._signer else {}),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"POST {to.path} HTTP/1.1\r\n{head}\r\n".encode("ascii") + content

    def _answer(self, sock: socket.socket, deadline: float) -> int:
        """Read the answer to its end, so that the connection can be used again. A large answer closes the connection."""
        response = http.client.HTTPResponse(_Readable(sock, deadline), method="POST")  # type: ignore[arg-type]
        response.begin()
        read = 0
        while chunk := response.read1(8192):
            read += len(chunk)
            if read > MAX_ANSWER:
                self.close()
                break
        if response.will_close:
            self.close()
        return response.status


def signed_headers(signer: Webhook, message_id: str, body: str) -> Mapping[str, str]:
    """The three headers of Standard Webhooks, with the time of this try."""
    now = datetime.now(UTC)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signer.sign(message_id, now, body),
    }


def _connect(to: Destination, deadline: float) -> socket.socket:
    problem: OSError = ConnectionError(_("the host has no address"))
    for family, sockaddr in resolve(to, _left(deadline))[:MOST_ADDRESSES]:
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:  # the kernel has no addresses of this family
            problem = error
            continue
        try:
            sock.settimeout(min(CONNECT_SECONDS, _left(deadline)))
            sock.connect(sockaddr)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if to.scheme == "https":
                sock.settimeout(_left(deadline))
                return _tls().wrap_socket(sock, server_hostname=to.host)
        except OSError as error:
            sock.close()
            problem = error
        else:
            return sock
    raise problem


def _refusal(status: int) -> str:
    if 200 <= status < 300:
        return ""
    if 300 <= status < 400:
        return _("answered %(status)d: redirects are not followed") % {"status": status}
    return _("answered %(status)d") % {"status": status}


def _words(problem: Exception) -> str:
    said = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
    return " ".join(str(said).split())
