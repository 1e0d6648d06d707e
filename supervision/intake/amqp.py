"""Intake from external producers over AMQP: messages are committed first and then acknowledged, in batches.

The application registers one reader. It is called inside a transaction, with many messages at once. For each it returns
why the message cannot be taken, or None; a refused message becomes a dead letter in the same transaction. So a message is
an accepted submission or a dead letter before the broker forgets it. A message that is read twice, because the process
ended between commit and acknowledgement, is recognised by its message id.

While the database is down, the consumer acknowledges nothing and requeues nothing, because requeueing counts as a delivery.
A message that is redelivered is read alone, after a commit that counts the reading and names the process. The count is
removed when the reading ends, with any outcome. If three processes died while they read a message, it becomes a dead letter
without another reading. Other messages are not affected, and neither is a message that was only redelivered often.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import InterfaceError, InternalError, OperationalError, ProgrammingError, connection, transaction

from supervision.deadletters import dead_letters, lone_readings
from supervision.deadletters.validation import Unusable, deliveries, digest_of, letter_of
from supervision.models import DeadLetter
from supervision.postgres.json_safe import restored
from supervision.runtime import failpoints
from supervision.transports.envelope import UNREADABLE

log = logging.getLogger(__name__)

NAME = "submissions.intake"
DEAD = f"{NAME}.dead"  # where the broker puts messages that it gives up; the intake stores them as dead letters
MOST_READINGS = 3  # readings of one message alone that began and did not end
NOT_ITS_FAULT = (OperationalError, InterfaceError, ProgrammingError, InternalError, failpoints.Injected)


@dataclass(frozen=True, kw_only=True)
class Incoming:
    """One message as its producer published it. user_id: the producer's name at the broker, which the broker checked.

    kind: the message's property `type`; empty or missing for an order, `signal` for a signal to one.
    """

    body: bytes
    message_id: str | None
    user_id: str | None
    content_type: str | None
    content_encoding: str | None
    kind: str | None = None


Reader = Callable[[Sequence[Incoming]], list[str | None]]
_reader: Reader | None = None


def reader(function: Reader) -> Reader:
    """Register the function that takes messages, or returns for each why it cannot be taken."""
    global _reader
    _reader = function
    return function


def has_reader() -> bool:
    """Whether the application has registered a reader."""
    return _reader is not None


def take(messages: Sequence[Any], done: Callable[[Any], None]) -> None:
    """Commit these messages, as submissions or dead letters; `done` is called with each one after its commit.

    Raises errors that are not the messages' fault. The caller has to take the messages that were not `done` again.
    """
    new: list[Any] = []
    again: list[Any] = []
    for message in messages:
        (again if deliveries(message) > 1 else new).append(message)
    if new:
        _commit(new, done)
    for message in again:
        _take_again(message)
        done(message)


def _take_again(message: Any) -> None:
    with lone_readings.alone(digest_of(message)) as reading:
        if reading.unfinished >= MOST_READINGS:
            _keep([(message, reading.reason)], reading.unfinished + 1)
        else:
            _commit([message], lambda _: None)


def _commit(messages: Sequence[Any], done: Callable[[Any], None]) -> None:
    try:
        with transaction.atomic():
            _keep(_read(messages))
            failpoints.hit("intake.before_commit", [str(message.properties.get("message_id")) for message in messages])
    except NOT_ITS_FAULT:
        raise
    except Exception as error:
        if len(messages) > 1:
            log.warning("a batch of the intake was refused (%s); taking its messages one by one", error)
            for message in messages:
                _commit([message], done)
            return
        log.exception("a message of the intake could not be taken")
        _keep([(messages[0], error)])
    failpoints.hit("intake.after_commit")
    for message in messages:
        done(message)


def _read(messages: Sequence[Any]) -> list[tuple[Any, str | Exception]]:
    """Pass these messages to the reader; returns those that were refused, with the reasons."""
    refused: list[tuple[Any, str | Exception]] = []
    readable = []
    for message in messages:
        if (problem := _problem(message)) is None:
            readable.append(message)
        else:
            refused.append((message, problem))
    answers = _reader([_incoming(message) for message in readable]) if readable and _reader is not None else []
    refused += [(message, why) for message, why in zip(readable, answers, strict=True) if why is not None]
    return refused


def _problem(message: Any) -> str | Exception | None:
    if message.queue == DEAD:
        return "the broker has given it up: delivered too often, expired or rejected"
    if UNREADABLE in message.headers:
        return Unusable(str(message.headers[UNREADABLE]))
    if message.headers.get("compression"):
        return "compressed messages are not accepted"
    return None


def _keep(refused: Sequence[tuple[Any, str | Exception]], count: int = 0) -> None:
    letters = [letter_of(message, why, source=dead_letters.INTAKE, count=count) for message, why in refused]
    for letter in letters:
        log.warning("a message of the intake is set aside: %s", letter.headline)
    if letters and connection.in_atomic_block:
        dead_letters.keep_all(letters)
    elif letters:
        dead_letters.keep_whatever(letters)


def _incoming(message: Any) -> Incoming:
    properties = message.properties
    return Incoming(
        body=message.raw,
        message_id=properties.get("message_id"),
        user_id=properties.get("user_id"),
        content_type=message.content_type,
        content_encoding=message.content_encoding,
        kind=properties.get("type"),
    )


def read_again(letter: DeadLetter) -> str | None:
    """Read a dead letter of the intake once more, in the caller's transaction; returns why it is still refused, or None."""
    delivery: Mapping[str, Any] = restored(letter.delivery)
    properties = delivery.get("properties") or {}
    if _reader is None or not properties:
        return "no reader is registered, or the message has no properties"
    incoming = Incoming(
        body=bytes(letter.body),
        message_id=properties.get("message_id"),
        user_id=properties.get("user_id"),
        content_type=letter.content_type or None,
        content_encoding=delivery.get("content_encoding"),
        kind=properties.get("type"),
    )
    return _reader([incoming])[0]
