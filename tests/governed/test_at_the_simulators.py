"""Limits measured at the remote service: four agents processes never make more calls than allowed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from chaos.look import TLS
from supervision.governance.rate_limiter import JITTER_SECONDS
from tests.crash.lane import LOCAL_PICKUP, PIECES, Lane
from tests.support.shop import order, until

pytestmark = pytest.mark.timeout(1200)

LANE = {"SUPERVISION_COMPLETE_WITHIN": "18", "API_THROTTLE": "off", LOCAL_PICKUP: "1"}
TRIES = 3  # of a measurement on a machine that stalls
AGENTS = ("agents", "agents.2", "agents.3", "agents.4")


def limit(lane: Lane, name: str, **limits: Any) -> None:
    """Change a resource's limits as an operator does in the admin; None lifts a limit."""
    pairs = ", ".join(f"{column} = {'NULL' if value is None else repr(value)}" for column, value in limits.items())
    lane.rows(f"UPDATE supervision_resource SET {pairs} WHERE name = '{name}' RETURNING name")  # noqa: S608 - a test's own words


def stats(lane: Lane, service: str) -> dict[str, int]:
    return httpx2.get(f"{lane.simulators_url}/stats", timeout=10, verify=TLS).json()[service]


def count_anew(lane: Lane) -> None:
    httpx2.delete(f"{lane.simulators_url}/stats", timeout=10, verify=TLS)


def anew(lane: Lane) -> None:
    """Four agents processes, healthy services with some latency, no limits, and the services' counters at zero."""
    for role in ("scheduler", "supervisor", *AGENTS):
        lane.work(role)
    lane.fault()
    for name in ("payment", "shipping"):
        limit(lane, name, capacity=None, rate_per_second=None, paused=False, breaker_threshold=5, cool_down_seconds=1)
    time.sleep(0.6)  # every process reads the rows again within half a second
    count_anew(lane)


def buy(lane: Lane, count: int) -> list[str]:
    """Place this many orders in batches."""
    lane.rows(f"UPDATE orders_product SET available = available + {PIECES * count} WHERE sku = 'MUG-BLUE' RETURNING sku")  # noqa: S608
    lane.stock += PIECES * count
    keys: list[str] = []
    while len(keys) < count:
        bodies = [order() for _ in range(min(200, count - len(keys)))]
        answer = lane.http.post("/api/v1/orders/batch/", json={"orders": bodies}, headers=lane.shopper, timeout=60)
        assert answer.status_code == 202, answer.text
        keys += [result["id"] for result in answer.json()["results"]]
    return keys


@contextmanager
def longest_stall() -> Iterator[list[float]]:
    """The longest time in seconds for which this machine did not let a thread go on that had slept.

    On a machine that stalls, requests that were sent far enough apart are counted close together.
    """
    longest, over = [0.0], threading.Event()

    def measure() -> None:
        while not over.is_set():
            began = time.monotonic()
            time.sleep(0.01)
            longest[0] = max(longest[0], time.monotonic() - began - 0.01)

    thread = threading.Thread(target=measure)
    thread.start()
    try:
        yield longest
    finally:
        over.set()
        thread.join()


def all_processed(lane: Lane, keys: list[str], *, within: float) -> None:
    def open_orders() -> int:
        states = dict(lane.rows("SELECT process_state, count(*) FROM supervision_run WHERE key = ANY (%s) GROUP BY 1", keys))
        assert not set(states) - {"Pending", "Processing", "Processed"}, states
        return len(keys) - states.get("Processed", 0)

    until(lambda: open_orders() == 0, within=within, what="all orders to be Processed")


# Only of the limited step: other steps may expire when thousands of orders come at once to two cores.
FAILURES = """
SELECT DISTINCT e.why FROM supervision_stepstate s
  JOIN supervision_stepevent e ON e.run_id = s.run_id AND e.position = s.position AND e.from_state = 'Processing'
 WHERE s.name = 'book-shipment' AND s.failure_count > 0
"""


