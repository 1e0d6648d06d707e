"""Every receiver gets each message at least once, after any failure on either side. No receiver waits for another one."""

from __future__ import annotations

import os
import signal
import threading
from datetime import timedelta

import pytest
from django.utils import timezone
from standardwebhooks.webhooks import Webhook

from supervision.models import Delivery, WebhookEndpoint
from supervision.outbox import deliveries, status_sender, subscriptions, webhooks
from supervision.outbox.deliveries import Try
from supervision.outbox.status_sender import Sending, deliver_all
from supervision.testing import run_until_idle
from tests.engine import kit as engine_kit
from tests.outbound import kit

pytestmark = pytest.mark.usefixtures("out")

ALL = [(1, "received"), (2, "processing"), (3, "processed")]


@pytest.fixture
def impatient(monkeypatch):
    """A short timeout for receivers that do not answer."""
    monkeypatch.setattr(webhooks, "TRY_SECONDS", 0.3)


@pytest.fixture
def carried():
    """Delivers in the background, as a supervisor process does."""
    carrying = Sending()
    ended = threading.Event()

    def work():
        while not ended.is_set() or carrying.busy:
            carrying.turn(patience=0.01)
        engine_kit.connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    yield carrying
    carrying.stopping = True
    ended.set()
    thread.join(30)
    carrying.close()


def test_what_happened_is_told_once_each_signed_and_noted(receiver):
    endpoint = kit.listen(receiver.url)
    key = kit.done()

    deliver_all()
    deliver_all()

    assert receiver.seen(key) == ALL
    assert len(receiver.messages) == 3
    for message in receiver.messages:
        Webhook(endpoint.secret).verify(message.body, message.headers)
        assert message.id == f"msg_{key}_{message.data['seq']}"
    rows = kit.deliveries()
    assert [(row.tries, row.status_code, row.last_error) for row in rows] == [(1, 204, "")] * 3
    assert all(row.delivered_at and [entry["status_code"] for entry in row.log] == [204] for row in rows)


def test_an_order_is_followed_through_error_and_resubmission(receiver):
    kit.listen(receiver.url)
    kit.toy.BETA.on_perform = lambda request: (_ for _ in ()).throw(kit.PermanentFailure("no"))
    key = kit.order()
    run_until_idle()
    deliver_all()
    kit.toy.BETA.on_perform = None
    kit.operator_verbs.resubmit(key, by="olga", reason="fixed")
    run_until_idle()
    deliver_all()

    assert receiver.seen(key) == [(1, "received"), (2, "processing"), (3, "error"), (4, "processing"), (5, "processed")]


# ------------------------------------------------------------------------------------------- dead and slow ones


def test_a_dead_receiver_delays_nobody_and_gets_everything_later(receivers, carried):
    """The dead receiver accepts requests and sends no answer until the test releases it."""
    dead, living = receivers(), receivers()
    released = dead.hang()
    kit.listen(dead.url)
    kit.listen(living.url, kit.BOB)
    theirs = [kit.done(client=kit.ADA) for _ in range(8)]
    engine_kit.until(lambda: dead.messages)

    ours = [kit.done(client=kit.BOB) for _ in range(8)]

    engine_kit.until(lambda: len(living.messages) == 24)
    assert all(living.seen(key) == ALL for key in ours)
    assert Delivery.objects.filter(client=kit.ADA, delivered_at__isnull=False).count() == 0

    dead.answer = lambda *_: 204
    released.set()
    engine_kit.until(lambda: all(dead.seen(key) == ALL for key in theirs), within=60)


