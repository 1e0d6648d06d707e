"""How long recovery takes with real processes: all workers killed, all messages lost, the leading supervisor frozen."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from chaos.brokers import RabbitMQ
from tests import services
from tests.support.shop import WORKERS, Shop, open_shop, order, until
from tests.support.soak import sized

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

COMPLETE_BY, SWEEP = 5.0, 1.0
KILLED, PURGED = sized(60, 200), sized(150, 500)  # orders in flight
BACK_OFF = 1.2  # seconds at most, for a step that failed once
PROCESSES = ("scheduler", "scheduler.2", "agents", "agents.2", "supervisor", "supervisor.2", "beat", "web")
SHORT = {"SUPERVISION_COMPLETE_WITHIN": str(COMPLETE_BY), "SUPERVISION_SWEEP_SECONDS": str(SWEEP)}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    """A shop on RabbitMQ with two processes of each worker role and short deadlines."""
    with services.own_vhost() as url, open_shop(url, tmp_path_factory.mktemp("shop"), *PROCESSES, **SHORT) as running:
        running.broker_url = url  # type: ignore[attr-defined]
        yield running


def place(shop: Shop, count: int) -> None:
    """Place this many orders in one request."""
    body = {"orders": [order() for _ in range(count)]}
    answer = shop.http.post("/api/v1/orders/batch/", json=body, headers=shop.headers())
    assert [result["status"] for result in answer.json()["results"]] == [202] * count


def states(shop: Shop, last: int) -> dict[str, int]:
    """The number of orders in each state, counting those placed after this one."""
    return dict(shop.rows("SELECT process_state, count(*) FROM supervision_run WHERE id > %s GROUP BY 1", last))


def last_order(shop: Shop) -> int:
    """The run id of the newest order."""
    return int(shop.rows("SELECT coalesce(max(id), 0) FROM supervision_run")[0][0])


def ended(shop: Shop, last: int) -> int:
    """How many of the orders placed after this one have ended."""
    return sum(count for state, count in states(shop, last).items() if state in ("Processed", "Cancelled", "Error"))


def now(shop: Shop) -> Any:
    """The database's clock."""
    return shop.rows("SELECT clock_timestamp()")[0][0]


def slack(shop: Shop) -> float:
    """How many seconds later than on a quiet machine an answer may come: measured by the start of one process."""
    began = time.monotonic()
    shop.manage("version")
    return 1.0 + 3 * (time.monotonic() - began)


def test_every_step_is_claimed_again_in_time_when_all_workers_are_killed_with_many_orders_in_flight(shop: Shop) -> None:
    before = last_order(shop)
    shop.fault(service="payment", mode="slow", latency_ms=3000)
    place(shop, KILLED)
    running = "FROM supervision_stepstate WHERE process_state = 'Processing'"
    until(lambda: shop.rows(f"SELECT count(*) {running} AND position = 1")[0][0] == KILLED, what="all orders at the payment")

    workers = [name for name in PROCESSES if name.startswith(WORKERS)]
    shop.kill9(*workers)
    killed = now(shop)
    held = shop.rows(f"SELECT run_id, position {running}")
    shop.fault()
    shop.start(*workers)
    started = (now(shop) - killed).total_seconds()  # no step can be claimed before; a second on a quiet machine
    late = slack(shop)

    until(lambda: ended(shop, before) == KILLED, within=60, what="all orders to end")
    claims = shop.rows(
        "SELECT max(at) - %s FROM (SELECT DISTINCT ON (run_id, position) at FROM supervision_stepevent e"
        " WHERE to_state = 'Processing' AND at > %s AND (run_id, position) IN (SELECT * FROM unnest(%s::bigint[], %s::int[]))"
        " ORDER BY run_id, position, seq) claimed",
        *(killed, killed, [run for run, _ in held], [position for _, position in held]),
    )
    took = claims[0][0].total_seconds()
    print(f"{len(held)} steps in hand; the last was claimed again {took:.1f} s after the kill")
    assert took < max(COMPLETE_BY, started) + SWEEP + BACK_OFF + late
    assert states(shop, before) == {"Processed": KILLED}
    keys = sorted(key for (key,) in shop.rows("SELECT key FROM supervision_run WHERE id > %s", before))
    for service, operation in (("payment", "confirm"), ("carrier", "create")):
        done = [entry["order"] for entry in shop.ledger(service) if entry["operation"] == operation]
        assert sorted(done) == keys


def test_all_orders_end_in_time_and_none_in_error_when_every_queue_is_purged_with_many_in_flight(shop: Shop) -> None:
    broker = RabbitMQ(shop.broker_url, shop.broker_url.rpartition("/")[2], shop.database_url)  # type: ignore[attr-defined]
    before = last_order(shop)
    for name in ("agents", "agents.2"):
        shop.signal(name, signal.SIGSTOP)
    place(shop, PURGED)
    until(lambda: states(shop, before) == {"Processing": PURGED}, what="all claims")

    broker.cut_connections()  # messages that the frozen workers had fetched go back to their queue
    purged = until(broker.purge, what="something to purge")
    began = time.monotonic()
    for name in ("agents", "agents.2"):
        shop.signal(name, signal.SIGCONT)

    until(lambda: ended(shop, before) == PURGED, within=COMPLETE_BY + SWEEP + 30, what="all orders to end")
    print(f"{purged} messages lost; all {PURGED} orders had ended {time.monotonic() - began:.1f} s later")
    assert states(shop, before) == {"Processed": PURGED}
    assert shop.rows("SELECT count(*) FROM supervision_alert WHERE kind = 'error'") == [(0,)]


def test_another_supervisor_sweeps_within_twelve_seconds_when_the_leader_is_frozen(shop: Shop) -> None:
    leading = "SELECT holder FROM supervision_leaderlease WHERE name = 'supervisor'"
    holder = until(lambda: shop.rows(leading), what="a leader")[0][0]
    frozen = next(name for name in ("supervisor", "supervisor.2") if f"-{shop.processes[name].pid}-" in holder)

    shop.signal(frozen, signal.SIGSTOP)
    began = time.monotonic()
    until(lambda: shop.rows(leading)[0][0] != holder, within=30, what="another leader")
    taken_over = now(shop)
    until(
        lambda: shop.rows("SELECT 1 FROM supervision_heartbeat WHERE role = 'supervisor-sweep' AND seen_at > %s", taken_over),
        what="a sweep of the new leader",
    )
    took = time.monotonic() - began
    print(f"another supervisor had swept {took:.1f} s after the leader was frozen")
    assert took < 12.0 + slack(shop)
    shop.signal(frozen, signal.SIGCONT)
