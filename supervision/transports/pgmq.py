"""pgmq: messages are read as text, so that one that cannot be decoded does not fail the others of its batch."""

from __future__ import annotations

from typing import Any

from kombu.transport import pgmq
from pgmq.messages import Message as Row

from supervision.transports.envelope import Message, TellsTheQueue, opened

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

    def __init__(self, client: Any, **kwargs: Any) -> None:
        self._to_listen: set[str] = set()
        super().__init__(client, **kwargs)

    def _register_notify_queue(self, queue_name: str) -> None:
        self._to_listen.add(queue_name)

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:  # type: ignore[override]
        """Listen on the queues that were declared since, then deliver."""
        while self._to_listen:
            super()._register_notify_queue(self._to_listen.pop())
        super().drain_events(connection, timeout=timeout)
