"""Declare at RabbitMQ what the roles use, so that their users need no right to declare."""

from __future__ import annotations

from typing import Any

from celery import current_app
from django.core.management.base import CommandError
from kombu.utils.url import maybe_sanitize_url

from supervision.management.base import Command as Base
from supervision.operations.doctor import first_line
from supervision.rabbitmq import declaring
from supervision.transports import topology


class Command(Base):
    """Run it like `migrate`: before the first start, and when a release has new agents or other partitions."""

    help = (
        "Declare exchanges, queues and bindings at RabbitMQ, with the user in CELERY_BROKER_URL: the user `setup` of "
        "manage.py broker_users. Run it before the first start, and where an agent or SUPERVISION_PARTITIONS is new. It may be "
        "repeated. Roles with CELERY_BROKER_DECLARE=0 then declare nothing themselves."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        url = current_app.conf.broker_url
        if not topology.is_rabbitmq(url):
            raise CommandError(f"CELERY_BROKER_URL names no RabbitMQ: {maybe_sanitize_url(url)}. Other brokers need no such step.")
        try:
            with current_app.connection_for_write() as connection:
                connection.ensure_connection(max_retries=1, interval_start=0, interval_step=0, timeout=5)
                there = declaring.declare(connection)
        except Exception as error:
            raise CommandError(f"{maybe_sanitize_url(url)}: {first_line(error)}") from error
        for name in there:
            self.stdout.write(name)
