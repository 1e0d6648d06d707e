"""The supervisor's delivery threads: the database wakes them at once, and no delivery delays a sweep or an alert."""

from __future__ import annotations

import threading

import pytest
from django.db.models.functions import Now

from supervision import tasks
from supervision.models import Delivery, Notification
from supervision.outbox import delivery_worker, notifications, webhooks
from supervision.outbox.delivery_worker import DeliveryWorker
from supervision.outbox.status_sender import deliver_all
from supervision.worker import consumption_check
from tests.engine import kit as engine_kit
from tests.outbound import kit

pytestmark = pytest.mark.usefixtures("out")
ALL = [(1, "received"), (2, "processing"), (3, "processed")]


@pytest.fixture
def working():
    """The running delivery worker of a supervisor process."""
    mine = DeliveryWorker().start()
    listening = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND query = 'LISTEN supervision_outbox'"
    engine_kit.until(lambda: engine_kit.fetch(listening))
    yield mine
    mine.stop()
    assert mine.join(30)


def test_a_status_message_goes_out_when_its_transition_is_committed(receiver, working):
    kit.listen(receiver.url)

    key = kit.done()

    engine_kit.until(lambda: receiver.seen(key) == ALL, within=20)
    engine_kit.until(lambda: Delivery.objects.filter(delivered_at__isnull=False).count() == 3)


def test_a_connection_that_cannot_be_closed_takes_no_message_and_no_thread_away(receiver, monkeypatch):
    def fails(_: webhooks.Caller) -> None:
        raise OSError("the connection was reset")

    monkeypatch.setattr(webhooks.Caller, "close", fails)
    kit.listen(receiver.url)
    first = kit.done()
    deliver_all()
    second = kit.done()
    deliver_all()

    assert (receiver.seen(first), receiver.seen(second)) == (ALL, ALL)
    assert not Delivery.objects.filter(delivered_at__isnull=True).exists()


def test_an_alert_goes_out_while_every_webhook_hangs(receiver, working, noted):
    released = receiver.hang()
    kit.listen(receiver.url)
    kit.done()
    engine_kit.until(lambda: receiver.messages)

    alert = Notification.objects.create(kind="test-kind")

    engine_kit.until(lambda: noted == [alert.pk])
    assert Delivery.objects.filter(delivered_at__isnull=False).count() == 0
    released.set()


class Held:
    """A handler that keeps its thread until `released`. asked: it has been called."""

    def __init__(self, kind: str, *, calls: bool) -> None:
        self.asked, self.released = threading.Event(), threading.Event()
        notifications.handler(kind, calls=calls)(self.deliver)

    def deliver(self, _notification: Notification) -> None:
        self.asked.set()
        self.released.wait(60)


@pytest.fixture
def service():
    """A service that keeps the handler of "test-call" waiting. Registered before the worker starts, as handlers are."""
    held = Held("test-call", calls=True)
    yield held
    held.released.set()
    notifications._handlers.pop("test-call")


@pytest.fixture
def mail_server(noted):
    """A mail server that keeps the handler of "test-kind" waiting."""
    held = Held("test-kind", calls=False)
    yield held
    held.released.set()


def test_a_mail_goes_out_while_a_service_keeps_a_handler_waiting(noted, service, working):
    slow = [Notification.objects.create(kind="test-call").pk for _ in range(2)]
    engine_kit.until(service.asked.is_set)

    mail = Notification.objects.create(kind="test-kind")

    engine_kit.until(lambda: noted == [mail.pk])
    assert not Notification.objects.filter(pk__in=slow, delivered_at__isnull=False).exists()
    service.released.set()
    engine_kit.until(lambda: Notification.objects.filter(pk__in=slow, delivered_at__isnull=False).count() == 2)


def test_a_mail_to_operators_goes_out_while_many_others_wait(noted, mail_server):
    """Otherwise it would be sent after the mails of all orders that were cancelled before."""
    for _ in range(50):
        Notification.objects.create(kind="test-kind")
    sent = threading.Event()
    notifications.handler("test-soon", soon=True)(lambda _: sent.set())
    mine = DeliveryWorker().start()
    engine_kit.until(mail_server.asked.is_set)

    Notification.objects.create(kind="test-soon")

    engine_kit.until(sent.is_set)
    assert Notification.objects.filter(kind="test-kind", delivered_at__isnull=False).count() == 0
    mine.stop()
    mail_server.released.set()
    assert mine.join(30)
    notifications.handler("test-soon")(lambda _: None)
    notifications._handlers.pop("test-soon")


def test_a_hook_is_called_again_while_many_mails_wait(noted, monkeypatch):
    seen = []
    monkeypatch.setattr(delivery_worker.hooks, "retry_due", lambda: seen.append(len(noted)) or 0)
    for _ in range(250):
        Notification.objects.create(kind="test-kind")

    DeliveryWorker()._tell()

    assert seen[0] < len(noted) == 250


def test_a_call_of_a_service_goes_out_while_a_mail_server_keeps_a_mail_waiting(service, mail_server, working):
    service.released.set()
    for _ in range(2):
        Notification.objects.create(kind="test-kind")
    engine_kit.until(mail_server.asked.is_set)

    Notification.objects.create(kind="test-call")

    engine_kit.until(service.asked.is_set)
    mail_server.released.set()


def test_what_was_due_before_it_began_goes_out_too(receiver, noted):
    kit.listen(receiver.url)
    key = kit.done()
    note = Notification.objects.create(kind="test-kind")

    late = DeliveryWorker().start()

    engine_kit.until(lambda: noted == [note.pk] and len(receiver.seen(key)) == 3)
    late.stop()
    assert late.join(30)


def test_what_is_on_its_way_at_the_end_is_written_down_and_nothing_else_is_begun(receiver):
    released = receiver.hang()
    kit.listen(receiver.url)
    mine = DeliveryWorker().start()
    kit.done()
    engine_kit.until(lambda: receiver.messages)

    mine.stop()
    started = len(receiver.messages)
    released.set()

    assert mine.join(30)
    assert Delivery.objects.filter(delivered_at__isnull=False).count() == len(receiver.messages)
    assert len(receiver.messages) <= started + 3
    assert not Delivery.objects.filter(delivered_at__isnull=True, not_before__gt=Now()).exists()  # the claims were given back


def test_a_mail_and_a_call_on_their_way_at_the_end_are_written_down(service, mail_server):
    """Otherwise they would be sent again by another process."""
    for kind in ("test-kind", "test-call"):
        Notification.objects.create(kind=kind)
    mine = DeliveryWorker().start()
    engine_kit.until(lambda: mail_server.asked.is_set() and service.asked.is_set())

    mine.stop()
    threading.Timer(0.3, lambda: (mail_server.released.set(), service.released.set())).start()

    assert mine.join(30)
    assert Notification.objects.filter(delivered_at__isnull=False).count() == 2


def test_a_sweep_waits_for_no_receiver(receiver, noted, monkeypatch):
    released = receiver.hang()
    kit.listen(receiver.url)
    kit.done()
    hanging = threading.Event()
    notifications.handler("test-kind")(lambda notification: hanging.wait(60))
    Notification.objects.create(kind="test-kind")
    monkeypatch.setattr(consumption_check, "send_round", lambda: 0)

    try:
        for _ in range(10):
            tasks.sweep()
        engine_kit.until(lambda: receiver.messages)
        tasks.sweep()
        tasks.deliver()

        assert not released.is_set()
        assert Notification.objects.get(kind="test-kind").delivered_at is None
    finally:
        released.set()
        hanging.set()
        delivery_worker.stop(30)
