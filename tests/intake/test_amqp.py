"""Order requests over AMQP: the consumer commits, then acknowledges. A refused message becomes a dead letter byte for byte."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import amqp
import pytest
from celery import Celery
from django.contrib.auth.models import User
from django.db import connection

from orders.models import Product
from supervision import WaitForSignal, testing, workflow
from supervision.agent import WAIT, WaitAgent, registered
from supervision.insight import directory
from supervision.intake import amqp_consumer
from supervision.intake.amqp import DEAD, NAME
from supervision.intake.amqp_consumer import Intake
from supervision.models import DeadLetter, Receipt, Signal, Submission
from tests import services
from tests.intake.brokers import Amqp, RawProperties
from tests.intake.conftest import ROOT, database_away
from tests.intake.corpus import AMQP_PROPERTIES
from tests.shopping import a_product, a_request, an_account
from tests.support import forked
from tests.support.shop import until

pytestmark = pytest.mark.amqp
PRODUCER = unquote(urlsplit(services.AMQP_URL).username or "guest")
GOOD = json.dumps(a_request()).encode()


@pytest.fixture(autouse=True)
def _in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the consumer's idle wait, so that the tests are quick."""
    monkeypatch.setattr(amqp_consumer, "IDLE_SECONDS", 0.1)


@pytest.fixture
def mug(engine: None) -> Iterator[Product]:
    product = a_product()
    yield product
    product.delete()
    Receipt.objects.all().delete()
    for user in User.objects.all():
        user.delete()


@pytest.fixture
def account(mug: Product) -> User:
    """The client account with the name of the broker's user."""
    return an_account(PRODUCER, "client")


@pytest.fixture(scope="module")
def vhost() -> Iterator[str]:
    """One virtual host for all these tests, because RabbitMQ needs seconds to make one."""
    with services.own_vhost() as url:
        yield url


@pytest.fixture
def amqp_url(vhost: str) -> str:
    """The virtual host without our queues."""
    raw = Amqp(vhost)
    for name in (NAME, DEAD):
        raw.channel.queue_delete(name)
    raw.close()
    return vhost


@pytest.fixture
def producer(amqp_url: str, engine: None) -> Iterator[Amqp]:
    """An external producer, connected as a user of the broker."""
    raw = Amqp(amqp_url)
    yield raw
    raw.close()


def application(url: str) -> Celery:
    """A Celery application on this broker; it ignores the broker in the environment."""
    return Celery("intake", set_as_current=False, changes={"broker_read_url": url, "broker_write_url": url})


@pytest.fixture
def queue(amqp_url: str, producer: Amqp) -> Amqp:
    """The queue exists, and no consumer reads it yet."""
    with application(amqp_url).connection_for_read() as broker:
        amqp_consumer.declared(broker, DEAD, amqp_consumer.DEAD_SHAPES)
        amqp_consumer.declared(broker, NAME, amqp_consumer.SHAPES)
    return producer


@contextmanager
def consuming(url: str) -> Iterator[Intake]:
    """A consumer in a thread of this process."""
    intake = Intake(application(url))
    intake.start()
    try:
        yield intake
    finally:
        assert intake.stop(20)


def publish(producer: Amqp, body: bytes, message_id: str | None, **properties: Any) -> None:
    given = {"content_type": "application/json", "user_id": PRODUCER, "delivery_mode": 2, "message_id": message_id, **properties}
    message = amqp.Message(body, **{name: value for name, value in given.items() if value is not None})
    producer.channel.basic_publish(message, routing_key=NAME, mandatory=True)


def taken() -> list[str]:
    return sorted(str(row.client_key) for row in Submission.objects.all())


def letters() -> list[DeadLetter]:
    return list(DeadLetter.objects.order_by("pk"))


def test_an_order_from_a_queue_is_accepted_like_one_from_the_api(account: User, queue: Amqp, amqp_url: str) -> None:
    publish(queue, GOOD, "order-1")

    with consuming(amqp_url):
        until(lambda: taken() == ["order-1"])
        until(lambda: queue.left(NAME) == 0)

    submission = Submission.objects.get()
    assert submission.client == f"user:{account.pk}"
    assert json.loads(submission.payload)["total"] == "25.80"
    assert letters() == []


