"""Private reply queues on real brokers: the reader may be away, and only the token's account can use the queue."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from celery import current_app
from django.conf import settings as project
from django.db import connection

from examples.follow_orders import connect, follow
from sasproject import broker
from supervision.models import Delivery, Notification, ReplyToken
from supervision.outbox import notifications, reply_queues, status_sender, subscriptions
from supervision.outbox.status_sender import deliver_all
from supervision.transports.pgmq_tables import install_pgmq
from tests import services
from tests.engine.kit import ROOT, fetch
from tests.outbound import kit

pytestmark = pytest.mark.usefixtures("out")

ALL = [(1, "received"), (2, "processing"), (3, "processed")]
BROKERS = [pytest.param("amqp", marks=pytest.mark.amqp), pytest.param("redis", marks=pytest.mark.redis), "pgmq"]


def use(url: str) -> None:
    """Let the application publish to this broker."""
    database = {**project.DATABASES["default"], "NAME": connection.settings_dict["NAME"]}
    options = broker.transport_options(url, database) if not url.startswith("memory") else {}
    current_app.conf.update(broker_url=url, broker_read_url=url, broker_write_url=url, broker_transport_options=options)


@pytest.fixture
def brokers(request, out):
    """`brokers(name)` makes this broker the application's and returns the address for a client that reads."""
    before = {name: current_app.conf[name] for name in ("broker_url", "broker_read_url", "broker_write_url", "broker_transport_options")}

    def choose(name: str) -> str:
        if name == "amqp":
            url = request.getfixturevalue("rabbit")
        elif name == "redis":
            url = request.getfixturevalue("redis_url")
        else:
            install_pgmq("default")
            use("pgmq://")
            params = connection.get_connection_params()
            return f"pgmq://{params['user']}@/{params['dbname']}?host={params['host']}&port={params.get('port') or 5432}"
        use(url)
        return url

    yield choose
    current_app.conf.update(before)


@pytest.fixture(scope="module")
def rabbit():
    """One virtual host for all these tests, because making one takes longer than most of them."""
    with services.own_vhost() as url:
        yield url


@pytest.fixture
def amqp(brokers):
    return brokers("amqp")


def issue(client: str = kit.ADA) -> tuple[ReplyToken, str]:
    """A token, and the reference to it that an order of its account carries."""
    row, token = subscriptions.issue_reply_token(client)
    return row, subscriptions.references(client, [token])[token]


def read(address: str, queue: str, patience: float = 0.5) -> list[dict]:
    with connect(address) as link:
        return list(follow(link, queue, patience))


def seen(messages: list[dict], order: str) -> list[tuple[int, str]]:
    return sorted((m["data"]["seq"], m["data"]["status"]) for m in messages if m["data"]["order"] == order)


def test_a_batch_of_replies_ends_before_its_lease_and_the_rest_is_claimed_again(amqp, monkeypatch):
    """A broker that is slow would let another process publish all of them again, and again."""
    monkeypatch.setattr(status_sender, "LANE_SECONDS", -1.0)
    row, reference = issue()
    kit.done(reply_to=reference)

    deliver_all()

    assert sorted(Delivery.objects.values_list("attempt", flat=True)) == [1, 2, 3]
    assert len(read(amqp, row.queue)) == 3


@pytest.mark.parametrize("name", BROKERS)
def test_a_reader_that_was_away_gets_everything_later_on_every_broker(brokers, name):
    address = brokers(name)
    row, reference = issue()
    keys = [kit.done(reply_to=reference) for _ in range(3)]
    deliver_all()
    assert Delivery.objects.filter(delivered_at__isnull=False).count() == 9

    messages = read(address, row.queue)

    assert [seen(messages, key) for key in keys] == [ALL] * 3
    assert {message["id"] for message in messages} == {f"msg_{key}_{seq}" for key in keys for seq in (1, 2, 3)}
    assert read(address, row.queue, patience=0.1) == []


@pytest.mark.parametrize("name", BROKERS)
def test_a_reply_names_the_order_it_answers_on_every_broker(brokers, name):
    brokers(name)
    row, reference = issue()
    key = kit.done(reply_to=reference)
    deliver_all()

    with current_app.connection_for_read() as link:
        got = [link.default_channel.basic_get(row.queue, no_ack=True) for _ in ALL]

    assert {message.properties["correlation_id"] for message in got} == {key}
    assert {message.headers["webhook-id"] for message in got} == {f"msg_{key}_{seq}" for seq, _ in ALL}


@pytest.mark.parametrize("name", BROKERS)
def test_the_queue_is_there_before_the_first_message_and_gone_with_its_token_on_every_broker(brokers, name):
    brokers(name)
    row, _reference = issue()
    notifications.deliver_due()
    assert exists(row.queue) or name == "redis"  # in Redis an empty list does not exist

    reply_queues.Post().publish(reply_queues.Reply(row.queue, "msg_1", "order", "order.received", "{}"))
    assert exists(row.queue)
    subscriptions.revoke_reply_token(row)
    notifications.deliver_due()

    assert not exists(row.queue)
    assert Notification.objects.filter(delivered_at__isnull=True).count() == 1  # the deletion is checked once more after a while
    Notification.objects.update(not_before="2000-01-01T00:00Z")
    assert notifications.deliver_due() == 1


