"""Poison messages in the workers' queues: the reasons why a message cannot become a task.

This module has the checks, and the contents of the dead letter. `consumer` applies them to every message that a worker gets.

A task checks its own arguments by `reads=` (a function that takes them and raises). Bad arguments are then found here too,
while the message's exact bytes are still available.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from celery.utils.time import maybe_iso8601
from django.db import InterfaceError, OperationalError

from supervision.deadletters import bounds, dead_letters, lone_readings
from supervision.deadletters.dead_letters import Letter
from supervision.transports.envelope import UNREADABLE

log = logging.getLogger(__name__)

OFTEN = 10  # after so many deliveries the message itself may be killing its workers; most workers end for other reasons
MOST_READINGS = 3  # from then on: readings whose process died before their end
ENCODINGS = frozenset({"utf-8", "utf8", "us-ascii", "ascii", "binary", "ascii-8bit"})
EMBEDDED = frozenset({"callbacks", "errbacks", "chain", "chord"})


class Unusable(Exception):
    """This message cannot become a task; the text says why."""

    plain = True


class OfAnotherRelease(Unusable):
    """Beat of another release sent this message: a task without arguments that this code does not know."""


def check(message: Any, tasks: Mapping[str, Any]) -> None:
    """Raises Unusable, or the decoder's own error, if this message cannot become a task."""
    if UNREADABLE in message.headers:
        raise Unusable(str(message.headers[UNREADABLE]))
    if (message.content_encoding or "utf-8").lower() not in ENCODINGS:
        # Decoders look at the content type only. They may have decoded the body otherwise than the sender meant.
        raise Unusable(f"there is no encoding {message.content_encoding:.100} here")
    if message.headers.get("task") is None:
        task, identity, (args, kwargs, embedded) = _first_protocol(message.payload)
    else:
        task, identity = message.headers["task"], message.headers.get("id")
        args, kwargs, embedded = _second_protocol(message.payload)
        _check_headers(message.headers)
    if not isinstance(task, str) or task not in tasks:
        empty = args in ([], ()) and kwargs == {}
        raise (OfAnotherRelease if empty and "periodic_task_name" in message.headers else Unusable)(f"there is no task {task!r:.200}")
    if not isinstance(identity, str):
        raise Unusable("the message has no id")
    if not isinstance(args, list | tuple):
        raise Unusable("the arguments are not a list")
    if not isinstance(kwargs, dict) or not all(isinstance(name, str) for name in kwargs):
        raise Unusable("the keyword arguments are not an object")
    if not isinstance(embedded, dict | None) or not EMBEDDED.issuperset(embedded or ()):
        raise Unusable("the message's third part is not Celery's")
    _check_arguments(tasks[task], args, kwargs, embedded or {}, message.headers)


@contextmanager
def watched(message: Any) -> Iterator[None]:
    """Read this message in the body. A message delivered more than OFTEN times is counted first.

    Raises Unusable if it has ended MOST_READINGS readers. While the database is away nothing is counted.
    """
    if deliveries(message) <= OFTEN:
        yield
        return
    with ExitStack() as stack:
        try:
            reading = stack.enter_context(lone_readings.alone(digest_of(message)))
        except (OperationalError, InterfaceError) as error:
            log.info("a message that came often is read uncounted: %s", str(error).strip().splitlines()[:1])
        else:
            if reading.unfinished >= MOST_READINGS:
                raise Unusable(reading.reason)
        yield


def digest_of(message: Any) -> str:
    """A digest that identifies this message, the same at every delivery."""
    properties = message.properties
    name = f"{properties.get('user_id')}\0{properties.get('message_id') or message.headers.get('id')}\0"
    return hashlib.sha256(name.encode("utf-8", "surrogatepass") + _bytes_of(message)).hexdigest()


def _bytes_of(message: Any) -> bytes:
    raw = getattr(message, "raw", None)
    if raw is None:
        raw = message.body.encode("utf-8", "surrogatepass") if isinstance(message.body, str) else bytes(message.body or b"")
    return bytes(raw)


