"""The outbox: told after the commit, at least once, by mail through a real SMTP server; one failing receiver harms nobody."""

from __future__ import annotations

import socket

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message
from django.core import mail

from supervision import notifications
from supervision.models import Alert, Notification
from supervision.testing import run_of, step
from tests.support import toy

from . import kit

pytestmark = pytest.mark.usefixtures("engine")


class Mailbox(Message):
    """Keeps what arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.mails: list = []

    def handle_message(self, message) -> None:
        self.mails.append(message)


@pytest.fixture
def mailbox(settings, tuned):
    """A real SMTP server on a free port, which the settings name; the operators' address."""
    box = Mailbox()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = Controller(box, hostname="127.0.0.1", port=port)
    server.start()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", port
    settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
    tuned(OPERATOR_EMAILS=("ops@shop.example",))
    yield box.mails
    server.stop()


@pytest.fixture
def told():
    """A kind of notification of this test's own; what was told."""
    kinds: list[int] = []
    notifications.handler("test-kind")(lambda notification: kinds.append(notification.pk))
    yield kinds
    notifications._handlers.pop("test-kind")


def make(kind: str = "test-kind", **fields) -> Notification:
    return Notification.objects.create(kind=kind, **fields)


def later(pk: int) -> None:
    """Let the back-off of this notification pass."""
    Notification.objects.filter(pk=pk).update(not_before="2000-01-01T00:00Z")


def test_what_is_due_is_told_once(told):
    first = make()

    assert notifications.deliver_due() == 1
    assert notifications.deliver_due() == 0

    assert told == [first.pk]
    assert Notification.objects.get().delivered_at is not None


def test_what_is_not_due_is_not_told(told):
    make(not_before="2999-01-01T00:00Z")

    assert notifications.deliver_due() == 0
    assert told == []


def test_a_receiver_that_fails_is_told_again_later_and_harms_nobody(told):
    tries: list[int] = []

    @notifications.handler("fails-first")
    def fails_first(notification):
        tries.append(notification.pk)
        if len(tries) == 1:
            raise ConnectionError("no route")

    sick, healthy = make("fails-first"), make()

    assert notifications.deliver_due() == 1
    sick.refresh_from_db()
    assert (sick.delivered_at, sick.tries, sick.last_error) == (None, 1, "no route")
    assert told == [healthy.pk]
    assert notifications.deliver_due() == 0

    later(sick.pk)
    assert notifications.deliver_due() == 1
    sick.refresh_from_db()
    assert (sick.last_error, sick.tries) == ("", 2)
    assert sick.delivered_at is not None


def test_a_receiver_that_takes_its_time_does_not_keep_the_supervisor(told):
    for _ in range(3):
        make()

    assert notifications.deliver_due(patience=0.0) == 1
    assert notifications.deliver_due() == 2


def test_a_receivers_words_that_cannot_be_kept_harm_nobody(told):
    @notifications.handler("odd-words")
    def fails(notification):
        raise ConnectionError("bad \x00 \udc80")

    make("odd-words")
    make()

    assert notifications.deliver_due() == 1
    assert len(told) == 1


def test_a_kind_nobody_delivers_stays_with_its_reason_and_harms_nobody(told):
    unknown = make("pigeon-post")
    make()

    assert notifications.deliver_due() == 1
    unknown.refresh_from_db()
    assert unknown.delivered_at is None
    assert "pigeon-post" in unknown.last_error


def test_two_who_deliver_at_once_tell_each_thing_once(told):
    for _ in range(40):
        make()

    answers = kit.at_once(*[lambda: notifications.deliver_due()] * 4)

    assert sum(answers) == 40
    assert len(set(told)) == len(told) == 40


def test_waits_grow_with_every_failure():
    pk = make("pigeon-post").pk
    waits = []
    for _ in range(4):
        later(pk)
        notifications.deliver_due()
        waits += kit.fetch("SELECT round(extract(epoch FROM not_before - now())) FROM supervision_notification")[0]

    assert [int(wait) for wait in waits] == [5, 10, 20, 40]


def test_an_alert_is_mailed_once_with_the_order_the_step_and_the_reason(mailbox):
    key = kit.in_error(1)

    assert notifications.deliver_due() == 1
    assert notifications.deliver_due() == 0

    (message,) = mailbox
    alert = Alert.objects.get()
    assert message["To"] == "ops@shop.example"
    assert message["X-Alert-ID"] == str(alert.pk)
    assert message["Message-ID"].startswith(f"<alert-{alert.pk}-{key}@")
    assert key in message["Subject"]
    assert "refused" in message.get_payload()


def test_a_mail_the_server_did_not_take_is_sent_again_under_the_same_id(mailbox, settings):
    kit.in_error(1)
    port, settings.EMAIL_PORT = settings.EMAIL_PORT, 1

    assert notifications.deliver_due() == 0
    settings.EMAIL_PORT = port
    later(Notification.objects.get().pk)

    assert notifications.deliver_due() == 1
    assert len({message["Message-ID"] for message in mailbox}) == 1


def test_every_alert_has_a_mail_of_its_own(mailbox):
    keys = [kit.in_error(0) for _ in range(3)]

    notifications.deliver_due()

    assert len(mailbox) == len({message["Message-ID"] for message in mailbox}) == len(keys)


def test_an_alert_is_told_to_nobody_where_no_operator_has_an_address():
    kit.in_error(0)

    assert notifications.deliver_due() == 1
    assert mail.outbox == []


def test_a_rolled_back_error_tells_nobody():
    key, place, items = kit.started("toy")
    with kit.transaction.atomic():
        kit.recovery.fail(place, [(items[0].claim, kit.refusal())])
        kit.transaction.set_rollback(True)

    assert (Notification.objects.count(), Alert.objects.count()) == (0, 0)
    assert (run_of(key).process_state, step(key, "alpha-step").process_state) == ("Processing", "Processing")
    assert toy.TOLD["error"] == [key]  # a hook writes in the transaction; what it keeps elsewhere is its own affair
