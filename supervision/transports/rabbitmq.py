"""AMQP: properties that cannot be decoded must not end the connection, and bodies stay bytes.

RabbitMQ passes on properties that the client library cannot read: a content type that is not UTF-8, a timestamp past the
year 9999. The library raises while it handles the frame, and Celery ends the worker. The message goes back into the queue
and ends the next worker.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from struct import pack, unpack_from
from typing import Any

import amqp
from amqp.method_framing import frame_handler
from kombu.transport import pyamqp

from supervision.transports.envelope import UNREADABLE, TellsTheQueue

CONTENT_HEADER = 2  # the frame's type
PROPERTIES = "x-properties"  # the header that holds the bytes of the unreadable properties


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


class Connection(pyamqp.Connection):
    """A connection that survives properties that cannot be read."""

    Channel = Channel

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, frame_handler=tolerant, **kwargs)


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
