"""Restate's server for one measurement: its own ports and data, and our endpoint registered with it."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request

from benchmarks.children import ChildFailed, Children, Command
from benchmarks.environment import PYTHON
from benchmarks.lab import Lab
from benchmarks.network.links import Links
from sasproject import ports

READY_SECONDS = 60.0


def start(group: Children, lab: Lab, links: Links | None = None) -> dict[str, str]:
    """Start it with its defaults, without telemetry and on local addresses; returns the variables for endpoint and client.

    links: between the server and its endpoint, and between client and server.
    """
    chosen: dict[str, int] = {}
    for name, usual in (("ingress", 18080), ("admin", 19070), ("node", 15122), ("service", 19080)):
        chosen[name] = ports.choose("127.0.0.1", None, usual=usual, but=set(chosen.values()))
    data = group.logs.parent / f"{group.logs.name}-data"
    env = {
        "RESTATE_BASE_DIR": str(data),
        "RESTATE_LOG_FILTER": "error",
        "RESTATE_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "1",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{chosen['node']}",
        "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{chosen['node']}",
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{chosen['ingress']}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{chosen['admin']}",
    }
    service = {"RESTATE_SERVICE_PORT": str(chosen["service"]), "RESTATE_INGRESS_PORT": str(chosen["ingress"])}
    group.start(Command("restate-server", [str(lab.peers.restate_server)], env))
    # The endpoint is the worker. The server registers only a running one: a first endpoint runs until then, on the same port.
    group.start(Command("first-endpoint", [str(PYTHON), "-m", "benchmarks.peers.restate_orders"], service))
    endpoint = links.to("endpoint", "127.0.0.1", chosen["service"]) if links else chosen["service"]
    _register(group, chosen["admin"], endpoint)
    group.stop(["first-endpoint"])
    if links:
        service["RESTATE_INGRESS_PORT"] = str(links.to("ingress", "127.0.0.1", chosen["ingress"]))
    return service


def _register(group: Children, admin: int, endpoint: int) -> None:
    body = json.dumps({"uri": f"http://127.0.0.1:{endpoint}", "force": True}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{admin}/deployments", body, {"content-type": "application/json"})
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
                answer.read()
                return
        except (urllib.error.URLError, OSError) as problem:
            if (dead := group.dead()) or time.monotonic() > deadline:
                raise ChildFailed(dead or f"Restate's server did not get ready: {problem}") from None
            time.sleep(0.3)
