"""Chooses a TCP port to listen on."""

from __future__ import annotations

import socket
import time
from collections.abc import Collection

HIGHEST = 65535
TRIES = 50
PATIENCE_SECONDS = 3.0  # a process that was just killed may still hold the port


class Taken(Exception):
    """The port that was asked for is not free; the message names it."""


def number(text: str) -> int:
    """An argparse type: the number of a port. 0: any that is free."""
    port = int(text)
    if not 0 <= port <= HIGHEST:
        raise ValueError(text)
    return port


number.__name__ = f"port (up to {HIGHEST})"


def choose(host: str, asked: int | None, *, usual: int, but: Collection[int] = ()) -> int:
    """The port `asked`, if given, else the first free one from `usual` on. Raises Taken if there is none."""
    if asked is not None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not is_free(host, asked):
            if time.monotonic() > deadline:
                raise Taken(f"port {asked} on {host} is taken")
            time.sleep(0.1)
        return asked
    for port in range(usual, usual + TRIES):
        if port not in but and is_free(host, port):
            return port
    raise Taken(f"no free port between {usual} and {usual + TRIES - 1} on {host}")


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers do: closed connections do not block
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
