"""The kinds of broker that the settings accept. `CELERY_BROKER_URL` alone chooses the broker."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ImproperlyConfigured

from sasproject.database import from_url, pinned
from supervision.transports import options

SCHEMES = ("amqp", "amqps", "redis", "rediss", "pgmq", "memory")  # memory: tests that need no worker


def transport(url: str) -> str:
    """The kind of broker: `amqp`, `redis`, `pgmq` or `memory`, with or without TLS."""
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme not in SCHEMES:
        raise ImproperlyConfigured(f"CELERY_BROKER_URL must start with amqp://, redis:// or pgmq://, not {scheme!r}.")
    return {"amqps": "amqp", "rediss": "redis"}.get(scheme, scheme)


def transport_options(url: str, database: dict[str, Any]) -> dict[str, Any]:
    """kombu's options for this broker. database: the default database, which a bare `pgmq://` uses."""
    if transport(url) == "pgmq" and url.partition("://")[2].strip("/"):
        database = pinned(from_url(url.replace("pgmq://", "postgres://", 1), "CELERY_BROKER_URL", purpose="queues"))
        url = "pgmq://"
    return options.of_broker(url, database)
