"""A long outage of one service under steady load: no order stops in Error, other steps keep their pace, the backlog drains.

`OUTAGE_SECONDS=600` runs the whole ten minutes. The carrier is down. It has a rate limit, which the agents must keep
when all waiting orders become due at once.
"""

from __future__ import annotations

import os
import threading
import time

import pytest

from tests.crash.lane import LOCAL_PICKUP, Lane
from tests.governed.test_at_the_simulators import anew, count_anew, limit, stats
from tests.support.shop import order, until

OUTAGE_SECONDS = float(os.environ.get("OUTAGE_SECONDS", "40"))
ORDERS_PER_SECOND = 8
RATE = 30
LANE = {"SUPERVISION_COMPLETE_WITHIN": "6", "API_THROTTLE": "off", LOCAL_PICKUP: "1"}
PAID = "SELECT count(*) FROM supervision_stepevent WHERE position = 1 AND direction = 'do' AND to_state = 'Processed' AND at > %s"


class Customers(threading.Thread):
    """Order steadily until told to stop."""

    def __init__(self, lane: Lane) -> None:
        super().__init__(daemon=True)
        self.lane, self.placed, self.stopped = lane, 0, threading.Event()

    def run(self) -> None:
        due = time.monotonic()
        while not self.stopped.is_set():
            answer = self.lane.http.post("/api/v1/orders/", json=order(), headers=self.lane.shopper)
            self.placed += answer.status_code == 202
            due += 1 / ORDERS_PER_SECOND
            time.sleep(max(0.0, due - time.monotonic()))


def payments_per_order(lane: Lane, customers: Customers, orders: int) -> float:
    """How many payments succeed for each of the next `orders` orders: 1 while payment keeps up with the customers, on any machine."""
    [[since]], before = lane.rows("SELECT clock_timestamp()"), customers.placed
    until(lambda: customers.placed >= before + orders, within=10 * orders / ORDERS_PER_SECOND, what="the orders")
    return lane.rows(PAID, since)[0][0] / (customers.placed - before)


@pytest.mark.nightly
@pytest.mark.timeout(4 * OUTAGE_SECONDS + 300)
def test_a_long_outage_under_load_sends_nobody_to_error_slows_nobody_else_and_drains(lane: Lane) -> None:
    lane.rows("UPDATE orders_product SET available = 1000000 WHERE sku = 'MUG-BLUE' RETURNING sku")
    lane.stock = 1_000_000
    anew(lane)
    limit(lane, "shipping", rate_per_second=RATE, cool_down_seconds=5)
    time.sleep(0.6)
    customers = Customers(lane)
    customers.start()
    steady = min(60.0, OUTAGE_SECONDS / 2)
    until(lambda: lane.rows(PAID, "-infinity")[0][0] >= ORDERS_PER_SECOND, within=60, what="the first payments")
    before = payments_per_order(lane, customers, int(steady * ORDERS_PER_SECOND))

    down = time.monotonic()
    lane.fault(service="carrier", mode="down")
    time.sleep(10)  # the calls in flight fail
    count_anew(lane)
    during = payments_per_order(lane, customers, int((OUTAGE_SECONDS - 10) * ORDERS_PER_SECOND))
    probes = stats(lane, "carrier")["calls"]
    waiting = lane.rows("SELECT count(*) FROM supervision_run WHERE process_state = 'Processing'")[0][0]
    errors = lane.rows("SELECT count(*) FROM supervision_run WHERE process_state = 'Error'")[0][0]
    count_anew(lane)
    lane.fault()
    back = time.monotonic()
    lasted = back - down
    left = "SELECT count(*) FROM supervision_run WHERE process_state NOT IN ('Processed', 'Error')"
    until(lambda: lane.rows(left)[0][0] < 3 * ORDERS_PER_SECOND, within=3 * lasted + 60, what="the backlog to drain")
    drained = time.monotonic() - back
    customers.stopped.set()
    customers.join(30)
    until(lambda: lane.rows(left)[0][0] == 0, within=60, what="the last orders to end")
    busiest = stats(lane, "carrier")["max_per_second"]

    print(
        f"down for {lasted:.0f} s: {customers.placed} orders, {errors} in Error, {waiting} waited;"
        f" {before:.2f} payments per order before, {during:.2f} during; {probes} requests in vain;"
        f" drained in {drained:.0f} s; at most {busiest} requests a second of {RATE}"
    )
    assert errors == 0
    assert lane.rows("SELECT count(*) FROM supervision_alert WHERE kind = 'error'") == [(0,)]
    assert during >= 0.9 * min(1.0, before)
    assert probes <= 4 * (lasted / 5 + 1)  # one probe per cool-down, each of up to four requests
    assert busiest <= RATE
    lane.audit()