def exists(queue: str) -> bool:
    with current_app.connection_for_read() as link:
        channel = link.default_channel
        try:
            channel.queue_declare(queue, passive=True)
        except (*link.channel_errors, *link.connection_errors):
            return False
        return True


@pytest.mark.amqp
def test_the_reply_is_the_webhooks_body_under_the_same_id_and_names_the_order(amqp, receiver):
    kit.listen(receiver.url)
    row, reference = issue()
    key = kit.done(reply_to=reference)
    deliver_all()

    with current_app.connection_for_read() as link:
        got = [link.default_channel.basic_get(row.queue, no_ack=True) for _ in range(3)]

    sent = {message.id: message.body.decode() for message in receiver.messages}
    assert {message.properties["message_id"]: _text(message.body) for message in got} == sent
    assert {message.properties["correlation_id"] for message in got} == {key}
    assert {(message.properties["type"], message.properties["delivery_mode"]) for message in got} == {
        (f"order.{status}", 2) for status in ("received", "processing", "processed")
    }


def _text(body: bytes | str) -> str:
    return body.decode() if isinstance(body, bytes) else body


@pytest.mark.amqp
def test_the_example_prints_what_became_of_orders(amqp):
    row, reference = issue()
    key = kit.done(reply_to=reference)
    deliver_all()

    command = [sys.executable, "examples/follow_orders.py", "--broker", amqp, "--queue", row.queue, "--patience", "0.5"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()

    assert [line.split()[1:] for line in printed] == [[key, "1", "received"], [key, "2", "processing"], [key, "3", "processed"]]


@pytest.mark.amqp
def test_a_queue_that_somebody_deleted_is_made_anew_and_nothing_is_lost(amqp):
    row, reference = issue()
    post = reply_queues.Post()
    post.publish(reply_queues.Reply(row.queue, "msg_0", "order", "order.received", "{}"))
    reply_queues.delete_queues([row.queue])

    with pytest.raises(reply_queues.Returned):  # the broker returns the message, so it does not count as delivered
        post.publish(reply_queues.Reply(row.queue, "msg_1", "order", "order.received", "{}"))
    post.close()
    key = kit.done(reply_to=reference)
    deliver_all()

    assert seen(read(amqp, row.queue), key) == ALL


@pytest.mark.amqp
def test_a_broker_that_is_away_delays_no_webhook_and_gets_everything_later(amqp, receiver):
    row, reference = issue()
    kit.listen(receiver.url)
    use("amqp://guest:guest@127.0.0.1:9//")
    key = kit.done(reply_to=reference)

    deliver_all()

    assert receiver.seen(key) == ALL
    waiting = Delivery.objects.filter(delivered_at__isnull=True)
    assert waiting.count() == 3
    assert [delivery.tries for delivery in waiting.order_by("seq")] == [1, 0, 0]  # one failed try is enough

    use(amqp)
    kit.let_waits_pass()
    deliver_all()
    assert seen(read(amqp, row.queue), key) == ALL


def test_a_reply_queue_that_fails_delays_no_other(brokers, monkeypatch):
    """One queue may fail alone: the machine of the cluster that holds it is down, or it is full."""
    address = brokers("pgmq")
    (bad, to_bad), (good, to_good) = issue(), issue(kit.BOB)
    kit.done(reply_to=to_bad)
    key = kit.done(client=kit.BOB, reply_to=to_good)
    publish = reply_queues.Post.publish

    def refuse(post: reply_queues.Post, reply: reply_queues.Reply) -> None:
        if reply.queue == bad.queue:
            post.close()
            raise OSError("its home node is down")
        publish(post, reply)

    monkeypatch.setattr(reply_queues.Post, "publish", refuse)
    deliver_all()

    assert seen(read(address, good.queue), key) == ALL
    waiting = Delivery.objects.filter(reply_token=bad, delivered_at=None)
    assert (waiting.count(), waiting.get(seq=1).tries) == (3, 1)


def test_a_revoked_token_gets_nothing_more_and_its_messages_are_given_up():
    use("memory://")
    row, reference = issue()
    key = kit.done(reply_to=reference)
    from_before = kit.deliveries()
    subscriptions.revoke_reply_token(row)
    deliver_all()

    assert from_before == kit.deliveries() == []
    assert kit.told(key) != []


def test_what_waited_for_a_revoked_token_is_given_up():
    row, reference = issue()
    kit.done(reply_to=reference)
    kit.fan_out()
    subscriptions.revoke_reply_token(row)

    assert {(delivery.given_up_at is not None, delivery.last_error) for delivery in kit.deliveries()} == {
        (True, "the reply token was revoked")
    }


def test_a_token_of_another_account_brings_nobody_an_others_messages():
    _row, reference = issue(kit.BOB)

    kit.done(client=kit.ADA, reply_to=reference)
    kit.fan_out()

    assert kit.deliveries() == []


def test_only_the_hash_of_a_token_is_kept():
    row, token = subscriptions.issue_reply_token(kit.ADA)
    kit.done(reply_to=subscriptions.references(kit.ADA, [token])[token])

    assert len(token) > 40
    assert row.queue.startswith("reply.")
    assert len(row.queue) == len("reply.") + 32
    for table in ("replytoken", "notification", "run", "submission"):
        rows = fetch(f"SELECT t::text FROM supervision_{table} t")  # noqa: S608 - the names above
        assert token not in json.dumps(rows), table
