"""Django's engine for PostgreSQL. It closes connections to a server that takes no writes, and fails at once while no server answers.

The name of this module is Django's: it looks for `DatabaseWrapper` in the module `base` of an engine.
"""

from __future__ import annotations

import time
from typing import Any

import psycopg
from django.db.backends.postgresql import base
from django.db.utils import DatabaseErrorWrapper, OperationalError
from django.utils.functional import cached_property
from psycopg.errors import ReadOnlySqlTransaction
from psycopg_pool import ConnectionPool

from supervision.postgres.backend.outage import Outage, has_word

CHECK_AFTER_SECONDS = 5.0  # a connection that was unused for longer is asked whether it works
RECONNECT_SECONDS = 0.1  # the pool's own attempts; afterwards `Outage` tries
_outages: dict[str, Outage] = {}


class DatabaseWrapper(base.DatabaseWrapper):
    """One thread's connection."""

    _connection_pools: dict[str, Any]  # Django's, by alias; of the process

    @property
    def pool(self) -> Any:
        """The process's pool of this alias; None without the option `pool`. Its connections are checked when they are taken."""
        options = self.settings_dict["OPTIONS"].get("pool")
        if not options or self.alias in self._connection_pools:
            return super().pool  # type: ignore[misc]
        pool = ConnectionPool(
            kwargs={**self.get_connection_params(), "autocommit": True},
            open=False,
            configure=self._begin,
            check=check,
            reconnect_timeout=RECONNECT_SECONDS,
            reconnect_failed=lambda _pool: self.outage.begin(),
            **({} if options is True else options),
        )
        return self._connection_pools.setdefault(self.alias, pool)

    @property
    def outage(self) -> Outage:
        """What this process knows of an outage of this alias's server."""
        return _outages.get(self.alias) or _outages.setdefault(self.alias, Outage(self.get_connection_params, self._refuse_waiting))

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """A connection. Where there is a pool and the server is known to be away, this fails at once and waits for nothing.

        While the server is full, those that the pool has still work.
        """
        pooled = self.settings_dict["OPTIONS"].get("pool")
        if pooled and not (self.outage.is_full and self._pooled()):
            self.outage.refuse()
        try:
            return super().get_new_connection(conn_params)
        except psycopg.OperationalError:
            if pooled:
                self.outage.begin()
            raise

    def _pooled(self) -> int:
        """How many connections the pool has, or is making."""
        pool = self._connection_pools.get(self.alias)
        return int(pool.get_stats()["pool_size"]) if pool is not None else 0

    def _refuse_waiting(self) -> None:
        """The server is full. Where the pool has no connection that could come back, let those that wait for one wait no longer.

        psycopg_pool has no public way. Where a release has other names, they wait until their time is over.
        """
        if (pool := self._connection_pools.get(self.alias)) is None or self._pooled():
            return
        lock, queue = getattr(pool, "_lock", None), getattr(pool, "_waiting", None)
        if lock is None or queue is None:
            return
        with lock:
            waiting = list(queue)
            queue.clear()
        for client in waiting:
            client.fail(self.outage.away)

    def _begin(self, connection: Any) -> None:
        connection.sas_used = time.monotonic()
        self._configure_connection(connection)  # type: ignore[attr-defined]

    def _close(self) -> None:
        if self.connection is not None:
            self.connection.sas_used = time.monotonic()
        super()._close()  # type: ignore[misc]

    @cached_property
    def wrap_database_errors(self) -> DatabaseErrorWrapper:
        """Django's errors for psycopg's."""
        return _ErrorWrapper(self)


class _ErrorWrapper(DatabaseErrorWrapper):
    """A server that takes no writes is as good as lost: the connection is closed, and the next one finds the primary."""

    wrapper: Any

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        if isinstance(exc_value, ReadOnlySqlTransaction):
            if not self.wrapper.in_atomic_block:
                self.wrapper.close()
            elif self.wrapper.connection is not None:
                self.wrapper.connection.close()  # the end of the transaction closes the rest
            raise OperationalError(*exc_value.args).with_traceback(traceback) from exc_value
        super().__exit__(exc_type, exc_value, traceback)


def check(connection: psycopg.Connection[Any]) -> None:
    """The pool's check when a connection is taken: raises where it does not work.

    It costs no round trip while the connection is in use: the server says goodbye on the socket.
    """
    unused = time.monotonic() - getattr(connection, "sas_used", 0.0)
    if unused > CHECK_AFTER_SECONDS or has_word(connection):
        ConnectionPool.check_connection(connection)
