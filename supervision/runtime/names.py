"""What the names of hosts mean, in the time that is left: `socket.getaddrinfo` itself has no limit of time."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from ipaddress import ip_address
from math import inf
from typing import Any

from django.utils.translation import gettext as _

MOST_LOOKUPS = 64  # names that a process looks up at a time, each on a thread; beyond them, only those of its own services
SHARES = 3  # an address of a host has at least this part of the time that is left
_looking: dict[tuple[str, int], Future[Any]] = {}  # the lookups under way
_lock = threading.Lock()


class Unresolved(TimeoutError):
    """No name server has said in time what the name means; the message names it."""


def look_up(host: str, port: int, seconds: float) -> list[Any]:
    """What `socket.getaddrinfo` says of this host, within so many seconds. Raises Unresolved after them, OSError for an unknown name.

    Others may have chosen the name, and many such names: where MOST_LOOKUPS are under way, it is Unresolved at once.
    """
    return _addresses(host, port, seconds, MOST_LOOKUPS)


def _addresses(host: str, port: int, seconds: float, most: float) -> list[Any]:
    found: list[Any] = _within(host, port, seconds, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), most)
    return found


def own_name(seconds: float) -> str:
    """The full name of this machine, or its short one where no name server says it within so many seconds."""
    try:
        return str(_within("", 0, seconds, socket.getfqdn, inf))
    except Unresolved:
        return socket.gethostname()


def tries(host: str, port: int, seconds: float) -> Iterator[tuple[str, float]]:
    """The addresses of this host of our own settings, one after the other, each with the seconds that a connection to it may take.

    The lookup and all tries together end within `seconds`. Raises TimeoutError once they are over, OSError for an unknown name.
    """
    end = time.monotonic() + seconds
    found = [host] if _is_address(host) else list(dict.fromkeys(_text(*one[4]) for one in _addresses(host, port, seconds, inf)))
    for place, address in enumerate(found):
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"no connection to {host} in time")
        yield address, left / min(SHARES, len(found) - place)


def _text(address: str, _port: int, _flow: int = 0, scope: int = 0) -> str:
    """The address with its scope: an address of one link means nothing without it."""
    return f"{address}%{scope}" if scope else address


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _within(host: str, port: int, seconds: float, ask: Callable[[], Any], most: float) -> Any:
    """The answer to this question. Raises Unresolved after so many seconds.

    A lookup that is given up goes on, on a thread that holds up no end of the process. Others who ask for the same name wait for it,
    so that a name whose server is silent has one thread. most: so many lookups are under way, and no other one begins.
    """
    late = Unresolved(_("the name %(host)s was not resolved in time") % {"host": host})
    with _lock:
        looking = _looking.get((host, port))
        if looking is None:
            if len(_looking) >= most:
                raise late
            looking = Future()
            threading.Thread(target=_ask, args=(host, port, looking, ask), name="resolver", daemon=True).start()
            _looking[host, port] = looking
    try:
        return looking.result(seconds)
    except TimeoutError:
        raise late from None


def _ask(host: str, port: int, looking: Future[Any], ask: Callable[[], Any]) -> None:
    found: Any = None
    problem: Exception | None = None
    try:
        found = ask()
    except Exception as error:
        problem = error
    with _lock:
        del _looking[host, port]
    if problem is None:
        looking.set_result(found)
    else:
        looking.set_exception(problem)


def _forget() -> None:
    """A forked process has none of the threads that look up."""
    global _lock
    _looking.clear()
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
