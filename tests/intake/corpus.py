"""Poison messages: exact bytes from which no task can be made, and queue items that are no message at all."""

from __future__ import annotations

import gzip
import json
import pickle
from base64 import b64encode
from dataclasses import dataclass, field
from struct import pack
from typing import Any

NOTE = "tests.neighbour"
PERFORM = "supervision.perform"
QUEUE_OF_STOCK = "agent.stock"
BROKERS = ("amqp", "redis", "pgmq")


@dataclass(frozen=True)
class Case:
    """One message as it is published."""

    name: str
    body: bytes
    content_type: str | None = "application/json"
    content_encoding: str | None = "utf-8"
    headers: dict[str, Any] = field(default_factory=dict)
    brokers: tuple[str, ...] = BROKERS  # the brokers that can carry it


def task(name: Any = NOTE, **more: Any) -> dict[str, Any]:
    """The headers of a task message."""
    return {"lang": "py", "task": name, "id": "11111111-2222-3333-4444-555555555555", **more}


def body(args: Any = (1,), kwargs: Any = None, embedded: Any = None) -> bytes:
    """A body in Celery's message protocol 2."""
    return json.dumps([args, {} if kwargs is None else kwargs, {} if embedded is None else embedded]).encode()


def healthy(number: int) -> Case:
    """A healthy message."""
    return Case(f"healthy {number}", body([number]), headers=task(id=f"healthy-{number}"))


CANARY = "supervision.canary"
STEP = ["fulfil-order", 1, "do", 0]
LINK = {"task": PERFORM, "args": STEP, "options": {"queue": "agent.email"}}


def step(claims: Any, place: Any = STEP, **embedded: Any) -> bytes:
    """The body of a cohort at a place."""
    return body([claims, *place], embedded=embedded)


def leading(**options: str) -> dict[str, Any]:
    """A link of a chain with these options."""
    return {**LINK, "options": options}


# Each with the words in its reason that name the field.
OUT_OF_BOUNDS: list[tuple[str, Case]] = [
    ("hops: expected a whole number from 0 to 20", Case("hops below zero", body([QUEUE_OF_STOCK, 1, -(10**9)]), headers=task(CANARY))),
    ("hops", Case("hops without end", body([QUEUE_OF_STOCK, 1, 10**9]), headers=task(CANARY))),
    ("hops", Case("hops that are no number", body([QUEUE_OF_STOCK, 1, "1"]), headers=task(CANARY))),
    ("number", Case("a round of any size", body([QUEUE_OF_STOCK, 10**30, 0]), headers=task(CANARY))),
    ("queue", Case("a canary for another queue", body(["reply.0123", 1, 0]), headers=task(CANARY))),
    ("claims[0].run", Case("a run below one", step([[0, 1]]), headers=task(PERFORM))),
    ("claims[0].run", Case("a run that is true", step([[True, 1]]), headers=task(PERFORM))),
    ("claims[1].attempt", Case("an attempt beyond the column", step([[1, 1], [2, 2**31]]), headers=task(PERFORM))),
    ("claims: expected a list", Case("no claims", step([]), headers=task(PERFORM))),
    ("claims: expected a list", Case("too many claims", step([[1, 1]] * 10_001), headers=task(PERFORM))),
    ("position", Case("a position below zero", step([[1, 1]], ["fulfil-order", 1, "do", -1]), headers=task(PERFORM))),
    ("direction", Case("a direction of its own", step([[1, 1]], ["fulfil-order", 1, "back", 0]), headers=task(PERFORM))),
    ("workflow", Case("a name of any length", step([[1, 1]], ["x" * 1000, 1, "do", 0]), headers=task(PERFORM))),
    ("callbacks", Case("a task behind a step", step([[1, 1]], callbacks=[LINK]), headers=task(PERFORM))),
    ("errbacks", Case("a task behind a canary", body([QUEUE_OF_STOCK, 1, 0], embedded={"errbacks": [LINK]}), headers=task(CANARY))),
    ("chain: only a cohort", Case("a chain behind a hint", body([], embedded={"chain": [LINK]}), headers=task("supervision.deliver"))),
    ("chain[0]", Case("a chain of other tasks", step([[1, 1]], chain=[{**LINK, "task": NOTE}]), headers=task(PERFORM))),
    ("chain[0].queue", Case("a chain to a foreign queue", step([[1, 1]], chain=[leading(queue="reply.0123")]), headers=task(PERFORM))),
    ("unknown options: exchange", Case("a chain elsewhere", step([[1, 1]], chain=[leading(exchange="intake")]), headers=task(PERFORM))),
    ("at most 1000 links", Case("a chain without end", step([[1, 1]], chain=[LINK] * 1001), headers=task(PERFORM))),
    ("eta", Case("a hint with a time", body([]), headers=task("supervision.deliver", eta="2999-01-01T00:00:00"))),
]  # fmt: skip

