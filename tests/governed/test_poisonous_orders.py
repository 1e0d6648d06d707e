"""Orders whose calls always fail, among healthy ones: the bad orders stop in Error, and the others do not wait for them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pytest

from tests.crash.lane import LOCAL_PICKUP, Lane, open_lane
from tests.support.serving import Handler, serving
from tests.support.shop import ADDRESS, order, until

pytestmark = pytest.mark.timeout(1200)

POISON = "Poison"  # the city for which the carrier fails every booking
WITHIN_SECONDS = 60.0


class Carrier(Handler):
    """Answers 500 to everything about a shipment to POISON, and books all others."""

    poisonous: set[str] = set()  # keys

    def post(self) -> None:
        body = json.loads(self.body())
        key = self.headers["Idempotency-Key"]
        if body["to"]["city"] == POISON:
            self.poisonous.add(key)
            return self._answer(500, {"error": "internal"})
        return self._answer(201, {"id": f"shp_{key}", "tracking_number": "T1"})

    def get(self) -> None:
        if self.path.startswith("/v1/rates"):
            return self._answer(200, {"serviceable": True, "days": [1, 2]})
        if self.path.startswith("/v1/shipments?"):
            return self._answer(200, {"results": [], "next": None})
        return self._answer(500 if unquote(self.path.rpartition("/")[2]) in self.poisonous else 404, {"error": "internal"})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        self.answer(status, json.dumps(body).encode())


@pytest.fixture(scope="module")
def lane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    settings = {
        "SUPERVISION_COMPLETE_WITHIN": "6",
        "SUPERVISION_FAILURE_THRESHOLD": "5",
        "SUPERVISION_ON_PERMANENT": "",
        "API_THROTTLE": "off",
        LOCAL_PICKUP: "1",
    }
    with serving(Carrier) as url, open_lane(tmp_path_factory.mktemp("lane"), CARRIER_URL=url, **settings) as running:
        yield running


def buy(lane: Lane, count: int, city: str) -> list[str]:
    bodies = [order(shipping_address={**ADDRESS, "city": city}) for _ in range(count)]
    answer = lane.http.post("/api/v1/orders/batch/", json={"orders": bodies}, headers=lane.shopper, timeout=60)
    assert answer.status_code == 202, answer.text
    return [result["id"] for result in answer.json()["results"]]


def in_state(lane: Lane, keys: list[str], state: str) -> int:
    return int(lane.rows("SELECT count(*) FROM supervision_run WHERE key = ANY (%s) AND process_state = %s", keys, state)[0][0])


@pytest.mark.nightly
def test_three_poisonous_orders_do_not_keep_forty_healthy_ones_from_ending(lane: Lane) -> None:
    lane.all_work()
    poison = buy(lane, 3, POISON)
    # There are no other orders yet, so the engine cannot know that these orders cause the failures.
    until(lambda: lane.rows("SELECT 1 FROM supervision_resource WHERE name = 'shipping' AND failures >= 5"), within=60)
    began = time.monotonic()

    healthy = buy(lane, 40, "Torino")
    until(lambda: in_state(lane, healthy, "Processed") == 40, within=WITHIN_SECONDS, what="the healthy orders to end")
    print(f"40 healthy orders took {time.monotonic() - began:.1f} s")

    until(lambda: in_state(lane, poison, "Error") == 3, within=120, what="the poisonous orders to stop in Error")
    print(f"3 poisonous orders took {time.monotonic() - began:.1f} s")
    counted = lane.rows("SELECT DISTINCT failure_count FROM supervision_stepstate WHERE process_state = 'Error'")
    assert counted == [(5,)]
    told = "SELECT kind, severity, orders FROM supervision_incident WHERE closed_at IS NULL AND orders > 0"
    until(lambda: lane.rows(told) == [("step_error", "warning", 3)], within=20, what="one incident that holds all three")
