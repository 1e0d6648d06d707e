"""pgmq: messages are read as text, so that one that cannot be decoded does not fail the others of its batch."""

from __future__ import annotations

from typing import Any

import psycopg
from kombu.transport import pgmq
from pgmq import PGMQueue
from pgmq.messages import Message as Row
from psycopg_pool import ConnectionPool

from supervision.postgres.backend.outage import has_word
from supervision.transports.envelope import Message, TellsTheQueue, opened

# How many seconds until the next look into the queues. A notification of a new message ends the wait. Nothing tells that messages
# were acknowledged: a worker that has taken as many as it may looks soon, because its next one may wait there already.
IDLE_SECONDS = 1.0
FULL_SECONDS = 0.05
_READ = """
SELECT msg_id, read_ct, enqueued_at, last_read_at, vt, message::text
  FROM pgmq.read(queue_name => %s::text, vt => %s::integer, qty => %s::integer)
"""


class Channel(TellsTheQueue, pgmq.Channel):  # type: ignore[misc]
    """A channel that can read every row."""

    Message = Message

    @property
    def _pool(self) -> Any:
        return self.pgmq.pool

    def _receive_messages(self, queue: str, qty: int = 1, *, poll: bool = False, timeout: Any = None, no_ack: bool = False) -> list[Any]:
        if no_ack or queue in self._noack_queues or self.fifo_mode or (poll and self.wait_time_seconds):
            return list(super()._receive_messages(queue, qty, poll=poll, timeout=timeout, no_ack=no_ack))
        with self._pool.connection() as connection:
            rows = connection.execute(_READ, (self._queue_name(queue), self.visibility_timeout, qty)).fetchall()
        return [Row(*facts, message=opened(text.encode(), queue)[0], headers=None) for *facts, text in rows]  # type: ignore[misc]

    def put_raw(self, queue: str, item: bytes) -> None:
        """Put exactly this JSON into a queue, with no envelope around it."""
        with self._pool.connection() as connection:
            connection.execute("SELECT pgmq.send(%s::text, %s::jsonb)", (self._queue_name(queue), item.decode()))


class Transport(pgmq.Transport):
    """The transport with our channel. It listens for new messages only where they are read.

    kombu listens on every queue that a connection declares, also in a process that only sends. Such a process never reads what the
    server tells it. After some 300 messages the server waits for it for ever, and keeps every later notification.
    """

    Channel = Channel
    # A server that takes no writes any more is as good as lost: the next connection finds the primary.
    connection_errors: tuple[Any, ...] = (*pgmq.Transport.connection_errors, psycopg.errors.ReadOnlySqlTransaction)

    def __init__(self, client: Any, **kwargs: Any) -> None:
        self._to_listen: set[str] = set()
        super().__init__(client, **kwargs)

    def _register_notify_queue(self, queue_name: str) -> None:
        self._to_listen.add(queue_name)

    @property
    def _options(self) -> dict[str, Any]:
        client: Any = self.client
        return dict(client.transport_options)

    def _create_pgmq_client(self) -> PGMQueue:
        """The client, on a pool with every parameter of the connection string: PGMQ itself keeps five of them."""
        options = self._options
        if "conn_string" not in options:  # another program's connection, which has kombu's own options
            return super()._create_pgmq_client()
        patience = float(options.get("pool_timeout", 30))
        seen_again = int(options.get("visibility_timeout") or pgmq.Channel.default_visibility_timeout)
        pool = ConnectionPool(
            options["conn_string"],
            kwargs={"autocommit": False, "prepare_threshold": None},
            check=_check,
            min_size=0,  # with 1 the first call would come before that one is there, and open a second one
            max_size=int(options.get("pool_size", pgmq.Channel.default_pool_size)),
            timeout=patience,
            reconnect_timeout=patience,
            open=True,
        )
        return PGMQueue(conn_string=options["conn_string"], vt=seen_again, init_extension=False, pool=pool)

    def _get_notify_waiter(self) -> Any:
        if self._notify_waiter is None:
            self._notify_waiter = pgmq._NotifyWaiter(self._options["conn_string"])
        return self._notify_waiter

    def close_connection(self, connection: Any) -> None:
        """Close it and its pool, which PGMQ leaves open because it is not its own."""
        client = self._pgmq_client
        pool = client.pool if client is not None else None
        try:
            super().close_connection(connection)
        finally:
            if pool is not None:
                pool.close()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:  # type: ignore[override]
        """Listen on the queues that were declared since, then deliver."""
        while self._to_listen:
            super()._register_notify_queue(self._to_listen.pop())
        full = any(not channel.qos.can_consume() for channel in self.channels)
        self.polling_interval = FULL_SECONDS if full else IDLE_SECONDS
        super().drain_events(connection, timeout=timeout)


def _check(connection: psycopg.Connection[Any]) -> None:
    """The pool's check when a connection is taken."""
    if has_word(connection):
        ConnectionPool.check_connection(connection)
