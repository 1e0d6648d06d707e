"""A cache of remote services' answers: fetched on demand and refreshed before they expire, so that callers need not wait.

    @cached("delivery-times", service="shipping", refresh_after=timedelta(hours=1), max_age=timedelta(days=1))
    def delivery_times(country):
        return carrier.rates(country)  # called outside any transaction; returns JSON, raises when there is no answer

    delivery_times.get("IT").value

One row per key, shared by all processes. Until `max_age` a value is served at once, even if the service is out; from
`refresh_after` on, the supervisor's role fetches the next one (`refresh_due`, on a thread of its own), except while the
service's breaker is open. The process that fetches leases the row, so one process at a time asks for a key. `version` rises
with every lease, which fences a late answer, and with every new value. Values that are no longer used are forgotten instead
of refreshed. A fetch never counts for or against the service's breaker; only orders do.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from supervision.governance import resources
from supervision.postgres import db
from supervision.runtime.periodic import PeriodicLoop

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
POLL_SECONDS = 0.05
TIDY_SECONDS = 60.0
USED_NOTED = timedelta(minutes=10)  # the precision of `used_at`

Fetch = Callable[[str], Any]

_READ = """
SELECT value, fetched_at, version, expires_at > now(), refresh_at <= now(), last_error, used_at < now() - %(noted)s::interval
  FROM supervision_cachedresult WHERE cache = %(cache)s AND key = %(key)s
"""
_USED = "UPDATE supervision_cachedresult SET used_at = now() WHERE cache = %(cache)s AND key = %(key)s"
# Until refresh_at no process may take the lease: another process is fetching, or the value is not due.
_LEASE = """
INSERT INTO supervision_cachedresult AS c (cache, key, refresh_at) VALUES (%(cache)s, %(key)s, now() + %(lease)s::interval)
ON CONFLICT (cache, key) DO UPDATE SET refresh_at = excluded.refresh_at, version = c.version + 1, last_error = '', used_at = now()
 WHERE coalesce(c.refresh_at <= now(), true) OR %(force)s
RETURNING version
"""
_LEASE_DUE = """
WITH due AS MATERIALIZED (
    SELECT id FROM supervision_cachedresult
     WHERE cache = %(cache)s AND refresh_at <= now()
     ORDER BY refresh_at LIMIT 1 FOR UPDATE SKIP LOCKED)
UPDATE supervision_cachedresult c SET refresh_at = now() + %(lease)s::interval, version = c.version + 1, last_error = ''
  FROM due WHERE c.id = due.id
RETURNING c.key, c.version
"""
# Due a little sooner than asked for, by a random amount, so that values fetched together are not due together.
_KEEP = """
UPDATE supervision_cachedresult
   SET value = %(value)s::jsonb, fetched_at = now(), refresh_at = now() + %(refresh)s::interval * (0.9 + random() * 0.1),
       expires_at = now() + %(age)s::interval, version = version + 1
 WHERE cache = %(cache)s AND key = %(key)s AND version = %(version)s
RETURNING fetched_at, version
"""
_FAILED = """
UPDATE supervision_cachedresult SET last_error = %(error)s, refresh_at = now() + %(pause)s::interval
 WHERE cache = %(cache)s AND key = %(key)s AND version = %(version)s
"""
_FORGET = """
UPDATE supervision_cachedresult c
   SET value = NULL, fetched_at = NULL, refresh_at = NULL, expires_at = NULL, version = version + 1, last_error = ''
  FROM unnest(%(caches)s::text[], %(keys)s::text[]) v(cache, key)
 WHERE c.cache = v.cache AND c.key = v.key
