"""The transport options of each kind of broker. `CELERY_BROKER_URL` alone chooses the broker.

The broker only carries hints, so no option here is for durability. The timeouts limit how long a caller can hang.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured
from psycopg.conninfo import make_conninfo

from sasproject.env import database_from_url

SCHEMES = ("amqp", "amqps", "redis", "rediss", "pgmq", "memory")  # memory: tests that need no worker


def transport(url: str) -> str:
    """The kind of broker: `amqp`, `redis`, `pgmq` or `memory`, with or without TLS."""
    scheme = urlsplit(url).scheme
    if scheme not in SCHEMES:
        raise ImproperlyConfigured(f"CELERY_BROKER_URL must start with amqp://, redis:// or pgmq://, not {scheme or url!r}.")
    return {"amqps": "amqp", "rediss": "redis"}.get(scheme, scheme)


def transport_options(url: str, database: dict[str, Any]) -> dict[str, Any]:
    """kombu's options for this broker. database: the default database, which a bare `pgmq://` uses."""
    return {"amqp": _amqp, "redis": _redis, "pgmq": lambda: _pgmq(url, database), "memory": _memory}[transport(url)]()


def conninfo(database: dict[str, Any]) -> str:
    """libpq's connection string for a Django database entry: the URL form cannot carry a socket directory."""
    wanted = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    given = {ours: database[theirs] for ours, theirs in wanted.items() if database.get(theirs)}
    options = {key: value for key, value in database.get("OPTIONS", {}).items() if key != "pool"}
    return make_conninfo(**given, **options)


def _amqp() -> dict[str, Any]:
    return {"connect_timeout": 5, "write_timeout": 5}


def _memory() -> dict[str, Any]:
    return {}


def _redis() -> dict[str, Any]:
    return {
        "visibility_timeout": 3600,  # tasks are acknowledged when they start: this concerns prefetched messages only
        "socket_connect_timeout": 5,
        "socket_timeout": 5,  # kombu blocks for 1 s at a time; after 5 s without an answer the server counts as lost
        "socket_keepalive": True,
        "health_check_interval": 10,
    }


def _pgmq(url: str, database: dict[str, Any]) -> dict[str, Any]:
    elsewhere = urlsplit(url).netloc or urlsplit(url).path.strip("/")
    target = database_from_url(url.replace("pgmq://", "postgres://", 1), "CELERY_BROKER_URL") if elsewhere else database
    return {
        "conn_string": conninfo(target),
        "init_extension": False,  # plain SQL, installed after `migrate`; no server extension needed
        "use_notify": True,
        "notify_throttle_interval_ms": 0,
        "wait_time_seconds": 0,
        # kombu's default of 1 s stalls the queue whenever the prefetch window is full.
        "polling_interval": 0.05,
        "visibility_timeout": 60,
        "pool_size": 2,  # one reads while another acknowledges; no more, because the server's connections are limited
        "pool_timeout": 5,
    }