MESSAGES = [
    *(case for _, case in OUT_OF_BOUNDS),
    # bodies
    Case("bad UTF-8", b'[["\xff\xfe\x80"], {}, {}]', headers=task()),
    Case("broken JSON", b'[[1], {}, {"callbacks"', headers=task()),
    Case("an empty body", b"", headers=task()),
    Case("a number", b"42", headers=task()),
    Case("null", b"null", headers=task()),
    Case("nested too deeply", b"[" * 100_000, headers=task()),
    Case("a number of ten thousand digits", b"[[" + b"9" * 10_000 + b"], {}, {}]", headers=task()),
    Case("a megabyte of noise", bytes(range(256)) * 4096, headers=task()),
    Case("a marker that cannot be decoded", b'[[{"__type__": "decimal", "__value__": "x"}], {}, {}]', headers=task()),
    # not a Celery message
    Case("plain text, no headers", b"hello", "text/plain"),
    Case("an order request", b'{"email": "ada@example.com"}'),
    Case("no type, no encoding, no headers", b"\x00\x01\x02", None, None),
    Case("a list without headers", b"[1, 2, 3]"),
    # the protocol
    Case("four parts", b"[[1], {}, {}, {}]", headers=task()),
    Case("an object without arguments", b'{"version": 3}', headers=task()),
    Case("the first protocol, unknown task", b'{"task": "tests.gone", "id": "a", "args": [1], "kwargs": {}}'),
    Case("the first protocol, no id", b'{"task": "tests.neighbour", "args": [1], "kwargs": {}}'),
    # headers
    Case("an unknown task", body(), headers=task("tests.gone")),
    Case("a task that is a number", body(), headers=task(5)),
    Case("a task that is a list", body(), headers=task(["x"])),
    Case("a task that is empty", body(), headers=task("")),
    Case("no id", body(), headers={"task": NOTE}),
    Case("an id that is a number", body(), headers={"task": NOTE, "id": 7}),
    Case("limits that are none", body(), headers=task(timelimit="soon")),
    Case("retries that are no number", body(), headers=task(retries="many")),
    Case("a time that is none", body(), headers=task(eta="the day after tomorrow")),
    Case("an expiry that is none", body(), headers=task(expires={"at": "noon"})),
    Case("a step with a time", body([[[1, 1]], "fulfil-order", 1, "do", 0]), headers=task(PERFORM, eta="2999-01-01T00:00:00")),
    Case("NUL in a header", body(), headers=task("tests.gone", note="a\x00b"), brokers=("amqp", "redis")),
    Case("a lone surrogate in a header", body(), headers=task("tests.gone", note="a\ud800b"), brokers=("redis",)),
    Case("bytes in a header", body(), headers=task("tests.gone", note=b"\xff\x00"), brokers=("amqp",)),
    Case("headers of all sorts", body(), headers=task("tests.gone", deep={"list": [1, None, True, "x"], "float": 1.5})),
    # content types and encodings
    Case("pickle", pickle.dumps(([1], {}, {})), "application/x-python-serialize", "binary", task()),
    Case("pickle that says it is JSON", pickle.dumps(([1], {}, {})), headers=task()),
    Case("YAML", b"- [1]\n- {}\n- {}\n", "application/x-yaml", headers=task()),
    Case("an unknown type", body(), "application/x-nonsense", headers=task()),
    Case("no content type", body(), None, None, task()),
    Case("an unknown encoding", body(), content_encoding="klingon", headers=task()),
    Case("another encoding than it says", body() + b" ", content_encoding="utf-32", headers=task()),
    Case(
        "UTF-16 with its mark, unknown task", body().decode().encode("utf-16-be"), content_encoding="utf-16-be", headers=task("tests.gone")
    ),
    Case("base64 as encoding", b64encode(body()), content_encoding="base64", headers=task()),
    Case("an unknown compression", body(), headers=task(compression="application/x-nonsense")),
    Case("gzip that is broken", gzip.compress(body())[:-9], headers=task(compression="application/x-gzip")),
    Case("gzip around nothing usable", gzip.compress(b"[]", mtime=0), headers=task(compression="application/x-gzip")),
    # arguments
    Case("arguments that are no list", body("x"), headers=task()),
    Case("keyword arguments that are no object", b"[[1], [], {}]", headers=task()),
    Case("too many arguments", body([1, 2, 3]), headers=task()),
    Case("too few arguments", body([]), headers=task()),
    Case("an unknown keyword", body([1], {"colour": "blue"}), headers=task()),
    Case("an embedded part that is a list", b"[[1], {}, [1]]", headers=task()),
    Case("an embedded part with more in it", body([1], {}, {"exec": "rm"}), headers=task()),
    Case("claims that are none", body(["everything", "fulfil-order", 1, "do", 0]), headers=task(PERFORM)),
    Case("claims of words", body([[["one", "two"]], "fulfil-order", 1, "do", 0]), headers=task(PERFORM)),
    Case("an unknown workflow", body([[[1, 1]], "no-such-thing", 1, "do", 0]), headers=task(PERFORM)),
    Case("a step that is not there", body([[[1, 1]], "fulfil-order", 1, "do", 99]), headers=task(PERFORM)),
    Case("a chain that is none", body([[[1, 1]], "fulfil-order", 1, "do", 0], {}, {"chain": [7]}), headers=task(PERFORM)),
]


