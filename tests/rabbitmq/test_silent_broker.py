"""A broker that takes bytes and answers nothing: senders find it out, and send over a new connection."""

from __future__ import annotations

import threading
from urllib.parse import urlsplit

import amqp
import pytest
from celery import Celery
from celery.beat import SchedulingError
from celery.schedules import schedule
from kombu import Connection, Queue
from kombu.exceptions import OperationalError

from supervision.transports import rabbitmq
from supervision.worker.beat import Scheduler
from tests import services
from tests.support.relay import Relay
from tests.support.shop import until

pytestmark = pytest.mark.amqp
QUEUE = Queue("heard")


class Entry:
    """One entry of beat's schedule."""

    name, task, args, kwargs, options = "look", "supervision.sweep", (), {}, {"queue": "heard"}
    schedule = schedule(1.0)


@pytest.fixture
def broker(monkeypatch):
    """The relay before RabbitMQ, the URL through it, and a function that counts the messages which came through."""
    monkeypatch.setattr(rabbitmq, "PROVEN_SECONDS", 0.0)  # before every message
    monkeypatch.setattr(rabbitmq, "ANSWER_SECONDS", 1.0)
    with services.own_vhost() as url:
        parts = urlsplit(url)
        relay = Relay(place=(parts.hostname, parts.port or 5672))
        relay.open()
        through = parts._replace(netloc=parts.netloc.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{relay.port}")).geturl()
        with Connection(url) as direct:
            QUEUE(direct.default_channel).declare()
            yield relay, through, lambda: QUEUE(direct.default_channel).queue_declare(passive=True).message_count
        relay.close()


def eventually(count, wanted):
    until(lambda: count() == wanted, what=f"{wanted} messages", told=count)


def publish(connection):
    connection.default_channel.basic_publish(amqp.Message("hello"), routing_key="heard")


def test_a_message_over_a_silent_connection_fails_and_the_next_one_arrives(broker):
    relay, url, count = broker
    with Connection(url) as connection:
        publish(connection)
        eventually(count, 1)
        relay.swallow()

        with pytest.raises(amqp.RecoverableConnectionError, match="the broker is silent"):
            publish(connection)
        publish(connection)

        eventually(count, 2)


@pytest.mark.django_db  # beat closes old connections of the database now and then
def test_beat_sends_over_a_new_connection(broker, monkeypatch):
    relay, url, count = broker
    monkeypatch.setenv("CELERY_BROKER_URL", url)  # Celery reads it before its own settings
    beat = Scheduler(app=Celery("beat of a silent broker", broker=url, set_as_current=False, task_publish_retry=False), lazy=True)
    beat.apply_async(Entry(), producer=beat.producer, advance=False)
    eventually(count, 1)
    relay.swallow()

    with pytest.raises(SchedulingError, match="silent"):
        beat.apply_async(Entry(), producer=beat.producer, advance=False)
    beat.apply_async(Entry(), producer=beat.producer, advance=False)

    eventually(count, 2)
    beat.connection.release()


def test_tasks_go_over_a_new_connection_of_the_pool(broker, monkeypatch):
    relay, url, count = broker
    monkeypatch.setenv("CELERY_BROKER_URL", url)
    app = Celery("a sender of a silent broker", broker=url, set_as_current=False, task_publish_retry=False)
    app.send_task("supervision.sweep", queue="heard")
    eventually(count, 1)
    relay.swallow()

    with pytest.raises(OperationalError, match="silent"):
        app.send_task("supervision.sweep", queue="heard")
    app.send_task("supervision.sweep", queue="heard")

    eventually(count, 2)
    app.pool.force_close_all()


def test_an_answering_broker_is_asked_now_and_then_and_a_consuming_connection_never(broker, monkeypatch):
    _relay, url, _count = broker
    opened = []
    real = rabbitmq.Channel.open
    monkeypatch.setattr(rabbitmq.Channel, "open", lambda self: (opened.append(self), real(self))[1])

    def asked(connection, seconds):
        monkeypatch.setattr(rabbitmq, "PROVEN_SECONDS", seconds)
        before = len(opened)
        publish(connection)
        return len(opened) - before

    with Connection(url) as connection:
        publish(connection)
        found = [asked(connection, 600.0), asked(connection, 0.0), asked(connection, 600.0)]
        connection.default_channel.basic_consume("heard", callback=lambda message: None)

        assert (found, asked(connection, 0.0)) == ([0, 1, 0], 0)


def test_a_broker_that_says_it_takes_nothing_for_now_is_waited_for(broker):
    relay, url, _count = broker
    with Connection(url) as connection:
        publish(connection)
        connection.connection._on_blocked()
        relay.swallow()

        publish(connection)  # as with an alarm: the message waits in the connection

        connection.connection._on_unblocked()
        with pytest.raises(amqp.RecoverableConnectionError):
            publish(connection)


def test_a_silent_connection_can_be_closed(broker):
    relay, url, _count = broker
    connection = Connection(url)
    publish(connection)
    relay.swallow()
    closing = threading.Thread(target=connection.connection.close, daemon=True)

    closing.start()
    closing.join(60)

    assert not closing.is_alive()
    assert not connection.connected
