"""Counts how often this thread waits for PostgreSQL: its connection goes through a proxy that sees every question and answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.db import connection

from benchmarks.network.proxy import Proxy, precise_loop


@contextmanager
def running(proxy: Proxy) -> Iterator[None]:
    """Let this proxy pass connections on, in a thread."""
    loop, begun = precise_loop(), threading.Event()

    def serve() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(proxy.listen())
        begun.set()
        loop.run_forever()

    threading.Thread(target=serve, daemon=True).start()
    assert begun.wait(30)
    try:
        yield
    finally:
        loop.call_soon_threadsafe(loop.stop)


@contextmanager
def counted_trips() -> Iterator[Callable[[], int]]:
    """The connection of this thread through a proxy. Calling what is yielded gives the round trips since its last call."""
    parameters = connection.get_connection_params()
    proxy = Proxy(parameters.get("host") or "/var/run/postgresql", int(parameters.get("port") or 5432))
    before = {name: connection.settings_dict[name] for name in ("HOST", "PORT")}
    seen = [0]

    def since() -> int:
        count, seen[0] = proxy.counts.trips - seen[0], proxy.counts.trips
        return count

    connection.close()
    with running(proxy):
        connection.settings_dict.update(HOST="127.0.0.1", PORT=str(proxy.port))
        try:
            connection.ensure_connection()
            yield since
        finally:
            connection.close()
            connection.settings_dict.update(before)
