"""A rolling restart: every process gets SIGTERM and is replaced, one after the other, while customers order."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import httpx2
import pytest

from chaos.shop import role_of
from tests.support.shop import Shop, open_shop, order, until

PROCESSES = ("scheduler", "agents", "agents.2", "supervisor", "beat", "web", "web.2")
LONGEST_GOODBYE = 30.0
ORDERS_PER_SECOND = 8


class Customers(threading.Thread):
    """Order steadily at a web process that serves; a load balancer stops sending to the one that is about to be replaced."""

    def __init__(self, shop: Shop, headers: dict[str, str]) -> None:
        super().__init__(daemon=True)
        self.headers, self.shop = headers, shop
        self.serving = ["web", "web.2"]
        self.keys: list[str] = []
        self.errors: list[str] = []
        self.stopped = threading.Event()

    def run(self) -> None:
        with httpx2.Client(timeout=20, trust_env=False, headers=self.headers) as http:
            number = 0
            while not self.stopped.wait(1 / ORDERS_PER_SECOND):
                number += 1
                url = self.shop.url_of(self.serving[number % len(self.serving)])
                try:
                    answer = http.post(f"{url}/api/v1/orders/", json=order())
                except httpx2.HTTPError as error:
                    self.errors.append(repr(error))
                    continue
                if answer.status_code == 202:
                    self.keys.append(answer.json()["id"])
                else:
                    self.errors.append(f"{answer.status_code} {answer.text[:200]}")


def replace(shop: Shop, customers: Customers, name: str) -> float:
    """Send SIGTERM to one process, as a service manager does, and start a new one; returns how long the old one took."""
    if name in customers.serving:
        customers.serving = [other for other in customers.serving if other != name]
    began = time.monotonic()
    process = shop.processes[name]
    process.send_signal(signal.SIGTERM)
    process.wait(LONGEST_GOODBYE + 10)
    took = time.monotonic() - began
    shop.start(name)
    if role_of(name) == "web":
        customers.serving = sorted({*customers.serving, name})
    return took


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_rolling_restart_under_load_is_noticed_by_nobody(tmp_path: Path) -> None:
    with open_shop("pgmq://", tmp_path, *PROCESSES) as shop:
        customers = Customers(shop, shop.headers())
        customers.start()
        until(lambda: len(customers.keys) > 10, what="the first orders")

        goodbyes = {name: replace(shop, customers, name) for name in PROCESSES}

        customers.stopped.set()
        customers.join(30)
        keys = customers.keys
        open_orders = "SELECT count(*) FROM supervision_submission s LEFT JOIN supervision_run r ON r.key = s.public_id WHERE"
        until(
            lambda: shop.rows(f"{open_orders} coalesce(r.process_state, '') NOT IN ('Processed', 'Error', 'Cancelled')")[0][0] == 0,
            within=90,
            what="every order to end",
        )
        print(f"{len(keys)} orders; seconds from SIGTERM to the end: { {name: round(took, 1) for name, took in goodbyes.items()} }")
        assert customers.errors == []
        assert max(goodbyes.values()) < LONGEST_GOODBYE
        states = dict(shop.rows("SELECT process_state, count(*) FROM supervision_run GROUP BY 1"))
        assert states == {"Processed": len(keys)}
        for service, operation in (("payment", "confirm"), ("carrier", "create"), ("mail", "deliver")):
            done = [entry["order"] for entry in shop.ledger(service) if entry["operation"] == operation]
            assert sorted(done) == sorted(keys)
        assert shop.rows("SELECT count(*) FROM supervision_alert") == [(0,)]
        assert "all hold" in shop.manage("audit")
