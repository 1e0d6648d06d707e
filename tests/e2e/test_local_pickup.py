"""Local pick-up on and off, with stock and payment in one process, carrier and mail in another: the history says who scheduled."""

from __future__ import annotations

from pathlib import Path

import pytest

from sasproject.roles import DEMO_AGENTS
from tests.support.shop import open_shop, until


@pytest.mark.parametrize(
    ("switch", "role"),
    [pytest.param("1", "agents-order", id="on"), pytest.param("0", "scheduler", id="off", marks=[pytest.mark.slow, pytest.mark.nightly])],
)
def test_the_history_names_the_process_that_scheduled_an_order_and_the_chain_reaches_the_other_one(
    tmp_path: Path, switch: str, role: str
) -> None:
    with open_shop("pgmq://", tmp_path, "scheduler", "web", SUPERVISION_LOCAL_PICKUP=switch) as shop:
        for name in DEMO_AGENTS:
            shop.start(name)
        headers = shop.headers()
        orders = []

        def found() -> bool:  # with local pick-up a busy process leaves an order to the scheduler
            orders.append(shop.place(headers))
            shop.ends(orders[-1], "Processed")
            return {actor.partition("@")[0] for actor in shop.scheduled_by(orders[-1])} == {role}

        until(found, within=60, what=f"an order scheduled in {role}")
        while switch == "0" and len(orders) < 5:
            assert found(), shop.scheduled_by(orders[-1])

        events = shop.http.get(f"/api/v1/orders/{orders[-1]}/events/", headers=headers).json()["results"]
        pids = {name: shop.processes[name].pid for name in ("scheduler", *DEMO_AGENTS)}
        reasons = [event["why"].partition("@")[0] for event in events if event["why"]]
        order, delivery = (f"handed over in {name}-{pids[name]}" for name in DEMO_AGENTS)
        assert reasons == [f"scheduled in {role}-{pids[role]}"] * 2 + [order, order, delivery]
