"""Celery's own tools against the shop's workers, with the user `control`; and that nothing is lost by their commands."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.rabbitmq.test_users import Hand
from tests.support.shop import WORKERS, until

pytestmark = pytest.mark.amqp


def test_celery_status_and_inspect_answer_from_every_worker(shop: Any) -> None:
    assert "3 nodes online" in shop.celery("status", "-t", "2")
    ping = json.loads(shop.celery("inspect", "ping", "-t", "2", "--json").splitlines()[-1])
    active = json.loads(shop.celery("inspect", "active_queues", "-t", "2", "--json").splitlines()[-1])

    assert sorted(name.partition("-")[0] for name in ping) == sorted(WORKERS)
    assert {queue["name"] for queues in active.values() for queue in queues} >= {"submissions", "scheduler", "supervisor", "agent.payment"}


@pytest.mark.nightly
def test_a_worker_that_is_shut_down_or_told_to_revoke_loses_no_order(shop: Any) -> None:
    shop.fault(service="payment", mode="slow", latency_ms=1500)
    keys = [shop.place(shop.headers()) for _ in range(3)]
    until(lambda: shop.ledger("payment", effects=False), what="a payment call")
    [agents] = [
        name for name in json.loads(shop.celery("inspect", "ping", "-t", "2", "--json").splitlines()[-1]) if name.startswith("agents")
    ]
    running = json.loads(shop.celery("inspect", "active", "-t", "2", "--json", "-d", agents).splitlines()[-1])[agents]

    for task in running:
        shop.celery("control", "-t", "2", "revoke", task["id"], check=False)
    shop.celery("control", "-t", "2", "-d", agents, "shutdown", check=False)
    shop.processes["agents"].wait(30)
    shop.fault()
    shop.start("agents")

    for key in keys:
        shop.ends(key, "Processed")
        assert len([entry for entry in shop.ledger("payment", key) if entry["operation"] == "confirm"]) == 1


def test_events_come_where_they_are_switched_on(shop: Any) -> None:
    hand = Hand(shop.urls["control"], str)
    channel = hand.connection.channel()
    queue = channel.queue_declare("celeryev.watched", auto_delete=True).queue
    channel.queue_bind(queue, "celeryev", "#")
    seen: list[str] = []
    channel.basic_consume(queue, no_ack=True, callback=lambda message: seen.append(message.delivery_info["routing_key"]))

    def both() -> bool:
        hand.connection.drain_events(timeout=10)
        return {"worker.heartbeat", "task.multi"} <= set(seen) or {"worker.heartbeat", "task.succeeded"} <= set(seen)

    until(both, what="events of workers and tasks")
    hand.connection.close()
