"""Checks the envelopes of kombu's virtual transports, and wraps invalid ones so that they can be passed on."""

from __future__ import annotations

import uuid
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

from kombu.transport.virtual import Message as VirtualMessage
from kombu.utils.json import loads

UNREADABLE = "x-unreadable"  # the header that says why
Envelope = dict[str, Any]


def opened(item: bytes, queue: str) -> tuple[Envelope, bool]:
    """The envelope in these bytes, or a new one around them if they are no valid envelope; and whether they are one."""
    try:
        envelope = loads(item.decode("utf-8"))
    except Exception as error:  # raised by the JSON parser, or by kombu's decoding of typed values
        return _wrapped(item, queue, f"the envelope cannot be read: {type(error).__name__}: {str(error)[:500]}"), False
    problem = flaw(envelope)
    return (_wrapped(item, queue, problem), False) if problem else (envelope, True)


def _wrapped(item: bytes, queue: str, why: str) -> Envelope:
    """An envelope around bytes that are no valid envelope."""
    return {
        "body": b64encode(item).decode(),
        "content-type": "application/octet-stream",
        "content-encoding": "binary",
        "headers": {UNREADABLE: why},
        "properties": {
            "body_encoding": "base64",
            "delivery_tag": str(uuid.uuid4()),
            "delivery_info": {"exchange": "", "routing_key": queue},
            "priority": 0,
        },
    }


def flaw(envelope: Any) -> str | None:
    """Why kombu could not make a message of this, or None."""
    if not isinstance(envelope, dict):
        return "the envelope is not an object"
    properties = envelope.get("properties")
    if not isinstance(properties, dict):
        return "the envelope has no properties"
    if not isinstance(properties.get("delivery_tag"), str):
        return "the envelope has no delivery tag"
    info = properties.get("delivery_info")
    if not isinstance(info, dict) or not all(isinstance(info.get(name), str) for name in ("exchange", "routing_key")):
        return "the envelope does not say where it was sent"
    if not isinstance(envelope.get("headers") or {}, dict):
        return "the envelope's headers are not an object"
    for name in ("content-type", "content-encoding"):
        if not isinstance(envelope.get(name) or "", str):
            return f"the envelope's {name} is not a string"
    try:
        body_of(envelope)
    except ValueError as error:
        return f"the envelope's body cannot be decoded: {error}"
    return None


def body_of(envelope: Envelope) -> bytes:
    """The exact bytes that were published. Raises ValueError where the envelope does not hold them."""
    body = envelope.get("body")
    if body is None:
        return b""
    if not isinstance(body, str):
        raise ValueError("it is not a string")  # noqa: TRY004 - one kind for all flaws
    encoding = envelope["properties"].get("body_encoding")
    if encoding == "base64":
        return b64decode(body, validate=True)
    if encoding in (None, "utf-8"):
        return body.encode("utf-8")
    raise ValueError(f"there is no encoding {encoding!r:.100}")


class Message(VirtualMessage):
    """A message that has its bytes as they were published."""

    @property
    def raw(self) -> bytes:
        """The body, before anything was decompressed or decoded."""
        return body_of(self._raw)


class TellsTheQueue:
    """Channels that set on each message the queue it came from; its routing key is only what the sender wrote."""

    def basic_consume(self, queue: str, *args: Any, callback: Callable[[Any], Any], **kwargs: Any) -> Any:
        """Consume from `queue`."""

        def told(message: Any) -> Any:
            message.queue = queue
            return callback(message)

        return super().basic_consume(queue, *args, callback=told, **kwargs)  # type: ignore[misc]
