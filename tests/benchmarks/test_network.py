"""The proxies that stand for a network: they delay both directions, lose nothing, and count who waits how often."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.network.proxy import Proxy
from tests.support.trips import running


@contextmanager
def proxied(delay: float) -> Iterator[tuple[Proxy, socket.socket]]:
    """A connection through a proxy to a server that says everything twice."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        served, _ = listening.accept()
        while data := served.recv(65536):
            served.sendall(2 * data)
        served.close()

    proxy = Proxy("127.0.0.1", listening.getsockname()[1], delay=delay)
    threading.Thread(target=serve, daemon=True).start()
    with running(proxy), socket.create_connection(("127.0.0.1", proxy.port)) as client:
        yield proxy, client
    listening.close()


def read(client: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := client.recv(65536)):
        data += more
    return data


@pytest.mark.parametrize("delay", [0.0, 0.05])
def test_a_round_trip_takes_at_least_the_delay_and_is_counted_once(delay):
    with proxied(delay) as (proxy, client):
        for number in range(3):
            began = time.monotonic()
            client.sendall(b"ab")
            assert read(client, 4) == b"abab"
            assert time.monotonic() - began >= delay
            assert proxy.counts.trips == number + 1
    assert (proxy.counts.sent, proxy.counts.received, proxy.counts.connections) == (6, 12, 1)


def test_what_is_sent_without_waiting_is_delayed_once_and_comes_in_order():
    with proxied(0.05) as (proxy, client):
        sent = [bytes([number]) * 1000 for number in range(50)]
        for data in sent:
            client.sendall(data)

        assert set(read(client, 100_000)) == set(range(50))
    assert proxy.counts.trips < 50


def test_the_end_of_one_side_ends_the_other_after_everything_has_come():
    with proxied(0.02) as (_, client):
        client.sendall(b"x" * 100_000)
        client.shutdown(socket.SHUT_WR)

        assert read(client, 200_000) == b"x" * 200_000
        assert client.recv(1) == b""
