"""One HTTP client per process, and the time limit of every call of an agent.

An agent opens a `budget` for its step. Each call may take at most half of the time left, so that time always remains
to ask for the result of a call that got no answer. A call ends in one of three ways: an answer, `NotSent` (the service
certainly did nothing) or `NoAnswer` (the call may have had its effect).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from urllib.parse import urlsplit

import httpcore2
import httpx2

from supervision.runtime import names
from supervision.telemetry import measures, spans

CALL_SECONDS = 10.0  # the most that one call may take
CONNECT_SECONDS = 3.0  # to find the host and to connect to it
MAX_BODY = 1_000_000
CONNECTIONS = 64

# Takes a call and its answer: method and path, the bodies as text, the status, the seconds.
Keep = Callable[[str, str, str, int | None, float], None]
_deadline: ContextVar[float] = ContextVar("deadline")
_pace: ContextVar[Callable[[], bool] | None] = ContextVar("pace", default=None)
_keep: ContextVar[Keep | None] = ContextVar("keep", default=None)
_trouble: ContextVar[float | None] = ContextVar("trouble", default=None)
_calls: ContextVar[int] = ContextVar("calls", default=0)  # those of this budget so far


class GatewayError(Exception):
    """A service could not be used. The message tells an operator what happened."""


class NotSent(GatewayError):
    """The service was not reached: it did nothing."""


class NoTime(NotSent):
    """Our own time was over before the call: this tells nothing about the service."""


class RefusesUs(GatewayError):
    """The service does not accept our API key, or the key may not do this. It did nothing, and refuses all such calls."""


class NoAnswer(GatewayError):
    """The call was sent and no answer came: it may or may not have been carried out."""


class Reply:
    """An answer: its status, its headers (any case) and its whole body."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, headers: httpx2.Headers, body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def retry_after(self) -> float | None:
        """The pause in seconds that the service asks for, or None."""
        wish = self.headers.get("Retry-After", "")
        return float(wish) if wish.isdecimal() else None


@contextmanager
def budget(deadline: float, pace: Callable[[], bool] | None = None, keep: Keep | None = None) -> Iterator[None]:
    """Within this block calls end before `deadline`, a `time.monotonic()` value.

    pace: called before each request. It waits as long as the rate limiter demands, and returns false if the time is too short.
    keep: gets each call with its answer, for people who look at it later.
    """
    tokens = _deadline.set(deadline), _pace.set(pace), _keep.set(keep)
    _trouble.set(None)
    _calls.set(0)
    try:
        yield
    finally:
        _deadline.reset(tokens[0])
        _pace.reset(tokens[1])
        _keep.reset(tokens[2])


def remaining() -> float:
    """Seconds left of the budget."""
    return max(0.0, _deadline.get() - time.monotonic())


def troubled_since() -> float | None:
    """The `time.monotonic()` value at which the service first failed a call of this budget, or of the last one."""
    return _trouble.get()


def _note_trouble() -> None:
    if _trouble.get() is None:
        _trouble.set(time.monotonic())


def send(service: str, method: str, url: str, headers: Mapping[str, str], content: bytes | str | None = None) -> Reply:
    """Make one call of this service within the budget and the service's rate limit. Raises NotSent or NoAnswer."""
    if (keep := _keep.get()) is None:
        return _measured(service, method, url, headers, content)
    began, call = time.monotonic(), f"{method.upper()} {urlsplit(url).path}"
    asked = content.decode("utf-8", "replace") if isinstance(content, bytes) else content or ""
    try:
        reply = _measured(service, method, url, headers, content)
    except NoTime:
        raise  # no call was made
    except GatewayError as problem:
        keep(call, asked, str(problem), None, time.monotonic() - began)
        raise
    keep(call, asked, reply.body.decode("utf-8", "replace"), reply.status, time.monotonic() - began)
    return reply


