"""Requeueing dead letters: each kind goes back to its source, unchanged and once."""

from __future__ import annotations

import json
import os
from base64 import b64decode
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from orders.models import Product
from sasproject import broker as brokers
from sasproject import celery_app
from supervision.deadletters import dead_letters
from supervision.deadletters.dead_letters import Letter
from supervision.errors import ChangedMeanwhile, Refused
from supervision.models import DeadLetter, Notification, Submission
from supervision.operations import operator_verbs
from supervision.outbox import notifications
from supervision.postgres.json_safe import restored, storable
from supervision.transports.envelope import UNREADABLE
from supervision.transports.rabbitmq import PROPERTIES
from tests.intake import corpus
from tests.intake.brokers import QUEUE, Amqp, Broker, Pgmq, Redis
from tests.shopping import a_client, a_product, a_request, an_account
from tests.support.history import rewrite

CASE = next(case for case in corpus.MESSAGES if case.name == "headers of all sorts")


def publish_to(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process publish to that URL, in every place where Celery reads the broker's address."""
    monkeypatch.setattr(celery_app.conf, "broker_write_url", url)  # first: its old value is read from the environment
    monkeypatch.setitem(os.environ, "CELERY_BROKER_URL", url)


@pytest.fixture
def publishing(broker: tuple[str, Broker], monkeypatch: pytest.MonkeyPatch) -> Broker:
    """This process publishes to that broker as well."""
    url, raw = broker
    database = {**settings.DATABASES["default"], "NAME": connection.settings_dict["NAME"]}
    publish_to(url, monkeypatch)
    monkeypatch.setitem(celery_app.conf, "broker_transport_options", brokers.transport_options(url, database))
    with celery_app.connection_for_write() as link:
        link.SimpleQueue(QUEUE).close()
    return raw


def only_message(raw: Any) -> tuple[bytes, Any, Any, Any]:
    """Body, content type, encoding and headers of the one message in the queue, read without the project's code."""
    if isinstance(raw, Amqp):
        message = raw.channel.basic_get(QUEUE, no_ack=True)
        body = message.body if isinstance(message.body, bytes) else message.body.encode()
        return body, message.properties.get("content_type"), message.properties.get("content_encoding"), message.headers
    envelope = json.loads(only_item(raw))
    return b64decode(envelope["body"]), envelope["content-type"], envelope["content-encoding"], envelope["headers"]


def only_item(raw: Any) -> bytes:
    if isinstance(raw, Redis):
        [item] = raw.client.lrange(QUEUE, 0, -1)
        return bytes(item)
    assert isinstance(raw, Pgmq)
    [(item,)] = raw.connection.execute("SELECT message::text FROM pgmq.q_agent_stock").fetchall()
    return str(item).encode()


def kept(**changes: Any) -> DeadLetter:
    letter = {
        "source": f"queue {QUEUE}",
        "body": CASE.body,
        "reason": "there is no task 'tests.gone'",
        "content_type": CASE.content_type,
        "headers": CASE.headers,
        "delivery": {"queue": QUEUE, "content_encoding": "utf-8", "properties": {"correlation_id": "c-1", "user_id": "guest"}},
    }
    return DeadLetter.objects.get(pk=dead_letters.keep_all([Letter(**{**letter, **changes})])[0])


def test_a_message_goes_back_to_its_queue_as_it_was_and_only_once(publishing: Broker) -> None:
    letter = kept()

    operator_verbs.requeue_dead_letter(letter.pk, by="olga", reason="the task is there now")
    with pytest.raises(ChangedMeanwhile):
        operator_verbs.requeue_dead_letter(letter.pk, by="paul", reason="so it is")
    assert notifications.deliver_due() == 1

    assert publishing.left() == 1
    assert only_message(publishing) == (CASE.body, CASE.content_type, "utf-8", CASE.headers)
    letter.refresh_from_db()
    assert letter.resolution == "olga: requeued: the task is there now"


def test_what_was_no_message_goes_back_as_it_was(publishing: Broker) -> None:
    if isinstance(publishing, Amqp):
        letter = kept(headers={UNREADABLE: "?", PROPERTIES: b"\xff"})
        with pytest.raises(Refused):
            operator_verbs.requeue_dead_letter(letter.pk, by="olga", reason="try")
        return
    letter = kept(body=b'["no", "envelope"]', headers={UNREADABLE: "the envelope is not an object"})

    operator_verbs.requeue_dead_letter(letter.pk, by="olga", reason="try")
    assert notifications.deliver_due() == 1

    assert only_item(publishing) == b'["no", "envelope"]'


def test_a_message_whose_bytes_were_erased_meanwhile_is_not_sent_and_its_letter_says_so(publishing: Broker) -> None:
    letter = kept()
    operator_verbs.requeue_dead_letter(letter.pk, by="olga", reason="the task is there now")
    letter.refresh_from_db()
    dead_letters.blank(letter, lambda words: words)

    assert notifications.deliver_due() == 1

    assert publishing.left() == 0
    letter.refresh_from_db()
    assert letter.resolution == "olga: requeued: the task is there now; not sent: its bytes were erased before"


@pytest.mark.usefixtures("engine")
def test_a_message_goes_back_later_when_the_broker_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    publish_to("redis://127.0.0.1:9/0", monkeypatch)
    operator_verbs.requeue_dead_letter(kept().pk, by="olga", reason="the task is there now")

    assert notifications.deliver_due() == 0

    [notification] = Notification.objects.filter(delivered_at=None, kind="requeue")
    assert notification.tries == 1
    publish_to("memory://", monkeypatch)
    with celery_app.connection_for_write() as link:
        link.SimpleQueue(QUEUE).close()
    Notification.objects.update(not_before=Now())
    assert notifications.deliver_due() == 1


@pytest.fixture
def mug(engine: None) -> Any:
    """A product, and the account that buys it."""
    product = a_product()
    an_account("producer", "client")
    yield product
    product.delete()
    rewrite("DELETE FROM django_admin_log")
    for user in User.objects.all():
        user.delete()


def from_the_intake(body: bytes) -> DeadLetter:
    properties = {"message_id": "order-1", "user_id": "producer"}
    delivery = {"queue": "submissions.intake", "content_encoding": None, "properties": properties}
    return kept(source="intake", body=body, headers={}, delivery=delivery, reason="lines[0].sku: There is no product MUG-BLUE.")


def test_an_order_request_is_read_again_under_its_message_id(mug: Product) -> None:
    letter = from_the_intake(json.dumps(a_request()).encode())

    operator_verbs.requeue_dead_letter(letter.pk, by="olga", reason="the mug is on sale now")
    twin = from_the_intake(json.dumps(a_request()).encode())
    operator_verbs.requeue_dead_letter(twin.pk, by="olga", reason="the same one")

    assert Submission.objects.get().client_key == "order-1"


def test_an_order_request_that_is_still_refused_stays_open_with_the_reason(mug: Product) -> None:
    letter = from_the_intake(json.dumps(a_request(lines=[{"sku": "NOPE", "quantity": 1}])).encode())

    with pytest.raises(Refused, match="There is no product NOPE"):
        operator_verbs.requeue_dead_letter(letter.pk, by="olga", reason="perhaps")

    letter.refresh_from_db()
    assert letter.resolved_at is None
    assert Submission.objects.count() == 0


@pytest.mark.usefixtures("engine")
def test_a_letter_is_shown_so_that_no_terminal_obeys_it(capsys: pytest.CaptureFixture[str]) -> None:
    letter = kept(body=b"\x1b[2J\xff<script>", headers={"note": b"\xff"})

    call_command("dead_letters", "show", letter.pk)

    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "\\x1b[2J\\xff<script>" in said
    assert "1b 5b 32 4a ff" in said
    assert '"queue": "agent.stock"' in said


def test_operators_meet_a_letter_in_the_console_and_over_the_api(mug: Product) -> None:
    letter = kept(body=b"<script>\xff")
    olga = User.objects.get(pk=an_account("olga", "operator").pk)
    olga.is_staff = True
    olga.save()
    console, api = Client(), a_client(olga)
    console.force_login(olga)

    page = console.get(reverse("admin:supervision_deadletter_change", args=[letter.pk])).content.decode()
    shown = api.get(f"/api/v1/dead-letters/{letter.pk}/").json()
    done = api.post(f"/api/v1/dead-letters/{letter.pk}/requeue/", {"reason": "mended"}, format="json")
    again = api.post(f"/api/v1/dead-letters/{letter.pk}/requeue/", {"reason": "mended"}, format="json")

    assert "&lt;script&gt;\\xff" in page
    assert "<script>\\xff" not in page
    assert "correlation_id" in page
    assert reverse("admin:supervision_deadletter_resolve", args=[letter.pk, "requeue"]) in page
    assert (b64decode(shown["body"]), shown["text"], shown["delivery"]["queue"]) == (b"<script>\xff", "<script>\\xff", QUEUE)
    assert (done.status_code, again.status_code) == (202, 409)
    letter.refresh_from_db()
    assert letter.resolution == "olga: requeued: mended"


@pytest.mark.usefixtures("engine")
def test_a_message_that_comes_again_after_it_was_kept_is_counted_and_not_kept_twice() -> None:
    letter = kept()
    for headers in ({**CASE.headers, "redelivered": True}, {**CASE.headers, "x-delivery-count": 2}):
        assert kept(headers=headers, deliveries=2, repeated=True).pk == letter.pk
    other = kept(headers={**CASE.headers, "id": "another"}, deliveries=2, repeated=True)

    letter.refresh_from_db()
    assert letter.deliveries == 3
    assert other.pk != letter.pk


@pytest.mark.parametrize("value", ["a\x00b", "\ud800", b"\xff", float("inf"), {b"k": 1}, {"$bytes": "no"}, [None, True, 10**1200]])
def test_every_header_survives_being_stored(value: Any) -> None:
    assert restored(json.loads(json.dumps(storable({"header": value})))) == {"header": value}