def test_messages_under_one_id_are_one_order_and_another_body_is_set_aside(account: User, queue: Amqp, amqp_url: str) -> None:
    other = json.dumps(a_request(email="other@example.com")).encode()
    for body in (GOOD, json.dumps(a_request(), indent=3).encode(), other):
        publish(queue, body, "order-1")

    with consuming(amqp_url):
        until(lambda: len(letters()) == 1)
        publish(queue, GOOD, "order-1")
        publish(queue, GOOD, "order-2")
        until(lambda: taken() == ["order-1", "order-2"])

    assert bytes(letters()[0].body) == other
    assert "used before" in letters()[0].reason


def test_what_cannot_be_taken_is_kept_as_it_was_and_its_neighbours_are_accepted(account: User, queue: Amqp, amqp_url: str) -> None:
    bad: list[tuple[str, bytes, dict[str, Any]]] = [
        ("not JSON", b'{"email": "ada', {}),
        ("codec", GOOD.replace(b"Torino", b"\xff\xfe"), {}),
        ("not JSON", b"", {}),
        ("nested too deeply", b"[" * 50_000, {}),
        ("not JSON: NaN", b'{"email": NaN}', {}),
        ("Expected an object|object|dictionary", b"[1, 2]", {}),
        ("not known", json.dumps(a_request(colour="blue")).encode(), {}),
        ("no product", json.dumps(a_request(lines=[{"sku": "NOPE", "quantity": 1}])).encode(), {}),
        ("total is now", json.dumps(a_request(expected_total="1.00")).encode(), {}),
        ("out of stock", json.dumps(a_request(lines=[{"sku": "MUG-BLUE", "quantity": 99}])).encode(), {}),
        ("reply_to", json.dumps(a_request(reply_to="amq.gen-x")).encode(), {}),
        ("message_id: missing", GOOD, {"message_id": None}),
        ("idempotency_key", GOOD, {"message_id": "k\x01"}),
        ("user_id: missing", GOOD, {"user_id": None}),
        ("content_type", GOOD, {"content_type": "text/csv"}),
        ("content_encoding", GOOD, {"content_encoding": "gzip"}),
        ("compressed", GOOD, {"application_headers": {"compression": "application/x-gzip"}}),
    ]
    for number, (_, body, changes) in enumerate(bad):
        publish(queue, GOOD, f"good-{number:02}")
        publish(queue, body, **{"message_id": f"bad-{number:02}", **changes})
    queue.channel.basic_publish(RawProperties(b"raw", AMQP_PROPERTIES[0]), routing_key=NAME)

    with consuming(amqp_url):
        until(lambda: len(letters()) == len(bad) + 1)
        until(lambda: queue.left(NAME) == 0)

    assert taken() == [f"good-{number:02}" for number in range(len(bad))]
    kept = {bytes(letter.body): letter for letter in letters()}
    assert sorted(bytes(letter.body) for letter in letters()) == sorted([b"raw", *(body for _, body, _ in bad)])
    for why, body, _ in bad:
        if body != GOOD:
            assert any(words in kept[body].reason for words in why.split("|")), (why, kept[body].reason)
            assert kept[body].delivery["properties"]["user_id"] == PRODUCER
    reasons = "\n".join(letter.reason for letter in letters())
    for why, _, _ in bad[-6:]:
        assert why in reasons
    assert {letter.source for letter in letters()} == {"intake"}


@pytest.mark.parametrize(("groups", "active"), [((), True), (("customer",), True), (("client",), False), (None, True)])
def test_only_an_active_client_account_may_hand_in(groups: Any, active: bool, mug: Product, queue: Amqp, amqp_url: str) -> None:
    if groups is not None:
        User.objects.filter(pk=an_account(PRODUCER, *groups).pk).update(is_active=active)
    publish(queue, GOOD, "order-1")

    with consuming(amqp_url):
        until(letters)

    assert letters()[0].reason.startswith("user_id: ")
    assert taken() == []