def _measured(service: str, method: str, url: str, headers: Mapping[str, str], content: bytes | str | None) -> Reply:
    """Make the call, and count how long it took. With spans on, tell of it, and carry the trace to the service."""
    number = _calls.get()
    _calls.set(number + 1)
    if not spans.on:
        return _counted(service, method, url, headers, content)
    with spans.active.call(service, method.upper(), urlsplit(url).hostname or "", number) as (span, trace):
        try:
            reply = _counted(service, method, url, {**headers, **trace}, content)
        except GatewayError as problem:
            spans.active.answered(span, None, _kind(problem))
            raise
        spans.active.answered(span, reply.status)
        return reply


def _counted(service: str, method: str, url: str, headers: Mapping[str, str], content: bytes | str | None) -> Reply:
    began, status = time.monotonic(), ""
    try:
        reply = _send(method, url, headers, content)
        status = f"{reply.status // 100}xx"
    except GatewayError as problem:
        status = _kind(problem)
        raise
    finally:
        if status not in ("", "no_time"):
            measures.CALLS.observe(time.monotonic() - began, service, status)
    return reply


def _kind(problem: GatewayError) -> str:
    return "no_time" if isinstance(problem, NoTime) else "not_sent" if isinstance(problem, NotSent) else "no_answer"


def _send(method: str, url: str, headers: Mapping[str, str], content: bytes | str | None = None) -> Reply:
    if (pace := _pace.get()) is not None and not pace():
        raise NoTime("was not called: no time is left until its rate limit allows another call")
    seconds = min(CALL_SECONDS, remaining() / 2)
    if seconds < 0.005:
        raise NoTime("was not called: no time is left")
    end = time.monotonic() + seconds
    limits = httpx2.Timeout(connect=min(CONNECT_SECONDS, seconds), read=seconds, write=seconds, pool=seconds)
    try:
        with _client().stream(method, url, headers=dict(headers), content=content, timeout=limits) as response:
            reply = Reply(response.status_code, response.headers, _body(response, end))
    except httpx2.PoolTimeout as problem:
        raise NoTime("was not called: no connection was free in our pool") from problem
    except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol) as problem:
        _note_trouble()
        raise NotSent(f"cannot be reached ({type(problem).__name__})") from problem
    except httpx2.TimeoutException as problem:
        _note_trouble()
        raise NoAnswer(f"gave no answer in {seconds:.1f} s") from problem
    except httpx2.HTTPError as problem:
        _note_trouble()
        raise NoAnswer(f"broke the connection ({type(problem).__name__})") from problem
    if reply.status >= 500 or reply.status in (401, 403, 429):
        _note_trouble()
    return reply


def _body(response: httpx2.Response, end: float) -> bytes:
    """The whole body. A body that comes too slowly or is too large ends in a timeout."""
    body = bytearray()
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > MAX_BODY or time.monotonic() > end:
            raise httpx2.ReadTimeout("the answer took too long or was too large")
    return bytes(body)


@lru_cache(maxsize=1)
def _client() -> httpx2.Client:
    # Shorter than servers keep idle connections, so that a call does not use a connection that the server is closing.
    limits = httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS, keepalive_expiry=4.0)
    # Services on the local host (the simulators) are never called through a proxy.
    local = {f"all://{host}": None for host in ("localhost", "127.0.0.1", "[::1]")}
    client = httpx2.Client(limits=limits, mounts=local, follow_redirects=False)
    for transport in (client._transport, *client._mounts.values()):  # those of proxies, too
        if isinstance(transport, httpx2.HTTPTransport):
            transport._pool._network_backend = _Network()  # httpx2 has no argument for it
    return client


class _Network(httpcore2.SyncBackend):
    """Connects within its time limit. A name server that does not answer, and all addresses of a host together, have no more."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        problem: Exception = httpcore2.ConnectError(f"{host} has no address")
        try:
            for address, seconds in names.tries(host, port, CONNECT_SECONDS if timeout is None else timeout):
                try:
                    return super().connect_tcp(address, port, seconds, local_address, socket_options)
                except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as failed:
                    problem = failed
        except TimeoutError as late:
            raise httpcore2.ConnectTimeout(str(late)) from late
        except OSError as unknown:
            raise httpcore2.ConnectError(str(unknown)) from unknown
        raise problem


# A forked worker must not share its parent's sockets.
os.register_at_fork(after_in_child=_client.cache_clear)