@pytest.mark.nightly
def test_calls_in_flight_never_exceed_the_capacity_and_a_change_holds_from_the_next_claim(lane: Lane) -> None:
    count = 2000 if os.environ.get("GOVERNED_IN_FULL") else 40
    anew(lane)
    limit(lane, "shipping", capacity=5)
    lane.fault(service="carrier", mode="slow", latency_ms=1000)
    time.sleep(0.6)
    keys = buy(lane, count)
    until(lambda: stats(lane, "carrier")["max_in_flight"] >= 5, within=60, what="as many calls at once as are allowed")
    until(lambda: stats(lane, "carrier")["calls"] >= 20, within=60, what="calls that took the place of the first ones")
    lane.fault(service="carrier", mode="slow", latency_ms=40)
    until(lambda: stats(lane, "carrier")["calls"] >= count / 2, within=120, what="half of the calls")
    assert stats(lane, "carrier")["max_in_flight"] == 5

    limit(lane, "shipping", capacity=2)
    until(lambda: stats(lane, "carrier")["in_flight"] <= 2, within=60, what="the calls under way to end")
    count_anew(lane)
    all_processed(lane, keys, within=180)

    assert stats(lane, "carrier")["max_in_flight"] <= 2
    assert lane.rows("SELECT count(*) FROM supervision_slot") == [(0,)]
    assert lane.rows(FAILURES) == []
    print(f"{count} orders: never more than 5 calls at once, then never more than 2")


def test_no_second_has_more_requests_than_the_rate_says(lane: Lane) -> None:
    """Payment makes two requests per order, and both count."""
    count, rate = (200, 10) if os.environ.get("GOVERNED_IN_FULL") else (40, 25)
    for _ in range(TRIES):
        anew(lane)
        limit(lane, "payment", rate_per_second=rate)
        limit(lane, "shipping", rate_per_second=rate)
        time.sleep(0.6)

        began = time.monotonic()
        with longest_stall() as stall:
            keys = buy(lane, count)
            all_processed(lane, keys, within=90 + 4 * count / rate)
        took = time.monotonic() - began
        most = max(stats(lane, service)["max_per_second"] for service in ("payment", "carrier"))
        if most <= rate or stall[0] < JITTER_SECONDS / 3:
            break

    assert stats(lane, "payment")["calls"] >= 2 * count
    assert most <= rate, f"the machine stalled for at most {stall[0]:.2f} s"
    assert took >= 2 * count / rate - 1
    print(f"{count} orders at {rate}/s: {stats(lane, 'payment')} {stats(lane, 'carrier')} in {took:.1f} s, {2 * count / took:.1f}/s")


@pytest.mark.nightly
def test_the_slots_of_a_killed_process_come_back_within_their_lease(lane: Lane) -> None:
    anew(lane)
    limit(lane, "shipping", capacity=3)
    lane.fault(service="carrier", mode="slow", latency_ms=3000)
    time.sleep(0.6)
    keys = buy(lane, 3)
    until(lambda: stats(lane, "carrier")["in_flight"] == 3, within=60, what="three calls")

    for name in AGENTS:
        lane.end(name)
    killed = time.monotonic()
    assert lane.rows("SELECT count(*) FROM supervision_slot") == [(3,)]
    lane.fault()
    for name in AGENTS:
        lane.work(name)
    all_processed(lane, keys, within=90)

    print(f"the last order ended {time.monotonic() - killed:.1f} s after the kill; a slot's lease is 18 s and 1 s of grace")
    assert lane.rows("SELECT count(*) FROM supervision_slot WHERE until > now()") == [(0,)]


def test_five_failures_open_the_breaker_for_all_processes_within_a_second_and_one_success_closes_it(lane: Lane) -> None:
    anew(lane)
    limit(lane, "shipping", breaker_threshold=5, cool_down_seconds=2, probe_limit=1)
    lane.fault(service="carrier", mode="down")
    time.sleep(0.6)
    keys = buy(lane, 60)
    is_open = "SELECT 1 FROM supervision_resource WHERE name = 'shipping' AND breaker_state = 'open'"
    until(lambda: lane.rows(is_open), within=90, what="it to open")
    # Calls that were in flight when the breaker opened come to their end. After a second every process knows the breaker.
    busy = "SELECT 1 FROM supervision_stepstate WHERE agent = 'shipping' AND process_state = 'Processing' AND started_at IS NOT NULL"
    until(lambda: not lane.rows(busy), within=60, what="the calls under way to end")
    time.sleep(1.0)
    began = time.monotonic()
    count_anew(lane)
    time.sleep(5.0)
    requests = stats(lane, "carrier")["calls"]
    # One probe per cool-down, and one at either end of the measured time. A probe is one call of the agent: one request
    # that is reset, and up to three requests that ask for its outcome.
    probes = int((time.monotonic() - began) / 2) + 2
    assert requests <= 4 * probes, f"{requests} requests in 5 s with a cool-down of 2 s and one probe at a time"

    lane.fault()
    all_processed(lane, keys, within=90)

    assert lane.rows("SELECT breaker_state FROM supervision_resource WHERE name = 'shipping'") == [("closed",)]
    assert lane.rows("SELECT count(*) FROM supervision_alert WHERE kind = 'error'") == [(0,)]
    lane.audit()
