"""Each user of RabbitMQ against each queue and exchange: what it needs works, everything else is refused by the broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

import amqp
import pytest
from amqp.exceptions import AccessRefused, AMQPError, NotFound, PreconditionFailed

from examples.follow_orders import connect, follow
from tests.support.shop import order, until

pytestmark = pytest.mark.amqp

AGENTS = [f"agent.{name}" for name in ("child", "email", "payment", "shipping", "stock")]
HINTS = ["submissions", "scheduler", "supervisor"]
INTAKE = ["submissions.intake", "submissions.intake.dead"]
MINE, ANOTHERS = "the account's reply queue", "another reply queue"
QUEUES = [*HINTS, *AGENTS, *INTAKE, MINE, ANOTHERS]
EXCHANGES = ["intake", "supervision.replies", "celery.pidbox", "reply.celery.pidbox", "celeryev", "amq.topic", "amq.fanout"]
DEFAULT = "the default exchange"

# What each user needs. Everything that is not here is refused. `task X`: publish to supervision.tasks under the key X.
ASKED = {(verb, name) for verb in ("declare", "delete") for name in ("celery.pidbox", "reply.celery.pidbox", "celeryev")}
CONTROLLED = ASKED | {("publish", "reply.celery.pidbox"), ("publish", "celeryev")}
MAKES = {(verb, queue) for verb in ("declare", "delete", "bind") for queue in (MINE, ANOTHERS)}
HANDS_ON = {("task", key) for key in (*HINTS, *AGENTS)}


def reads(*queues: str) -> set[tuple[str, str]]:
    return {("consume", queue) for queue in queues}


NEEDED: dict[str, set[tuple[str, str]]] = {
    "web": {("task", key) for key in HINTS},
    "scheduler": HANDS_ON | reads("submissions", "scheduler", *INTAKE) | CONTROLLED,
    "agents": HANDS_ON | reads(*AGENTS) | CONTROLLED,
    "supervisor": HANDS_ON | reads("supervisor") | {("publish", "supervision.replies")} | MAKES | CONTROLLED,
    "beat": {("task", "scheduler"), ("task", "supervisor")},
    "control": ASKED | {("publish", "celery.pidbox")},
    "account": {("publish", "intake"), *reads(MINE)},
}


class Hand:
    """One user's connection. Each try has a channel of its own, because a refusal closes it."""

    def __init__(self, url: str, name: Callable[[str], str]) -> None:
        parts = urlsplit(url)
        self.user = unquote(parts.username or "")
        self.connection = amqp.Connection(
            f"{parts.hostname}:{parts.port or 5672}", userid=self.user, password=parts.password,
            virtual_host=unquote(parts.path[1:]), confirm_publish=True,
        )  # fmt: skip
        self.connection.connect()
        self._name = name

    def may(self, verb: str, target: str) -> bool:
        """Whether the broker lets this user do this."""
        name = self._name(target)
        try:
            with self.connection.channel() as channel:
                self._try(channel, verb, name, is_queue=target in QUEUES)
        except AccessRefused:
            return False
        except (PreconditionFailed, NotFound):
            return True  # the broker looks at permissions first
        return True

    def _try(self, channel: Any, verb: str, name: str, *, is_queue: bool) -> None:
        message = amqp.Message(b"forged")
        if verb == "task":
            channel.basic_publish(message, exchange="supervision.tasks", routing_key=name)
        elif verb == "publish":
            channel.basic_publish(message, exchange="" if is_queue else name, routing_key=name if is_queue else "nowhere")
        elif verb == "consume":
            channel.basic_get(name)
        elif verb == "declare" and is_queue:
            channel.queue_declare(name, durable=True, auto_delete=False)
        elif verb == "declare":
            channel.exchange_declare(name, "headers", auto_delete=False)
        elif verb == "delete" and is_queue:
            channel.queue_delete(name, if_unused=True)
        elif verb == "delete":
            channel.exchange_delete(name, if_unused=True)
        elif verb == "bind":
            channel.queue_bind(name, "supervision.replies", "elsewhere")


