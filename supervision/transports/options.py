"""The transport options of each kind of broker, and libpq's connection string for PGMQ.

The broker only carries hints, so no option here is for durability. The timeouts limit how long a caller can hang.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from psycopg import ProgrammingError, pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from supervision.postgres import params

# For a URL that does not say otherwise. PGMQ's functions have strings with backslashes; psycopg reads times in the style ISO alone.
_USUAL: Mapping[str, Any] = {"connect_timeout": 5, "options": "-c DateStyle=ISO -c standard_conforming_strings=on"}


def of_broker(url: str, database: Mapping[str, Any]) -> dict[str, Any]:
    """kombu's options for this broker. database: a Django database entry, which a bare `pgmq://` uses."""
    kind = urlsplit(url).scheme
    if kind in ("redis", "rediss"):
        return {
            "visibility_timeout": 3600,  # tasks are acknowledged when they start: this concerns prefetched messages only
            "socket_connect_timeout": 5,
            "socket_timeout": 5,  # kombu blocks for 1 s at a time; after 5 s without an answer the server counts as lost
            "socket_keepalive": True,
            "health_check_interval": 10,
        }
    if kind == "pgmq":
        elsewhere = urlsplit(url).netloc or urlsplit(url).path.strip("/")
        return _pgmq(_of_url(url) if elsewhere else conninfo(database))
    return {"connect_timeout": 5, "write_timeout": 5} if kind in ("amqp", "amqps") else {}


def _of_url(url: str) -> str:
    uri = url.replace("pgmq://", "postgresql://", 1)
    try:
        return make_conninfo(**{**_USUAL, **conninfo_to_dict(uri)})
    except ProgrammingError:
        return uri  # libpq says what is wrong with it, without a password, when it connects


def conninfo(database: Mapping[str, Any]) -> str:
    """libpq's connection string for a Django database entry: the URL form cannot carry a socket directory.

    What the entry leaves out is written as libpq would complete it (PGHOST, ...): PGMQ has other defaults than libpq.
    """
    wanted = {"dbname": "NAME", "user": "USER", "password": "PASSWORD", "host": "HOST", "port": "PORT"}
    usual = {each.keyword.decode(): each.val.decode() for each in pq.Conninfo.get_defaults() if each.val}
    given: dict[str, Any] = {ours: database.get(theirs) or usual.get(ours) for ours, theirs in wanted.items()}
    known = params.libpqs(database.get("OPTIONS") or {})
    known["application_name"] = params.named(known.get("application_name"), "queues")
    return make_conninfo(**{**given, **known})


def _pgmq(conn_string: str) -> dict[str, Any]:
    return {
        "conn_string": conn_string,
        "init_extension": False,  # plain SQL, installed after `migrate`; no server extension needed
        "use_notify": True,
        "notify_throttle_interval_ms": 0,
        "wait_time_seconds": 0,
        "visibility_timeout": 60,
        "pool_size": 2,  # one reads while another acknowledges; no more, because the server's connections are limited
        "pool_timeout": 5,
    }