RETURNING 1
"""
_FORGET_UNUSED = "DELETE FROM supervision_cachedresult WHERE cache = %(cache)s AND used_at < now() - %(forget)s::interval"


class NotAvailable(Exception):
    """There is no value that may be served, and none can be fetched now."""


@dataclass(frozen=True)
class Cached:
    """A value with its age. version: changes with the value, for callers that keep results computed from it."""

    value: Any
    fetched_at: datetime
    version: int
    due: bool = False


@dataclass(frozen=True)
class _Row:
    value: Any
    fetched_at: datetime | None
    version: int
    valid: bool | None
    due: bool | None
    error: str
    use_is_old_news: bool

    def cached(self) -> Cached | None:
        if not self.valid or self.fetched_at is None:
            return None
        return Cached(self.value, self.fetched_at, self.version, bool(self.due))


class ResourceCache:
    """The cached answers of one question to one service.

    service: its breaker stops fetches; None for services without one. refresh_after: the age from which a value is refreshed.
    max_age: the age until which it is served. fetch_within: the time that `fetch` allows itself; after twice that another
    process may try. retry_after: the pause after a failure. forget_after: how long an unused value is kept up to date.
    """

    def __init__(
        self,
        name: str,
        fetch: Fetch,
        *,
        service: str | None,
        refresh_after: timedelta,
        max_age: timedelta,
        fetch_within: timedelta = timedelta(seconds=10),
        retry_after: timedelta = timedelta(seconds=10),
        forget_after: timedelta = timedelta(days=7),
    ) -> None:
        if not timedelta(0) < refresh_after < max_age:
            raise ValueError(f"cache {name!r}: refresh_after must be above 0 and below max_age")
        self.name, self.service, self._fetch = name, service, fetch
        self._refresh_after, self._max_age = refresh_after, max_age
        self._lease, self._pause, self._forget_after = 2 * fetch_within, retry_after, forget_after
        self._tidied = float("-inf")

    # ----------------------------------------------------------------------------------------------- for callers

    def peek(self, key: str) -> Cached | None:
        """The value if there is one that may be served; never asks the service."""
        row = self._read(key)
        return None if row is None else row.cached()

    def get(self, key: str, *, patience: float = 5.0) -> Cached:
        """The value; where there is none, it is fetched now, by one caller for all. Raises NotAvailable.

        Waits up to `patience` seconds for another caller's fetch. In a transaction nothing is fetched.
        """
        until = time.monotonic() + patience
        while True:
            row = self._read(key)
            if row is not None and (found := row.cached()) is not None:
                return found
            if row is not None and row.error and not row.due:
                raise NotAvailable(f"{self.name}, {key}: {row.error}")
            if connection.in_atomic_block or not self._service_answers():
                raise NotAvailable(f"{self.name}, {key}: not known, and the service is not asked now")
            if (version := self._take(key)) is not None:
                return self._fill(key, version)
            if time.monotonic() > until:
                raise NotAvailable(f"{self.name}, {key}: another caller is still fetching it")
            time.sleep(POLL_SECONDS)

    def refresh(self, key: str) -> Cached:
        """Ask the service now, even if there is a value. Raises NotAvailable; the old value then stays."""
        version = self._take(key, force=True)
        assert version is not None  # noqa: S101 - forced
        return self._fill(key, version)

    def forget(self, key: str) -> None:
        """Drop the value; the next caller fetches it again. An answer that is on its way is not kept."""
        forget([(self.name, key)])

    # ------------------------------------------------------------------------------------------- for the timer

    def refresh_due(self) -> int:
        """Fetch due values, one after the other; returns how many were refreshed."""
        if time.monotonic() - self._tidied > TIDY_SECONDS:
            self._tidied = time.monotonic()
            db.run(_FORGET_UNUSED, {"cache": self.name, "forget": self._forget_after})
        refreshed = 0
        while self._service_answers():
            rows = db.run(_LEASE_DUE, {"cache": self.name, "lease": self._lease})
            if not rows:
                break
            try:
                self._fill(*rows[0])
            except NotAvailable as problem:
                log.info("could not refresh %s", problem)
            else:
                refreshed += 1
        return refreshed

    # -------------------------------------------------------------------------------------------------- one row

    def _place(self, key: str) -> dict[str, Any]:
        return {"cache": self.name, "key": key}

    def _read(self, key: str) -> _Row | None:
        rows = db.run(_READ, {**self._place(key), "noted": USED_NOTED}, patience=2.0)
        if not rows:
            return None
        row = _Row(*rows[0])
        if row.use_is_old_news:
            db.run(_USED, self._place(key), patience=2.0)
        return row

    def _take(self, key: str, *, force: bool = False) -> int | None:
        rows = db.run(_LEASE, {**self._place(key), "lease": self._lease, "force": force}, patience=2.0)
        return int(rows[0][0]) if rows else None

    def _fill(self, key: str, version: int) -> Cached:
        mine = {**self._place(key), "version": version}
        try:
            value = self._fetch(key)
            keep = {**mine, "value": json.dumps(value), "refresh": self._refresh_after, "age": self._max_age}
            kept = db.run(_KEEP, keep, patience=2.0)
        except Exception as problem:
            words = f"{type(problem).__name__}: {problem}".replace("\0", "\ufffd").encode("utf-8", "replace").decode()[:500]
            db.run(_FAILED, {**mine, "error": words, "pause": self._pause}, patience=2.0)
            raise NotAvailable(f"{self.name}, {key}: {words}") from problem
        if not kept:
            raise NotAvailable(f"{self.name}, {key}: the answer came too late")
        return Cached(value, *kept[0])

    def _service_answers(self) -> bool:
        members = () if self.service is None else resources.look().serving.get(self.service, ())
        return not members or any(known.closed and not known.paused for known in members)


_caches: dict[str, ResourceCache] = {}


def cached(name: str, **limits: Any) -> Callable[[Fetch], ResourceCache]:
    """Turn a function of one text into a cache of its answers under this name; see `ResourceCache` for the limits."""

    def make(fetch: Fetch) -> ResourceCache:
        _caches[name] = ResourceCache(name, fetch, **limits)
        return _caches[name]

    return make


def forget(places: Sequence[tuple[str, str]]) -> int:
    """Forget these answers, given as (cache, key). This process need not know the caches. Returns how many there were."""
    return len(db.run(_FORGET, {"caches": [cache for cache, _ in places], "keys": [key for _, key in places]}))


def refresh_due() -> int:
    """Refresh the due values of every cache that this process knows."""
    return sum(cache.refresh_due() for cache in list(_caches.values()))


_loop: PeriodicLoop | None = None


def start() -> None:
    """Start the refresh thread of this process. Several processes share the work."""
    global _loop
    if _loop is None:
        _loop = PeriodicLoop("cached results", LOOK_SECONDS, refresh_due).start()


def stop(seconds: float) -> None:
    """Stop the refresh thread. If that cuts off a fetch, another process fetches the value again."""
    global _loop
    if _loop is not None:
        _loop.stop(seconds)
        _loop = None