@pytest.fixture(scope="module")
def held(shop: Any) -> Iterator[Callable[[str], str]]:
    """Keeps each queue and exchange in use, so that no test deletes it; yields the names at the broker."""
    names = {MINE: shop.reply[1], ANOTHERS: f"reply.{uuid.uuid4().hex}"}
    hand = Hand(shop.env["CELERY_BROKER_URL"], lambda target: target)
    channel = hand.connection.channel()
    channel.queue_declare(names[ANOTHERS], durable=True, auto_delete=False)
    for queue in names.values():
        until(lambda queue=queue: _there(hand, queue), what="the reply queue")
        channel.basic_consume(queue, no_ack=False, callback=print)
    keeper = channel.queue_declare(exclusive=True).queue
    for exchange, kind in (("celery.pidbox", "fanout"), ("reply.celery.pidbox", "direct"), ("celeryev", "topic")):
        channel.exchange_declare(exchange, kind, passive=exchange != "reply.celery.pidbox", auto_delete=False)
        channel.queue_bind(keeper, exchange, "kept")
    yield lambda target: names.get(target, target)
    hand.connection.close()


def _there(hand: Hand, queue: str) -> bool:
    try:
        with hand.connection.channel() as channel:
            channel.queue_declare(queue, passive=True)
    except AMQPError:
        return False
    return True


def test_an_order_over_the_api_and_one_over_the_intake_end_processed_and_are_told_of(shop: Any) -> None:
    token, queue = shop.reply
    key = shop.place(shop.headers(shop.account), reply_to=token)
    until(lambda: _there(Hand(shop.env["CELERY_BROKER_URL"], str), queue), what="the reply queue")
    producer = Hand(shop.urls["account"], str)
    message = amqp.Message(
        json.dumps(order(reply_to=token)),
        message_id=str(uuid.uuid4()),
        user_id=producer.user,
        content_type="application/json",
        delivery_mode=2,
    )
    producer.connection.channel().basic_publish(message, exchange="intake", routing_key="submissions", mandatory=True)

    shop.ends(key, "Processed")
    both = "SELECT key FROM supervision_run WHERE process_state = 'Processed' AND workflow = 'fulfil-order'"
    until(lambda: len(shop.rows(both)) == 2, what="the order of the intake", within=120)
    with connect(shop.urls["account"]) as connection:
        told = [(message["data"]["order"], message["data"]["status"]) for message in follow(connection, queue, 3.0)]
    assert set(told) == {(key, status) for (key,) in shop.rows(both) for status in ("received", "processing", "processed")}
    assert shop.rows("SELECT count(*) FROM supervision_deadletter") == [(0,)]


@pytest.mark.parametrize("user", NEEDED)
def test_each_user_can_do_what_it_needs_and_nothing_else(shop: Any, held: Callable[[str], str], user: str) -> None:
    hand = Hand(shop.urls[user], held)
    tries = [(verb, queue) for verb in ("publish", "consume", "declare", "delete", "bind") for queue in QUEUES]
    tries += [(verb, exchange) for verb in ("publish", "declare", "delete") for exchange in [*EXCHANGES, "supervision.tasks"]]
    tries += [("task", key) for key in [*HINTS, *AGENTS, "submissions.intake", "anything"]]

    done = {each for each in tries if hand.may(*each)}

    hand.connection.close()
    assert done - {("publish", "supervision.tasks")} == NEEDED[user]


def test_no_user_can_say_that_it_is_another(shop: Any) -> None:
    hand = Hand(shop.urls["account"], str)
    forged = amqp.Message(b"{}", user_id="another", message_id="1")

    with pytest.raises(PreconditionFailed, match="user_id"), hand.connection.channel() as channel:
        channel.basic_publish(forged, exchange="intake", routing_key="submissions")