def _second_protocol(payload: Any) -> tuple[Any, Any, Any]:
    if isinstance(payload, dict) and "args" in payload:
        return payload["args"], payload.get("kwargs", {}), None
    if not isinstance(payload, list | tuple) or len(payload) != 3:
        raise Unusable("the body is not [arguments, keyword arguments, embedded]: no version of the protocol that is known here")
    return payload[0], payload[1], payload[2]


def _first_protocol(payload: Any) -> tuple[Any, Any, tuple[Any, Any, Any]]:
    if not isinstance(payload, dict) or "task" not in payload:
        raise Unusable("this is no task message")
    return payload["task"], payload.get("id"), (payload.get("args", []), payload.get("kwargs", {}), None)


def _check_headers(headers: Mapping[str, Any]) -> None:
    limits = headers.get("timelimit")
    if limits is not None:
        if not isinstance(limits, list | tuple) or len(limits) != 2:
            raise Unusable("timelimit: expected two numbers")
        if not all(limit is None or (isinstance(limit, int | float) and limit >= 0) for limit in limits):
            raise Unusable("timelimit: expected two numbers")
    if not isinstance(headers.get("retries") or 0, int):
        raise Unusable("retries: expected a number")
    for name in ("eta", "expires"):
        try:
            if headers.get(name) is not None:
                maybe_iso8601(headers[name]).timestamp()
        except (AttributeError, ValueError, TypeError, OverflowError) as error:
            raise Unusable(f"{name}: expected a time ({error})") from None


def _check_arguments(task: Any, args: Any, kwargs: Any, embedded: Mapping[str, Any], headers: Mapping[str, Any]) -> None:
    try:
        task.__header__(*args, **kwargs)
    except TypeError as error:
        raise Unusable(f"{task.name}: {error}") from None
    reads = getattr(task, "reads", None)
    if reads is None:
        return
    if headers.get("eta") is not None:
        raise Unusable("eta: this task waits in the database, never in a worker")
    links = embedded.get("chain") or []
    if not isinstance(links, list) or not all(isinstance(link, dict) and isinstance(link.get("args"), list | tuple) for link in links):
        raise Unusable("the chain is not a list of tasks")
    try:
        bounds.embedded(task.name, embedded, links)
        reads(*args, **kwargs)
    except Exception as error:
        raise Unusable(f"{task.name}: {type(error).__name__}: {error}") from error


def deliveries(message: Any) -> int:
    """How often the broker has delivered this message, at least, by its own count."""
    info = message.delivery_info or {}
    read = info.get("pgmq_message")
    if isinstance(read, dict) and isinstance(read.get("read_ct"), int):
        return int(read["read_ct"])
    returned = message.headers.get("x-delivery-count")
    if isinstance(returned, int) and returned > 0:  # a producer can write this header, too
        return returned + 1
    return 2 if info.get("redelivered") else 1


NOT_KEPT = frozenset({"application_headers", "content_type", "content_encoding", "delivery_info", "body_encoding"})


def letter_of(message: Any, why: BaseException | str, *, source: str | None = None, count: int = 0) -> Letter:
    """The whole message as a dead letter. count: how often it was delivered, if the caller has counted more than the broker."""
    info = message.delivery_info or {}
    name = getattr(message, "queue", None) or info.get("routing_key") or "?"
    count = max(count, deliveries(message))
    return Letter(
        source=source or f"{dead_letters.QUEUE}{name}",
        body=_bytes_of(message),
        reason=dead_letters.because(why),
        content_type=message.content_type or "",
        headers=message.headers,
        delivery={
            "queue": name,
            "exchange": info.get("exchange"),
            "routing_key": info.get("routing_key"),
            "redelivered": bool(info.get("redelivered")),
            "content_encoding": message.content_encoding,
            "properties": {key: value for key, value in message.properties.items() if key not in NOT_KEPT},
        },
        deliveries=count,
        repeated=count > 1,
    )
