"""Redis and Valkey: an item is popped before it is read, so every item, valid or not, has to become a message."""

from __future__ import annotations

from typing import Any

from kombu.transport import redis
from kombu.utils.json import dumps
from redis.exceptions import NoPermissionError, ResponseError

from supervision.transports.envelope import Message, TellsTheQueue, opened

PROBE = "supervision.probe"


class Channel(TellsTheQueue, redis.Channel):  # type: ignore[misc]
    """A channel that can read every item."""

    Message = Message

    def _create_client(self, asynchronous: bool = False) -> Any:
        client = super()._create_client(asynchronous=asynchronous)
        client.set_response_callback("BRPOP", self._readable)
        return client

    def _readable(self, response: Any, **_options: Any) -> Any:
        if not response:
            return None
        key, item = response
        envelope, sound = opened(item, key.decode(errors="replace").rsplit(self.sep, 1)[0])
        return key, item if sound else dumps(envelope).encode()

    def refusal(self) -> str:
        """Why the server takes no messages now; empty if it takes them. Writes a key that lives for a second."""
        try:
            with self.conn_or_acquire() as client:
                client.set(PROBE, "", px=1000)
        except NoPermissionError:
            return ""  # an account for the queues alone
        except ResponseError as error:
            return str(error)
        return ""

    def put_raw(self, queue: str, item: bytes) -> None:
        """Put exactly these bytes into a queue, with no envelope around them."""
        with self.conn_or_acquire() as client:
            client.lpush(queue, item)


class Transport(redis.Transport):
    """The transport with our channel."""

    Channel = Channel
