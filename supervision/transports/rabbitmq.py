"""AMQP: properties that cannot be decoded must not end the connection, and bodies stay bytes.

RabbitMQ passes on properties that the client library cannot read: a content type that is not UTF-8, a timestamp past the
year 9999. The library raises while it handles the frame, and Celery ends the worker. The message goes back into the queue
and ends the next worker.

And a connection whose broker is silent must not swallow messages for ever. A hung broker, or a balancer that has lost it, takes
bytes and answers nothing. Consumers find that by heartbeats, which senders do not look at: beat would send no sweep any more.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from struct import pack, unpack_from
from typing import Any

import amqp
from amqp.method_framing import frame_handler
from kombu.transport import pyamqp

from supervision.transports.envelope import UNREADABLE, TellsTheQueue

CONTENT_HEADER = 2  # the frame's type
PROPERTIES = "x-properties"  # the header that holds the bytes of the unreadable properties
PROVEN_SECONDS = 10.0  # how long a sender relies on the broker's last answer
BLOCKED_SECONDS = 300.0  # the same after the broker has said that it takes no messages for now (a memory or disk alarm)
ANSWER_SECONDS = 5.0  # how long it waits for an answer
NO_QUEUE = "supervision.no-queue"  # RabbitMQ drops a message to it, but refuses it in an alarm as any other


def tolerant(connection: Any, callback: Callable[..., Any], **options: Any) -> Callable[[Any], Any]:
    """The library's frame handler, but properties that it cannot read are replaced by ones with the header UNREADABLE."""
    handle = frame_handler(connection, callback, **options)

    def on_frame(frame: Any) -> Any:
        try:
            return handle(frame)
        except Exception:
            frame_type, channel, payload = frame
            problem = _problem(payload) if frame_type == CONTENT_HEADER else None
            if problem is None:
                raise  # the properties are not the cause
            # The handler still expects this header: the library parses a header before it marks it as received.
            return handle((frame_type, channel, _substitute(bytes(payload), problem)))

    return on_frame


def _problem(header: bytes) -> Exception | None:
    try:
        amqp.Message().inbound_header(header)
    except Exception as error:
        return error
    return None


def _substitute(header: bytes, error: Exception) -> bytes:
    class_id, size = unpack_from(">HxxQ", header)
    why = f"the properties cannot be read: {type(error).__name__}: {str(error)[:500]}"
    stand_in = amqp.Message(
        content_type="application/octet-stream",
        application_headers={UNREADABLE: why, PROPERTIES: header[12:]},
    )
    return pack(">HxxQ", class_id, size) + bytes(stand_in._serialize_properties())


class Message(pyamqp.Message):
    """A message that has its bytes as they were published, and its queue."""

    def __init__(self, msg: Any, channel: Any = None, **kwargs: Any) -> None:
        self.raw = msg.body.encode() if isinstance(msg.body, str) else bytes(msg.body)  # the library gives an empty body as a string
        self.queue = getattr(msg, "queue", None)
        super().__init__(msg, channel=channel, **kwargs)


class Channel(TellsTheQueue, pyamqp.Channel):
    """A channel that leaves bodies as they are."""

    Message = Message

    def __init__(self, connection: Any, channel_id: int | None = None, auto_decode: bool = False, on_open: Any = None) -> None:
        super().__init__(connection, channel_id, auto_decode=auto_decode, on_open=on_open)

    def basic_publish(self, *args: Any, **kwargs: Any) -> Any:
        """Publish over a connection that the broker has answered on lately. Raises RecoverableConnectionError where it is silent."""
        self.connection.prove()
        return super().basic_publish(*args, **kwargs)

    def refusal(self) -> str:
        """Why the broker takes no messages now; empty if it takes them. Sends a message for no queue, and closes this channel."""
        connection = self.connection
        super().basic_publish(amqp.Message(""), routing_key=NO_QUEUE)
        try:
            with connection.transport.having_timeout(ANSWER_SECONDS):
                self.close()
        except TimeoutError:
            connection.collect()
            return "an alarm for its memory or disk stands" if connection.blocked else f"no answer in {ANSWER_SECONDS:g} s"
        return ""


class Connection(pyamqp.Connection):
    """A connection that survives properties that cannot be read, and that finds out when the broker is silent.

    blocked: the broker has said that it takes no messages for now.
    """

    Channel = Channel

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._proven, self.blocked = time.monotonic(), False
        told = {"on_blocked": lambda reason: self._block(True), "on_unblocked": lambda: self._block(False)}
        super().__init__(*args, frame_handler=tolerant, **{**told, **kwargs})

    def _block(self, blocked: bool) -> None:
        self.blocked = blocked

    def prove(self) -> None:
        """Ask the broker for an answer, unless it has given one lately. Raises RecoverableConnectionError if none comes in time.

        A connection that consumes is left alone: another thread may read from it, and heartbeats watch it.
        """
        now, patience = time.monotonic(), BLOCKED_SECONDS if self.blocked else PROVEN_SECONDS
        if now - self._proven < patience or not self.connected or any(getattr(one, "callbacks", None) for one in self.channels.values()):
            return
        try:
            with self.transport.having_timeout(ANSWER_SECONDS):
                self.channel().close()
        except TimeoutError:
            self._wait_for_little()
            self.collect()
            raise amqp.RecoverableConnectionError(f"the broker is silent: no answer in {ANSWER_SECONDS:g} s") from None
        self._proven = time.monotonic()

    def close(self, *args: Any, **kwargs: Any) -> Any:
        """Take leave of the broker, and end the connection without its answer where it is silent."""
        self._wait_for_little()
        try:
            return super().close(*args, **kwargs)
        except TimeoutError:  # the library has ended the connection
            return None

    def _wait_for_little(self) -> None:
        # At a connection's end. TLS waits for the other side, too.
        if self.connected:
            self.transport.sock.settimeout(ANSWER_SECONDS)


class Transport(pyamqp.Transport):
    """The transport with our connection."""

    Connection = Connection


class SSLTransport(pyamqp.SSLTransport):
    """The same over TLS. The server's certificate and its name are checked, unless `broker_use_ssl` says otherwise.

    kombu would check no name, or the one of the first of several brokers.
    """

    Connection = Connection

    def establish_connection(self) -> Any:
        client: Any = self.client
        given = client.ssl
        options = given if isinstance(given, dict) else {}
        client.ssl = {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": client.hostname, **options}
        try:
            return super().establish_connection()
        finally:
            client.ssl = given
