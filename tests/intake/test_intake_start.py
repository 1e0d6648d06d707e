"""The intake of orders from RabbitMQ begins with its worker, also where the database is away."""

from __future__ import annotations

import pytest
from celery import Celery

from supervision.intake import amqp_consumer

pytestmark = pytest.mark.amqp


def test_the_intake_begins_while_the_database_is_away(amqp_url: str, monkeypatch: pytest.MonkeyPatch):
    """Here a test without the mark has no database: a worker that starts after a power cut may wait for it for minutes."""
    monkeypatch.setenv("CELERY_BROKER_URL", amqp_url)

    amqp_consumer.start(Celery("intake", broker=amqp_url, set_as_current=False))

    try:
        assert amqp_consumer._running is not None
    finally:
        amqp_consumer.stop()
        amqp_consumer.finish(30)
        amqp_consumer._running = None
