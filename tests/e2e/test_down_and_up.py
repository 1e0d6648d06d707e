"""A shop whose tables go back to those of release 0.1.0 and forward again, while orders are under way."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.support.shop import Shop, open_shop, until

WORKERS = ("scheduler", "agents", "supervisor", "beat")
UNFINISHED = """
SELECT (SELECT count(*) FROM supervision_submission WHERE consumed_at IS NULL)
       + (SELECT count(*) FROM supervision_run WHERE finished_at IS NULL)
"""


def end(shop: Shop, *names: str) -> None:
    for name in names:
        shop.processes[name].send_signal(signal.SIGTERM)
    for name in names:
        shop.processes[name].wait(40)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_orders_under_way_survive_that_the_tables_go_back_and_forward(tmp_path: Path):
    with open_shop("pgmq://", tmp_path, *WORKERS) as shop:
        shop.manage("place_orders", "--count", "6", "--seed", "7")
        until(lambda: shop.rows(UNFINISHED) == [(0,)], within=120, what="the first orders to end")
        shop.manage("pause", "--agent", "payment", "--reason", "orders stand in the middle")
        shop.manage("place_orders", "--count", "6", "--seed", "8")
        half = "SELECT count(*) FROM supervision_stepstate WHERE name = 'reserve-stock' AND process_state = 'Processed'"
        until(lambda: shop.rows(half) == [(12,)], within=120, what="orders in the middle")
        end(shop, *WORKERS)
        shop.manage("place_orders", "--count", "3", "--seed", "9")  # accepted, and read by no consumer yet
        events = shop.rows("SELECT run_id, seq, to_state FROM supervision_stepevent ORDER BY 1, 2")
        books = shop.rows("SELECT number, total, email, customer FROM orders_order ORDER BY 1")

        shop.manage("migrate", "supervision", "0001", "--lose-data", "-v0")
        shop.manage("migrate", "orders", "0001", "--lose-data", "-v0")
        assert shop.rows("SELECT to_regclass('orders_parcel')") == [(None,)]
        shop.manage("migrate", "-v0")

        assert shop.rows("SELECT run_id, seq, to_state FROM supervision_stepevent ORDER BY 1, 2") == events
        assert shop.rows("SELECT number, total, email, customer FROM orders_order ORDER BY 1") == books
        shop.start(*WORKERS)
        shop.manage("resume", "--agent", "payment", "--reason", "go on")
        until(lambda: shop.rows(UNFINISHED) == [(0,)], within=200, what="every order to end")

        assert shop.rows("SELECT process_state, count(*) FROM supervision_run GROUP BY 1") == [("Processed", 15)]
        keys = sorted(key for (key,) in shop.rows("SELECT key FROM supervision_run"))
        for service, operation in (("payment", "confirm"), ("carrier", "create")):
            assert sorted(entry["order"] for entry in shop.ledger(service) if entry["operation"] == operation) == keys
        assert "all hold" in shop.manage("audit")
