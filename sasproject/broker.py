"""The kinds of broker that the settings accept. `CELERY_BROKER_URL` alone chooses the broker."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

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
    if (elsewhere := _database(url)) is not None:
        url, database = "pgmq://", elsewhere
    return options.of_broker(url, database)


def address(url: str) -> str | None:
    """What kombu reads instead of a `pgmq://` with a database. None: the URL itself.

    It cannot read what libpq can, such as `?sslmode=require` or several hosts. The connections have all that from `transport_options`.
    """
    if (elsewhere := _database(url)) is None:
        return None
    return f"pgmq://{quote(elsewhere['HOST'], safe=',')}/{quote(elsewhere['NAME'], safe='')}"


def _database(url: str) -> dict[str, Any] | None:
    """The entry of the database that a `pgmq://` names; None where it names none, and for another kind of broker."""
    if transport(url) != "pgmq" or not url.partition("://")[2].strip("/"):
        return None
    return pinned(from_url(url.replace("pgmq://", "postgres://", 1), "CELERY_BROKER_URL", purpose="queues"))