def test_the_broker_refuses_a_forged_name(queue: Amqp) -> None:
    with pytest.raises(amqp.PreconditionFailed, match="user_id"):
        publish(queue, GOOD, "order-1", user_id="another-user")


def test_the_queue_is_durable_replicated_and_gives_up_into_the_dead_letters(account: User, queue: Amqp, amqp_url: str) -> None:
    # Declare the queue with the same arguments; RabbitMQ refuses any others.
    assert amqp_consumer.SHAPES[0]["x-queue-type"] == "quorum"
    queue.channel.queue_declare(NAME, durable=True, auto_delete=False, arguments=amqp_consumer.SHAPES[0])
    publish(queue, GOOD, "order-1")
    message = queue.channel.basic_get(NAME)
    queue.channel.basic_reject(message.delivery_tag, requeue=False)  # as the broker does after too many deliveries

    with consuming(amqp_url):
        until(letters)
        until(lambda: queue.left(DEAD) == 0)

    assert bytes(letters()[0].body) == GOOD
    assert letters()[0].headers["x-death"][0]["queue"] == NAME
    assert taken() == []


def test_a_queue_that_is_there_already_is_taken_as_it_is(account: User, producer: Amqp, amqp_url: str) -> None:
    producer.channel.queue_declare(NAME, durable=True, auto_delete=False)
    publish(producer, GOOD, "order-1")

    with consuming(amqp_url):
        until(lambda: taken() == ["order-1"])


def test_many_messages_are_few_commits(account: User, queue: Amqp, amqp_url: str) -> None:
    for number in range(300):
        publish(queue, GOOD, f"order-{number}")

    with consuming(amqp_url):
        until(lambda: len(taken()) == 300)
        until(lambda: queue.left(NAME) == 0)

    assert Submission.objects.values("created_at").distinct().count() <= 20


def test_a_lost_connection_is_made_anew(account: User, queue: Amqp, amqp_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp_consumer, "PAUSE_SECONDS", 0.05)
    with consuming(amqp_url):
        publish(queue, GOOD, "order-1")
        until(lambda: taken() == ["order-1"])
        queue.close()
        vhost = unquote(urlsplit(amqp_url).path[1:])
        closed = subprocess.run(["rabbitmqctl", "close_all_connections", "--vhost", vhost, "test"], capture_output=True, check=False)
        if closed.returncode:
            pytest.skip("rabbitmqctl may not close connections here")
        queue.__init__(amqp_url)  # type: ignore[misc]
        publish(queue, GOOD, "order-2")
        until(lambda: taken() == ["order-1", "order-2"])


# ----------------------------------------------------------------------------------------- the database is away


def test_nothing_is_acknowledged_while_the_database_is_away_and_nothing_counted(
    account: User, queue: Amqp, amqp_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amqp_consumer, "PAUSE_SECONDS", 0.1)
    with consuming(amqp_url):
        until(lambda: "the intake consumes" in caplog.text)
        with database_away():
            publish(queue, GOOD, "order-1")
            publish(queue, b"nonsense", "order-2")
            until(lambda: caplog.text.count("wait for the database") >= 3)
        until(lambda: taken() == ["order-1"])
        until(lambda: len(letters()) == 1)
        until(lambda: queue.left(NAME) == 0)

    assert (bytes(letters()[0].body), letters()[0].deliveries) == (b"nonsense", 1)


# ------------------------------------------------------------------------------------------------ killed consumers


