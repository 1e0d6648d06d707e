"""Restate: a handler with four journalled steps, called one-way through the server's ingress.

`python -m benchmarks.peers.restate_orders` serves the handler.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

import hypercorn
import hypercorn.asyncio
import restate

from benchmarks import ledger
from benchmarks.peers.work import STEPS, payload, perform_async

orders = restate.Service("Orders")


@orders.handler()
async def fulfil(context: restate.Context, order: dict[str, Any]) -> dict[str, Any]:
    """Four steps, each in the journal before the next begins."""
    for position, name in enumerate(STEPS):
        await context.run_typed(name, perform_async, position=position)
    ledger.order(order["began"])
    return {"ok": True}


def connect() -> Callable[[Sequence[float]], None]:
    """One POST per order on a persistent connection of the thread; the server answers when it has journalled the call."""
    mine = threading.local()

    def connected() -> http.client.HTTPConnection:
        ingress = http.client.HTTPConnection("127.0.0.1", int(os.environ["RESTATE_INGRESS_PORT"]), timeout=30)
        ingress.connect()
        ingress.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return ingress

    def submit(begins: Sequence[float]) -> None:
        ingress = mine.ingress = getattr(mine, "ingress", None) or connected()
        for began in begins:
            ingress.request("POST", "/Orders/fulfil/send", json.dumps(payload(began)), {"content-type": "application/json"})
            answer = ingress.getresponse()
            text = answer.read()
            if answer.status >= 300:
                raise RuntimeError(f"Restate answered {answer.status}: {text[:200]!r}")

    return submit


def main() -> None:
    """Serve over HTTP/2, with limits that are never reached."""
    config = hypercorn.Config()
    config.bind = [f"127.0.0.1:{os.environ['RESTATE_SERVICE_PORT']}"]
    config.h2_max_concurrent_streams = 2**31 - 1
    config.keep_alive_max_requests = 2**31 - 1
    config.keep_alive_timeout = 2**31 - 1
    asyncio.run(hypercorn.asyncio.serve(restate.app([orders]), config))


if __name__ == "__main__":
    main()
