"""The settings of the database: from DATABASE_URL and DATABASE_DIRECT_URL to Django's entries.

libpq reads the URL, so that everything which libpq knows may stand in it: several hosts, each parameter of a connection,
percent-encoded passwords, IPv6 addresses, a socket directory.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import psycopg
from django.core.exceptions import ImproperlyConfigured
from psycopg.conninfo import conninfo_to_dict

from sasproject.env import env_bool, env_int, env_seconds, env_secret

SCHEMES = ("postgres", "postgresql")
ENGINE = "supervision.postgres.backend"
_CHOICES = {
    "target_session_attrs": ("any", "read-write", "read-only", "primary", "standby", "prefer-standby"),
    "sslmode": ("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    "gssencmode": ("disable", "prefer", "require"),
    "channel_binding": ("disable", "prefer", "require"),
    "load_balance_hosts": ("disable", "random"),
}
_WHOLE = ("connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval", "keepalives_count", "tcp_user_timeout")
# A connection to a server that vanished without closing its sockets ends after ten seconds, not after two hours.
_KEPT_ALIVE = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3, "tcp_user_timeout": 10_000}
# The timeout: a process frozen inside a transaction must not hold its locks until it is thawed. Our transactions wait for
# no other process, so they are never idle so long. A process that is cut off here finds that it has lost its claims.
# jit=off: compiling our short statements takes longer than executing them (a claim: 0.1 s). The planner cannot know that.
# The others are the server's own defaults. They override what a database or a role was given, because our code needs them: psycopg
# reads times in the style ISO alone; PGMQ's functions have strings with backslashes; arrays of ours have NULLs; a guarded statement
# has to see what was committed while it waited for its row.
SESSION = {
    "idle_in_transaction_session_timeout": "10000",
    "jit": "off",
    "DateStyle": "ISO",
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "default_transaction_isolation": "read committed",
}


def entries(default: str, threads: int) -> dict[str, Any]:
    """DATABASES. default: the URL without DATABASE_URL. threads: how many requests one web process answers at a time.

    With DATABASE_DIRECT_URL, DATABASE_URL is a pooler in transaction mode, and `direct` is the way around it.
    """
    pooled, direct_url = env_bool("DATABASE_POOL", default=False), env_secret("DATABASE_DIRECT_URL")
    entry = from_url(env_secret("DATABASE_URL", default), "DATABASE_URL", purpose="requests" if pooled else "work")
    entry["CONN_MAX_AGE"] = None  # a worker's thread keeps its connection
    options, session = entry["OPTIONS"], dict(SESSION)
    if pooled:  # set by asgi.py: the web role's requests share connections
        entry["CONN_MAX_AGE"], entry["CONN_HEALTH_CHECKS"] = 0, True
        # One for each thread that answers requests, and some for the live pages, which query now and then.
        size = env_int("DATABASE_POOL_SIZE", threads + 4, minimum=1)
        options["pool"] = {"min_size": 1, "max_size": size, "timeout": env_seconds("DATABASE_WAIT_SECONDS", 3.0)}
        session["statement_timeout"] = str(int(env_seconds("DATABASE_STATEMENT_SECONDS", 15.0) * 1000))
    if not direct_url:
        return {"default": pinned(entry, session)}
    # The pooler refuses the start-up parameter `options`: `migrate` gives these settings to the database's role instead.
    entry["DISABLE_SERVER_SIDE_CURSORS"] = True
    direct = pinned(from_url(direct_url, "DATABASE_DIRECT_URL", purpose="direct"))
    return {"default": entry, "direct": {**direct, "CONN_MAX_AGE": 0, "TEST": {"MIRROR": "default"}}}


def from_url(url: str, name: str, *, purpose: str) -> dict[str, Any]:
    """Django's entry for this URL. name: the variable that an error names. purpose: what pg_stat_activity says these connections do."""
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme not in SCHEMES:
        raise ImproperlyConfigured(f"{name} must start with postgres://, not {scheme!r}: only PostgreSQL holds the state.")
    try:
        given: dict[str, Any] = conninfo_to_dict(url)
    except psycopg.ProgrammingError as problem:
        raise ImproperlyConfigured(f"{name} cannot be read: {_without_secrets(problem)}.") from None
    _refuse_nonsense(given, name)
    if not given.get("dbname"):
        raise ImproperlyConfigured(f"{name} names no database: expected postgres://user:password@host:port/database.")
    own = {"NAME": "dbname", "USER": "user", "PASSWORD": "password", "HOST": "host", "PORT": "port"}
    entry: dict[str, Any] = {"ENGINE": ENGINE, **{theirs: str(given.pop(ours, "")) for theirs, ours in own.items()}}
    several = "," in entry["HOST"] or "," in str(given.get("hostaddr", ""))
    usual = {"connect_timeout": 2 if several else 5, **_KEPT_ALIVE, **({"target_session_attrs": "read-write"} if several else {})}
    prefix = str(given.pop("application_name", "sas")).replace(":", "-")
    entry["OPTIONS"] = {"application_name": f"{prefix}:{role()}:{purpose}"[:63], **usual, **given}
    return entry


def role() -> str:
    """The role of this process: SAS_ROLE, else the command that it runs."""
    program, *words = Path(sys.argv[0]).name, *sys.argv[1:3]
    started = {"manage.py": words[:1], "gunicorn": ["web"], "celery": ["celery"]}.get(program) or [program.removesuffix(".py")]
    if started == ["work"]:
        started = words[1:] or started
    return re.sub(r"[^\w.-]+", "-", os.environ.get("SAS_ROLE", "").strip() or started[0]) or "sas"


def pinned(entry: dict[str, Any], session: dict[str, str] = SESSION) -> dict[str, Any]:
    """The entry, whose sessions have these settings from their start. `options` in its URL win over all of them."""
    entry["OPTIONS"].setdefault("options", " ".join(f"-c {name}={value.replace(' ', chr(92) + ' ')}" for name, value in session.items()))
    return entry


def _refuse_nonsense(given: dict[str, Any], name: str) -> None:
    """libpq finds these only when it connects, and each process would retry for ever."""
    for parameter, choices in _CHOICES.items():
        if parameter in given and given[parameter] not in choices:
            raise ImproperlyConfigured(f"{name} cannot be read: {parameter} must be one of {', '.join(choices)}, not {given[parameter]!r}.")
    for parameter in _WHOLE:
        if parameter in given and not str(given[parameter]).isdigit():
            raise ImproperlyConfigured(f"{name} cannot be read: {parameter} must be a whole number, not {given[parameter]!r}.")
    hosts, ports = str(given.get("host", "")).split(","), str(given.get("port", "")).split(",")
    if any(port and not (port.isdigit() and 0 < int(port) < 65536) for port in ports):
        raise ImproperlyConfigured(f"{name} cannot be read: each port must be a number from 1 to 65535, not {given['port']!r}.")
    if len(ports) > 1 and len(ports) != len(hosts):
        raise ImproperlyConfigured(f"{name} cannot be read: it has {len(hosts)} hosts and {len(ports)} ports.")


def _without_secrets(problem: Exception) -> str:
    """libpq's words, without the URL that it quotes, in which a password may stand."""
    said = str(problem).strip()
    parameter = re.search(r'invalid URI query parameter: "([^"]*)"', said)
    if parameter:
        return f"a connection has no parameter {parameter[1]!r}"
    if "percent-encoded" in said:
        return "a part of it is not percent-encoded correctly (a percent sign is written %25)"
    return said.partition(': "')[0].splitlines()[0].rstrip(".: ")
