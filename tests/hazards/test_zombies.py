"""Frozen processes and requests that arrive late (H1, H2): the services' ledgers show one effect or none."""

from __future__ import annotations

import os
import signal

import pytest

from tests.crash.lane import Lane
from tests.support.forked import state_of
from tests.support.shop import until

LANE = {"SUPERVISION_COMPLETE_WITHIN": "3"}
# The worker freezes after its checkpoint holds the payment intent, one call before money moves.
FROZEN = {"FAILPOINTS": "agent.after_checkpoint=stop@1"}


def strays(lane: Lane, key: str) -> int:
    return int(
        lane.rows("SELECT count(*) FROM supervision_strayreply s JOIN supervision_run r ON r.id = s.run_id WHERE r.key = %s", key)[0][0]
    )


def freeze_a_worker_before_the_charge(lane: Lane) -> str:
    """Place an order and freeze the only agents worker in the middle of the payment."""
    lane.fault()
    lane.all_work("agents")
    lane.end("agents.2")
    lane.end("agents")
    lane.work("agents", **FROZEN)
    key = lane.buy()
    until(lambda: state_of(lane.pid("agents")) == "T", what="the worker to be frozen")
    return key


def wake(lane: Lane, key: str) -> None:
    """Wake the frozen worker and wait for its answer."""
    before = strays(lane, key)
    os.kill(lane.pid("agents"), signal.SIGCONT)
    until(lambda: strays(lane, key) > before, what="the late answer")


def test_a_worker_frozen_past_the_reclaim_charges_nobody_twice(lane: Lane) -> None:
    key = freeze_a_worker_before_the_charge(lane)
    lane.work("agents.2")
    lane.is_done_once(key)

    wake(lane, key)

    lane.is_done_once(key)
    lane.audit()


@pytest.mark.nightly
def test_a_worker_frozen_past_the_compensation_charges_nothing(lane: Lane) -> None:
    key = freeze_a_worker_before_the_charge(lane)
    answer = lane.http.post(f"/api/v1/orders/{key}/cancel/", json={"reason": "changed my mind"}, headers=lane.shopper)
    assert answer.status_code == 202, answer.text
    lane.work("agents.2")  # started only now, because on a busy machine it could have charged earlier
    lane.is_undone_to_nothing(key)

    wake(lane, key)

    lane.is_undone_to_nothing(key)
    assert "confirm" not in lane.did("payment", key)
    lane.audit()


@pytest.mark.nightly
def test_a_booking_that_arrives_after_its_deletion_books_nothing(lane: Lane) -> None:
    lane.fault()
    lane.end("agents.2")
    lane.all_work()
    lane.fault(service="carrier", mode="slow", latency_ms=6000)
    key = lane.buy()
    until(lambda: "confirm" in lane.did("payment", key), what="the payment")
    until(
        lambda: lane.rows(
            "SELECT 1 FROM supervision_stepstate WHERE name = 'book-shipment' AND started_at IS NOT NULL AND process_state = 'Processing'"
        )
    )

    answer = lane.http.post(f"/api/v1/orders/{key}/cancel/", json={"reason": "changed my mind"}, headers=lane.shopper)
    assert answer.status_code == 202, answer.text
    lane.fault()
    lane.is_undone_to_nothing(key)

    def late() -> bool:
        return any(
            entry["operation"] == "create" and entry["answer"].startswith("410") for entry in lane.ledger("carrier", key, effects=False)
        )

    until(late, within=15, what="the late booking, refused")
    lane.is_undone_to_nothing(key)
    lane.audit()
