"""The links of a measured system to its database and broker: each goes through a proxy that delays it.

For Restate, whose server is database and broker in one, both sides of the server are delayed: a client's requests, and the
server's calls of the endpoint.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from benchmarks.children import ChildFailed, Children, Command
from benchmarks.lab import Lab
from benchmarks.network.proxy import read_counts

BEGIN_SECONDS = 10.0
PROBES = 200


class Links:
    """The proxies of one measurement, which run in its group of processes. delay_ms: how much longer a round trip takes."""

    def __init__(self, group: Children, delay_ms: float) -> None:
        self._group, self.delay_ms = group, delay_ms
        self._counts: dict[str, Path] = {}

    def far(self, lab: Lab, host: str = "") -> Lab:
        """The lab as a system sees it from behind the links: the same databases and brokers, by other addresses.

        host: a name for links of its own, of one host out of several.
        """
        port = self.to(f"database{host}", lab.server["host"], int(lab.server["port"]))
        seen = replace(lab, server={**lab.server, "host": "127.0.0.1", "port": str(port), "sslmode": "disable"})
        seen.amqp_url = self._through(f"amqp{host}", lab.amqp_url, 5672)
        seen.redis_url = self._through(f"redis{host}", lab.redis_url, 6379)
        return seen

    def to(self, name: str, host: str, port: int) -> int:
        """The port of a new link to this server."""
        counts = self._group.logs / f"proxy-{name}.counts"
        words = [sys.executable, "-m", "benchmarks.network.proxy", host, str(port), "--delay-ms", str(self.delay_ms)]
        self._group.start(Command(f"proxy-{name}", [*words, "--counts", str(counts)], {}))
        self._counts[name] = counts
        log, deadline = self._group.logs / f"proxy-{name}.log", time.monotonic() + BEGIN_SECONDS
        while not (text := log.read_text()).endswith("\n"):
            if time.monotonic() > deadline:
                raise ChildFailed(f"the proxy of {name} did not begin: {text}")
            time.sleep(0.02)
        return int(text.splitlines()[-1])

    def _through(self, name: str, url: str | None, usual: int) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        address = f"127.0.0.1:{self.to(name, parts.hostname or '127.0.0.1', parts.port or usual)}"
        user, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user}{at}{address}").geturl()

    def trips(self) -> Mapping[str, int]:
        """The round trips so far, by link, of all connections together."""
        return {name: read_counts(path)[0] for name, path in self._counts.items()}


def measured_ms(lab: Lab, seen: Lab) -> float:
    """How many milliseconds a statement takes longer through the link, as a median: the real delay, with what the proxy needs."""
    return _statement_ms(seen) - _statement_ms(lab)


def _statement_ms(lab: Lab) -> float:
    durations = []
    with psycopg.connect(**_parameters(lab), autocommit=True) as connection:
        for _ in range(PROBES):
            began = time.perf_counter()
            connection.execute("SELECT 1")
            durations.append(time.perf_counter() - began)
    return statistics.median(durations) * 1000


def _parameters(lab: Lab) -> dict[str, Any]:
    return dict(lab.server)