@pytest.fixture
def consumer(amqp_url: str, tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Start a consumer that restarts after each kill; returns the file with one line per end."""
    begun: list[subprocess.Popen[bytes]] = []
    told = tmp_path / "consumer.txt"

    def start(**environ: str) -> Path:
        env = {**os.environ, "CELERY_BROKER_URL": amqp_url, **environ}
        arguments = [sys.executable, "-m", "tests.intake.process", str(connection.settings_dict["NAME"]), "intake"]
        with told.open("ab") as out, (tmp_path / "consumer.log").open("ab") as log:
            begun.append(forked.Popen(arguments, cwd=ROOT, env=env, stdout=out, stderr=log, start_new_session=True))
        return told

    yield start
    for process in begun:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def test_a_consumer_killed_between_commit_and_acknowledgement_makes_one_order(
    account: User, queue: Amqp, consumer: Callable[..., Path]
) -> None:
    publish(queue, GOOD, "order-1")

    told = consumer(FAILPOINTS="intake.after_commit=kill9", FAIL_ONCE="1")
    until(lambda: told.read_text() == "killed\n", what="its death")
    assert taken() == ["order-1"]
    publish(queue, GOOD, "order-2")

    until(lambda: taken() == ["order-1", "order-2"] and not Receipt.objects.exists(), what="the next one's work")
    assert letters() == []


def test_a_message_that_kills_its_readers_is_set_aside_the_fourth_time_and_its_neighbours_are_not(
    account: User, queue: Amqp, consumer: Callable[..., Path]
) -> None:
    for name in ("order-1", "killer", "order-2"):
        publish(queue, GOOD, name)

    told = consumer(FAILPOINTS="intake.before_commit=kill9", FAILPOINT_STEP="killer")

    until(lambda: letters() and taken() == ["order-1", "order-2"], what="the end of it")
    assert told.read_text() == "killed\n" * 4  # once in a batch, then alone
    [letter] = letters()
    assert (letter.deliveries, letter.delivery["properties"]["message_id"]) == (5, "killer")
    assert bytes(letter.body) == GOOD


def test_a_message_that_comes_again_is_not_blamed_for_what_keeps_its_living_reader_from_writing(
    account: User, queue: Amqp, amqp_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A migration that the consumer needs has not run yet: the message waits through any number of tries."""
    monkeypatch.setattr(amqp_consumer, "PAUSE_SECONDS", 0.1)
    publish(queue, GOOD, "order-1")
    someone = Amqp(amqp_url)
    until(lambda: someone.channel.basic_get(NAME, no_ack=False) is not None)
    someone.close()  # the broker redelivers the message, although no process died
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE supervision_submission RENAME TO not_yet")
    try:
        with consuming(amqp_url):
            until(lambda: caplog.text.count("wait for the database") >= 6 or DeadLetter.objects.exists())
            with connection.cursor() as cursor:
                cursor.execute("ALTER TABLE not_yet RENAME TO supervision_submission")
            until(lambda: letters() or taken() == ["order-1"])
            until(lambda: queue.left(NAME) == 0)
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE IF EXISTS not_yet RENAME TO supervision_submission")

    assert letters() == []
    assert taken() == ["order-1"]
    assert not Receipt.objects.exists()


def test_a_producer_sends_a_signal_to_its_own_order_and_a_wrong_one_is_set_aside(
    account: User, queue: Amqp, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_workflows", "_newest"):
        monkeypatch.setattr(workflow, name, dict(getattr(workflow, name)))
    monkeypatch.setattr(directory, "_used", [directory.Directory()])  # the engine's own lets clients send any signal
    monkeypatch.setitem(registered, WAIT, WaitAgent())
    workflow.register(workflow.Workflow("paying", (WaitForSignal("paid"),)))
    mine = testing.submit("paying", {}, client=f"user:{account.pk}")
    foreign = testing.submit("paying", {}, client="user:0")

    for number, body in enumerate(
        [
            {"order": mine, "name": "paid", "payload": {"amount": "3"}},
            {"order": foreign, "name": "paid"},
            {"order": mine, "name": "payed"},
            {"order": mine},
            [],
        ]
    ):
        for _ in range(2):
            publish(queue, json.dumps(body).encode(), f"signal-{number}", type="signal")
    with consuming(amqp_url):
        until(lambda: len(letters()) == 8 and Signal.objects.count() == 1)

    [kept] = Signal.objects.all()
    assert (kept.run_key, kept.key, kept.payload, kept.sent_by) == (mine, "signal-0", {"amount": "3"}, PRODUCER)
    reasons = [letter.reason.splitlines()[0] for letter in letters()]
    assert sorted(set(reasons)) == [
        "No step of this order waits for a signal named payed. Its signals: paid.",
        "expected {order: text, name: text, payload: object}, and nothing else",
        f"no order '{foreign}' is known",
    ]
