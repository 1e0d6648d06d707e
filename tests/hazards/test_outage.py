"""A service that is down (H23, H25): orders wait, none stops in Error, and all end after the service is back."""

from __future__ import annotations

import time

import pytest

from tests.crash.lane import LOCAL_PICKUP, Lane
from tests.support.shop import until

LANE = {"SUPERVISION_COMPLETE_WITHIN": "3", "SUPERVISION_FAILURE_THRESHOLD": "5", "SUPERVISION_ON_PERMANENT": "", LOCAL_PICKUP: "1"}
DOWN_SECONDS = 20.0
MOST_CALLS = 100  # failed calls: a few until the breaker opens, then probes


@pytest.mark.slow
@pytest.mark.nightly
def test_an_outage_sends_no_order_to_error_and_all_end_when_the_service_is_back(lane: Lane) -> None:
    lane.all_work()
    lane.fault(service="payment", mode="down")
    began = time.monotonic()

    keys = [lane.buy() for _ in range(30)]
    until(lambda: time.monotonic() - began > DOWN_SECONDS, within=DOWN_SECONDS + 5)

    assert lane.rows("SELECT count(*) FROM supervision_run WHERE process_state = 'Error'") == [(0,)]
    assert lane.rows("SELECT breaker_state FROM supervision_resource WHERE name = 'payment'") in ([("open",)], [("half-open",)])
    counted = lane.rows("SELECT coalesce(max(failure_count), 0) FROM supervision_stepstate")[0][0]
    assert counted < 5

    lane.fault()
    for key in keys:
        lane.is_done_once(key)
    assert lane.rows("SELECT count(*) FROM supervision_alert WHERE kind = 'error'") == [(0,)]
    lane.audit()