def envelope(**changes: Any) -> dict[str, Any]:
    """kombu's envelope around a message, as Redis and pgmq carry it."""
    properties = {
        "body_encoding": "base64",
        "delivery_tag": "a-tag",
        "delivery_info": {"exchange": "", "routing_key": "agent.stock"},
        "priority": 0,
    }
    whole: dict[str, Any] = {
        "body": b64encode(body()).decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": task(),
        "properties": properties,
    }
    return {**whole, **changes}


def without(name: str) -> dict[str, Any]:
    """An envelope without this property."""
    whole = envelope()
    del whole["properties"][name]
    return whole


# Items in a queue that are no envelope. The dead letter must hold exactly their bytes.
ITEMS: list[Any] = [
    "a string",
    5,
    None,
    [],
    {},
    {"body": "x"},
    envelope(properties="none"),
    without("delivery_tag"),
    without("delivery_info"),
    envelope(properties={**envelope()["properties"], "delivery_tag": ["unhashable"]}),
    envelope(properties={**envelope()["properties"], "delivery_info": {"exchange": 5}}),
    envelope(properties={**envelope()["properties"], "body_encoding": "rot13"}),
    envelope(body="this is not base64!"),
    envelope(body={"an": "object"}),
    envelope(headers=["a", "list"]),
    envelope(**{"content-type": 5}),
]
REDIS_ITEMS = [
    *(json.dumps(item).encode() for item in ITEMS),
    b"\xff\xfe\x00 not UTF-8",
    b"not JSON",
    b"",
    b"[" * 100_000,
    json.dumps(envelope()).encode()[:-5],
    json.dumps(envelope(headers={"__type__": "uuid", "__value__": "none"})).encode(),
]

# AMQP properties that RabbitMQ accepts and a client library cannot read: the flags, then the properties.
AMQP_PROPERTIES = [
    pack(">HB", 0x8000, 2) + b"\xff\xfe",  # a content type that is not UTF-8
    pack(">HB", 0x0080, 3) + b"a\xffb",  # a message id that is not UTF-8
    pack(">HIB", 0x2000, 11, 1) + b"t" + b"T" + pack(">Q", 2**63),  # a header with a timestamp beyond the range of datetime
]
