"""AMQP: properties that cannot be decoded must not end the connection, and bodies stay bytes.

RabbitMQ passes on what the client library cannot read: a content type that is no UTF-8, a timestamp past the year 9999.
The library raises in the middle of the frame; Celery takes that for the end of the world, the message goes back into
the queue and ends the next worker.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import pack, unpack_from
from typing import Any

import amqp
from amqp.method_framing import frame_handler
from kombu.transport import pyamqp

from supervision.transports.envelope import UNREADABLE, TellsTheQueue

CONTENT_HEADER = 2  # the frame's type
PROPERTIES = "x-properties"  # what could not be read, in a header of its own


def tolerant(connection: Any, callback: Callable[..., Any], **options: Any) -> Callable[[Any], Any]:
    """The library's frame handler, but properties that it cannot read are replaced by ones that say so."""
    handle = frame_handler(connection, callback, **options)

    def on_frame(frame: Any) -> Any:
        try:
            return handle(frame)
        except Exception:
            frame_type, channel, payload = frame
            problem = _problem(payload) if frame_type == CONTENT_HEADER else None
            if problem is None:
                raise  # of somebody else's making
            # The handler still waits for this header: the library reads it before it notes that it has come.
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
    """A message that knows its bytes as they were published, and its queue."""

    def __init__(self, msg: Any, channel: Any = None, **kwargs: Any) -> None:
        self.raw = msg.body.encode() if isinstance(msg.body, str) else bytes(msg.body)  # an empty one is a string
        self.queue = getattr(msg, "queue", None)
        super().__init__(msg, channel=channel, **kwargs)


class Channel(TellsTheQueue, pyamqp.Channel):
    """A channel that leaves bodies as they are."""

    Message = Message

    def __init__(self, connection: Any, channel_id: int | None = None, auto_decode: bool = False, on_open: Any = None) -> None:
        super().__init__(connection, channel_id, auto_decode=auto_decode, on_open=on_open)


class Connection(pyamqp.Connection):
    """A connection that outlives properties nobody can read."""

    Channel = Channel

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, frame_handler=tolerant, **kwargs)


class Transport(pyamqp.Transport):
    """The transport with our connection."""

    Connection = Connection


class SSLTransport(pyamqp.SSLTransport):
    """The same over TLS."""

    Connection = Connection
