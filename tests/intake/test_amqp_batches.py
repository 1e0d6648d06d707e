"""What holds up no message of the intake and keeps none twice: a count that the producer wrote, and a batch that is cut off."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from supervision.intake import amqp_consumer
from supervision.intake.amqp import DEAD, NAME
from supervision.runtime import failpoints
from tests.intake.brokers import Amqp
from tests.intake.test_amqp import (
    GOOD,
    _in_haste,
    account,
    amqp_url,
    application,
    consuming,
    letters,
    mug,
    producer,
    publish,
    queue,
    taken,
    vhost,
)
from tests.support.shop import until

__all__ = ["_in_haste", "account", "amqp_url", "mug", "producer", "queue", "vhost"]

pytestmark = pytest.mark.amqp


def test_a_batch_that_is_cut_off_between_its_messages_keeps_each_dead_letter_once(
    account: User, queue: Amqp, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amqp_consumer, "PAUSE_SECONDS", 0.1)
    publish(queue, b"nonsense", "letter-1")
    publish(queue, b'{"order": "\\u0000", "name": "paid"}', "letter-2", type="signal")  # PostgreSQL refuses the whole batch for it
    publish(queue, GOOD, "order-1")

    failpoints.load({"FAILPOINTS": "intake.before_commit=raise@2", "ALLOW_FAILPOINTS": "1"})  # the second commit is that of the order
    try:
        with consuming(amqp_url):
            until(lambda: taken() == ["order-1"])
            until(lambda: queue.left(NAME) == 0)
    finally:
        failpoints.load({})

    assert [letter.delivery["properties"]["message_id"] for letter in letters()] == ["letter-1", "letter-2"]


@pytest.mark.parametrize("shape", [amqp_consumer.SHAPES, ({},)], ids=["quorum", "classic"])
@pytest.mark.parametrize("count", [-1, -5])
def test_a_count_of_deliveries_that_the_producer_wrote_holds_no_message_up(
    count: int, shape: Any, account: User, producer: Amqp, amqp_url: str
) -> None:
    with application(amqp_url).connection_for_read() as broker:
        amqp_consumer.declared(broker, DEAD, amqp_consumer.DEAD_SHAPES)
        amqp_consumer.declared(broker, NAME, shape)
    publish(producer, GOOD, "order-1", application_headers={"x-delivery-count": count})
    publish(producer, GOOD, "order-2")

    with consuming(amqp_url):
        until(lambda: taken() == ["order-1", "order-2"])
        until(lambda: producer.left(NAME) == 0)
