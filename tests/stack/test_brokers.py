"""Each broker with the project's options; the application runs in a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from sasproject.apps import complete_database
from supervision import celery
from supervision.embedded.server import database_url
from supervision.transports.pgmq_tables import install_pgmq
from tests.support import forked

ROOT = Path(__file__).resolve().parents[2]
THERE_AND_BACK = """
import sys
from sasproject import celery_app
with celery_app.connection_for_write() as link:
    queue = link.SimpleQueue(sys.argv[1])
    queue.put({"run": 7})
    message = queue.get(timeout=10)
    message.ack()
    print(message.payload)
    queue.queue.delete()
    queue.close()
"""
# Who sends does not listen: nothing would read what the server tells it. Who waits for messages does.
LISTENERS = """
import sys
from django.db import connection
from kombu import Queue
from sasproject import celery_app

def listeners():
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'")
        return cursor.fetchone()[0]

with celery_app.connection_for_write() as link:
    queue = Queue(sys.argv[1])
    link.Producer().publish({"run": 7}, routing_key=queue.name, declare=[queue])
    print(listeners())
    link.SimpleQueue(queue).get(timeout=10).ack()
    print(listeners())
"""
# Who sends one message after another needs one connection for that, and each publisher of each process has its own.
CONNECTIONS = """
import sys
from django.db import connection
from kombu import Queue
from sasproject import celery_app

def sessions():
    with connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE '%queues%'")
        return {pid for (pid,) in cursor.fetchall()}

before = sessions()  # of the tests' own process
with celery_app.connection_for_write() as link:
    queue, producer = Queue(sys.argv[1]), link.Producer()
    for number in range(20):
        producer.publish({"run": number}, routing_key=queue.name, declare=[queue])
    print(len(sessions() - before))
    queue(link).delete()
"""
# A worker that may have one message at a time. It looks into an idle queue every ten minutes.
WAITS = """
import sys
from threading import Timer
from kombu import Consumer, Queue
from sasproject import celery_app
from supervision.transports import pgmq

pgmq.IDLE_SECONDS = 600.0
queue, taken, looks = Queue(sys.argv[1]), [], []
look = pgmq.Channel._receive_messages
pgmq.Channel._receive_messages = lambda *given, **more: looks.append(1) or look(*given, **more)

def send(number):
    with celery_app.connection_for_write() as other:
        print(f"looked {len(looks)} time before message {number}", flush=True)
        other.Producer().publish(number, routing_key=queue.name)

with celery_app.connection_for_write() as link, Consumer(link.default_channel, [queue], on_message=taken.append) as consumer:
    consumer.qos(prefetch_count=1)
    later = Timer(1.0, send, [1])
    later.start()
    link.drain_events()
    later.join()
    send(2)
    Timer(1.0, taken[0].ack).start()
    link.drain_events()
    print([message.decode() for message in taken])
"""
SEND = """
from sasproject import celery_app
celery_app.send_task("supervision.schedule")
"""


def run(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {**os.environ, "DJANGO_SETTINGS_MODULE": "sasproject.settings", **environment}
    command = [sys.executable, "-c", code, *arguments]
    return forked.run(command, cwd=ROOT, env=inherited, timeout=90)


def goes_there_and_back(**environment: str) -> None:
    done = run(THERE_AND_BACK, f"test_{uuid.uuid4().hex[:8]}", **environment)
    assert done.stdout.strip() == "{'run': 7}", done.stderr


@pytest.mark.amqp
def test_rabbitmq_carries_a_message(amqp_url):
    goes_there_and_back(CELERY_BROKER_URL=amqp_url)


@pytest.mark.redis
def test_redis_carries_a_message(redis_url):
    goes_there_and_back(CELERY_BROKER_URL=redis_url)


@pytest.fixture
def in_the_database(transactional_db: None) -> dict[str, str]:
    """The settings that make the tests' database the broker."""
    install_pgmq("default")
    database = {**settings.DATABASES["default"], **connection.get_connection_params()}
    url = (
        f"postgres://{database['user']}:{database.get('password', '')}@{database['host'].replace('/', '%2F')}:{database.get('port', 5432)}"
    )
    return {"CELERY_BROKER_URL": "pgmq://", "DATABASE_URL": f"{url}/{database['dbname']}"}


def test_the_database_carries_a_message_without_any_broker(in_the_database: dict[str, str]):
    goes_there_and_back(**in_the_database)


def test_a_database_named_by_the_broker_s_url_with_parameters_carries_a_message(in_the_database: dict[str, str]):
    url = in_the_database["DATABASE_URL"].replace("postgres://", "pgmq://")

    goes_there_and_back(**in_the_database | {"CELERY_BROKER_URL": f"{url}?sslmode=prefer&keepalives_idle=60"})


def test_only_a_process_that_waits_for_messages_listens_in_the_database(in_the_database: dict[str, str]):
    done = run(LISTENERS, f"test_{uuid.uuid4().hex[:8]}", **in_the_database)

    assert done.stdout.split() == ["0", "1"], done.stderr


def test_who_sends_one_message_after_another_has_one_connection_for_it(in_the_database: dict[str, str]):
    done = run(CONNECTIONS, f"test_{uuid.uuid4().hex[:8]}", **in_the_database)

    assert done.stdout.split() == ["1"], done.stderr


def test_a_worker_in_the_database_looks_when_a_message_comes_and_soon_where_it_had_no_room(in_the_database: dict[str, str]):
    done = run(WAITS, f"test_{uuid.uuid4().hex[:8]}", **in_the_database)

    assert done.stdout.splitlines()[::2] == ["looked 1 time before message 1", "[1, 2]"], done.stderr


@pytest.mark.django_db(transaction=True)
def test_completing_the_database_makes_what_is_missing_and_keeps_what_waits(monkeypatch):
    monkeypatch.setattr(celery, "broker_is_pgmq", lambda: True)
    monkeypatch.setattr(celery, "pgmq_elsewhere", lambda: None)
    queue = f"test_{uuid.uuid4().hex[:8]}"
    with connection.cursor() as cursor:
        cursor.execute("DROP SCHEMA IF EXISTS pgmq CASCADE")
        cursor.execute("DROP TABLE IF EXISTS sas_cache")
    complete_database()

    with connection.cursor() as cursor:
        cursor.execute("SELECT pgmq.create(%s)", [queue])
        cursor.execute("SELECT pgmq.send(%s, '{\"run\": 7}')", [queue])
        complete_database()
        cursor.execute("SELECT pgmq.create(%s)", [queue])  # as a starting consumer does
        cursor.execute("SELECT count(*) FROM sas_cache")
        assert cursor.fetchone() == (0,)
        cursor.execute("SELECT message->>'run' FROM pgmq.read(%s, 30, 10)", [queue])
        assert cursor.fetchall() == [("7",)]
        cursor.execute("SELECT pgmq.drop_queue(%s)", [queue])


@pytest.mark.parametrize("broker", ["amqp://127.0.0.1:9//", "redis://127.0.0.1:9/0", "pgmq://user@127.0.0.1:9/none"])
def test_publishing_to_a_dead_broker_fails_soon(broker, tmp_path):
    started = time.monotonic()
    done = run(SEND, CELERY_BROKER_URL=broker, DATABASE_URL=database_url(tmp_path))

    assert done.returncode != 0
    assert time.monotonic() - started < 15