def test_however_many_receivers_are_dead_one_that_answers_finds_a_thread(receivers, carried):
    dead, living = receivers(), receivers()
    released = dead.hang()
    for n in range(2 * status_sender.THREADS):
        kit.listen(dead.url, f"user:{100 + n}")
        kit.order(client=f"user:{100 + n}")
    WebhookEndpoint.objects.update(failures=3)
    kit.listen(living.url)
    engine_kit.until(lambda: not engine_kit.schedule())
    engine_kit.until(lambda: len(dead.messages) == status_sender.THREADS // 2)  # the most threads that failing receivers may have

    key = kit.done()

    engine_kit.until(lambda: living.seen(key) == ALL)
    assert len(dead.messages) == status_sender.THREADS // 2
    released.set()


def test_a_receiver_that_gives_no_answer_is_left_in_peace_with_all_its_messages(receiver, impatient):
    released = receiver.hang()
    kit.listen(receiver.url)
    for _ in range(10):
        kit.done()

    deliver_all()
    released.set()

    assert 1 <= len(receiver.messages) <= status_sender.LANES
    endpoint = WebhookEndpoint.objects.get()
    assert endpoint.failures >= 1
    assert endpoint.retry_at > timezone.now() - timedelta(seconds=1)
    assert Delivery.objects.filter(tries=0, delivered_at__isnull=True).count() >= 30 - status_sender.LANES


def test_the_silence_doubles_and_ends_with_the_first_answer(receiver):
    kit.listen("http://127.0.0.1:9/")  # no server listens there
    kit.order()
    kit.consume_batch(born=False)
    silences = []
    for _ in range(5):
        kit.let_waits_pass()
        deliver_all()
        silences += engine_kit.fetch("SELECT round(extract(epoch FROM retry_at - now())) FROM supervision_webhookendpoint")[0]
    assert [int(silence) for silence in silences] == [5, 10, 20, 40, 60]

    WebhookEndpoint.objects.update(url=receiver.url)
    kit.let_waits_pass()
    deliver_all()

    assert len(receiver.messages) == 1
    endpoint = WebhookEndpoint.objects.get()
    assert (endpoint.failures, endpoint.failing_since, endpoint.retry_at) == (0, None, None)


def test_one_message_that_is_refused_harms_no_other(receiver):
    kit.listen(receiver.url)
    receiver.answer = lambda request, message: 500 if message.data["seq"] == 1 else 204
    key = kit.done()

    deliver_all()

    assert [(row.seq, row.delivered_at is None, row.status_code) for row in Delivery.objects.order_by("seq")] == [
        (1, True, 500),
        (2, False, 204),
        (3, False, 204),
    ]
    assert receiver.seen(key) == ALL


# ------------------------------------------------------------------------------------------------ trying again


def one_failing(receiver) -> Delivery:
    kit.listen(receiver.url, kit.ADA, "order.processed")
    receiver.answer = lambda *_: 503
    kit.done()
    deliver_all()
    return Delivery.objects.get()


def test_a_failed_one_is_tried_again_after_5_seconds_doubling_to_an_hour(receiver):
    one_failing(receiver)
    waits = []
    for _ in range(13):
        waits += engine_kit.fetch("SELECT round(extract(epoch FROM not_before - now())) FROM supervision_delivery")[0]
        kit.let_waits_pass()
        deliver_all()

    assert [int(wait) for wait in waits] == [5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600, 3600]
    assert len({message.id for message in receiver.messages}) == 1
    row = Delivery.objects.get()
    assert (row.tries, len(row.log), row.last_error) == (14, 14, "answered 503")


def test_it_is_not_tried_before_its_time(receiver):
    one_failing(receiver)

    deliver_all()

    assert len(receiver.messages) == 1


def test_after_three_days_it_is_given_up_and_shown(receiver):
    row = one_failing(receiver)
    almost, over = timedelta(days=3) - timedelta(minutes=1), timedelta(days=3)

    for age, given_up in ((almost, False), (over, True)):
        Delivery.objects.update(asked_at=timezone.now() - age)
        kit.let_waits_pass()
        deliver_all()
        row.refresh_from_db()
        assert (row.given_up_at is not None) is given_up

    kit.let_waits_pass()
    deliver_all()
    assert len(receiver.messages) == 3
    assert (row.delivered_at, row.last_error, row.tries) == (None, "answered 503", 3)


def test_what_was_given_up_is_sent_again_on_request_for_another_three_days(receiver):
    row = one_failing(receiver)
    Delivery.objects.update(asked_at=timezone.now() - timedelta(days=4), given_up_at=timezone.now())

    assert subscriptions.redeliver([row.pk], by="olga") == 1
    deliver_all()
    row.refresh_from_db()
    assert (row.tries, row.given_up_at, row.delivered_at) == (1, None, None)

    receiver.answer = lambda *_: 200
    kit.let_waits_pass()
    deliver_all()

    row.refresh_from_db()
    assert (row.tries, row.status_code, row.last_error) == (2, 200, "")
    assert row.delivered_at is not None
    assert [entry.get("asked_by") or entry["status_code"] for entry in row.log] == [503, "olga", 503, 200]
    assert len({(message.id, message.body) for message in receiver.messages}) == 1


def test_the_log_of_a_delivery_keeps_its_newest_entries(receiver, monkeypatch):
    """A client may ask as often as it likes."""
    monkeypatch.setattr(deliveries, "LOGGED", 4)
    row = one_failing(receiver)
    for number in range(4):
        assert subscriptions.redeliver([row.pk], by=f"ada {number}") == 1
        deliver_all()

    row.refresh_from_db()
    assert [entry.get("asked_by") or entry["status_code"] for entry in row.log] == ["ada 2", 503, "ada 3", 503]


def test_what_was_delivered_can_be_sent_again_too(receiver):
    kit.listen(receiver.url, kit.ADA, "order.processed")
    kit.done()
    deliver_all()

    assert subscriptions.redeliver([row.pk for row in kit.deliveries()], by="ada") == 1
    deliver_all()

    assert len(receiver.messages) == 2
    assert len({message.id for message in receiver.messages}) == 1


def test_what_has_lost_its_receiver_is_given_up_and_cannot_be_sent_again(receiver):
    row = one_failing(receiver)
    subscriptions.remove_webhook(WebhookEndpoint.objects.get())
    kit.let_waits_pass()
    deliver_all()

    row.refresh_from_db()
    assert (row.given_up_at is not None, row.last_error) == (True, "the webhook was removed")
    assert subscriptions.redeliver([row.pk], by="olga") == 0
    assert WebhookEndpoint.objects.get().secret == ""
    assert len(receiver.messages) == 1


def test_a_webhook_that_is_switched_off_gets_what_it_missed_when_it_is_switched_on(receiver):
    kit.listen(receiver.url)
    key = kit.done()
    deliveries.fan_out()
    WebhookEndpoint.objects.update(active=False)
    deliver_all()
    assert receiver.messages == []

    WebhookEndpoint.objects.update(active=True)
    deliver_all()

    assert receiver.seen(key) == ALL


def test_a_webhook_that_is_switched_off_for_a_while_misses_nothing_of_the_orders_under_way(receiver):
    kit.listen(receiver.url)
    key = kit.order()
    kit.consume_batch(born=False)
    WebhookEndpoint.objects.update(active=False)
    run_until_idle()
    deliver_all()
    assert receiver.messages == []

    WebhookEndpoint.objects.update(active=True)
    deliver_all()

    assert receiver.seen(key) == ALL


@pytest.mark.parametrize(("days", "left"), [(2, 3), (4, 0)])
def test_what_waits_for_a_receiver_that_was_dead_or_switched_off_for_three_days_is_given_up(receiver, days, left):
    dead, off = kit.listen("http://127.0.0.1:9/"), kit.listen(receiver.url, kit.BOB)
    kit.done()
    kit.done(client=kit.BOB)
    deliveries.fan_out()
    then = timezone.now() - timedelta(days=days)
    Delivery.objects.update(asked_at=then)
    WebhookEndpoint.objects.filter(pk=dead.pk).update(failing_since=then, failures=50, retry_at=timezone.now() + timedelta(hours=1))
    WebhookEndpoint.objects.filter(pk=off.pk).update(active=False)

    deliver_all()

    for endpoint in (dead, off):
        assert Delivery.objects.filter(endpoint=endpoint, given_up_at__isnull=True).count() == left


def test_what_is_old_because_nobody_was_there_to_send_it_gets_its_try(receiver):
    kit.listen(receiver.url)
    key = kit.done()
    deliveries.fan_out()
    Delivery.objects.update(asked_at=timezone.now() - timedelta(days=9))

    deliver_all()

    assert receiver.seen(key) == ALL


# ------------------------------------------------------------------------------------- failures of the sender


def test_killed_between_sending_and_writing_down_it_sends_again_under_the_same_id(receiver):
    """The receiver kills the sender after it got the message and before it answers."""
    kit.listen(receiver.url, kit.ADA, "order.processed")
    kit.done()
    sender = kit.deliverer()

    def kill(request, message):
        os.kill(sender.pid, signal.SIGKILL)
        sender.wait(20)
        return 204

    receiver.answer = kill
    assert sender.wait(60) == -signal.SIGKILL
    (first,) = receiver.messages
    row = Delivery.objects.get()
    assert (row.delivered_at, row.tries, row.attempt) == (None, 0, 1)

    receiver.answer = lambda *_: 204
    deliver_all()
    assert len(receiver.messages) == 1  # the dead sender still holds the lease
    kit.let_waits_pass()
    deliver_all()

    assert [message.id for message in receiver.messages] == [first.id] * 2
    assert receiver.messages[1].body == first.body
    assert Delivery.objects.get().delivered_at is not None


def test_two_deliverers_at_once_send_each_message_once(receiver):
    kit.listen(receiver.url)
    for _ in range(10):
        kit.done()

    engine_kit.at_once(*[deliver_all] * 3)

    ids = [message.id for message in receiver.messages]
    assert len(ids) == len(set(ids)) == 30
    assert Delivery.objects.filter(delivered_at__isnull=True).count() == 0


def test_whoever_has_lost_a_lease_writes_nothing_down(receiver):
    kit.listen(receiver.url, kit.ADA, "order.processed")
    kit.done()
    deliveries.fan_out()
    ((late,),) = deliveries.claim_webhooks(1, 1, suspect=False).values()
    kit.let_waits_pass()
    ((now,),) = deliveries.claim_webhooks(1, 1, suspect=False).values()

    assert deliveries.record([Try(late, delivered=True, answered=True, status_code=200)]) == 0
    deliveries.release([late])
    assert deliveries.claim_webhooks(1, 1, suspect=False) == {}
    assert Delivery.objects.get().delivered_at is None

    assert deliveries.record([Try(now, delivered=True, answered=True, status_code=200)]) == 1
    assert Delivery.objects.get().delivered_at is not None
