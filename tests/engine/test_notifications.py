"""The outbox: after the commit and at least once, by mail through a real SMTP server; a failing receiver delays no other."""

from __future__ import annotations

import smtplib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message
from django.core import mail
from django.db.models import F
from django.utils import timezone

from supervision.models import Alert, Incident, Notification
from supervision.outbox import notifications
from supervision.testing import run_of, step
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


class Mailbox(Message):
    """Keeps the mails that arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.mails: list = []

    def handle_message(self, message) -> None:
        self.mails.append(message)


@contextmanager
def listening(box: Mailbox, settings: Any, tuned: Any) -> Iterator[None]:
    """A real SMTP server on a free port, in the settings; OPERATOR_EMAILS has one address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = Controller(box, hostname="127.0.0.1", port=port)
    server.start()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", port
    settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
    tuned(OPERATOR_EMAILS=("ops@shop.example",))
    yield
    server.stop()


@pytest.fixture
def mailbox(settings, tuned):
    """The mails that arrive at a real SMTP server."""
    box = Mailbox()
    with listening(box, settings, tuned):
        yield box.mails


def make(kind: str = "test-kind", **fields) -> Notification:
    return Notification.objects.create(kind=kind, **fields)


def later(pk: int) -> None:
    """Let the back-off of this notification pass."""
    Notification.objects.filter(pk=pk).update(not_before="2000-01-01T00:00Z")


def test_what_is_due_is_told_once(noted):
    first = make()

    assert notifications.deliver_due() == 1
    assert notifications.deliver_due() == 0

    assert noted == [first.pk]
    assert Notification.objects.get().delivered_at is not None


def test_what_is_not_due_is_not_told(noted):
    make(not_before="2999-01-01T00:00Z")

    assert notifications.deliver_due() == 0
    assert noted == []


def test_a_receiver_that_fails_is_told_again_later_and_harms_nobody(noted):
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
    assert noted == [healthy.pk]
    assert notifications.deliver_due() == 0

    later(sick.pk)
    assert notifications.deliver_due() == 1
    sick.refresh_from_db()
    assert (sick.last_error, sick.tries) == ("", 2)
    assert sick.delivered_at is not None


def test_a_receiver_that_takes_its_time_does_not_keep_the_supervisor(noted):
    for _ in range(3):
        make()

    assert notifications.deliver_due(patience=0.0) == 1
    assert notifications.deliver_due() == 2


def test_a_receivers_words_that_cannot_be_kept_harm_nobody(noted):
    @notifications.handler("odd-words")
    def fails(notification):
        raise ConnectionError("bad \x00 \udc80")

    make("odd-words")
    make()

    assert notifications.deliver_due() == 1
    assert len(noted) == 1


@pytest.mark.parametrize("lane", [None, notifications.OTHERS])
def test_a_kind_that_only_a_newer_release_knows_is_left_to_that_and_harms_no_other(noted, lane):
    unknown = make("pigeon-post", not_before="2020-01-01T00:00Z")
    make()

    assert notifications.deliver_due(lane=lane) == 1
    unknown.refresh_from_db()
    assert (unknown.tries, unknown.last_error, unknown.delivered_at) == (0, "", None)
    assert unknown.not_before.year == 2020  # due for the newer release at once
    assert kit.incidents() == ["delivery_failed:pigeon-post"]
    assert "no process that runs knows this kind" in Incident.objects.get().title


def test_a_kind_that_is_not_known_here_is_no_incident_while_a_newer_release_is_rolled_out():
    make("pigeon-post")

    assert (notifications.deliver_due(), kit.incidents()) == (0, [])


def test_two_who_deliver_at_once_tell_each_thing_once(noted):
    for _ in range(40):
        make()

    answers = kit.at_once(*[lambda: notifications.deliver_due()] * 4)

    assert sum(answers) == 40
    assert len(set(noted)) == len(noted) == 40


def test_what_takes_long_to_deliver_is_not_begun_by_another_meanwhile():
    begun: list[int] = []

    @notifications.handler("slow")
    def slow(notification):
        begun.append(notification.pk)
        Notification.objects.update(not_before=F("not_before") - timedelta(seconds=90))  # it takes as long as that
        if len(begun) == 1:
            notifications.deliver_due()  # another process looks

    make("slow")

    assert notifications.deliver_due() == 1
    assert len(begun) == 1


def test_a_failure_that_comes_after_the_lease_leaves_the_next_try_alone():
    @notifications.handler("slow")
    def slow(notification):
        later(notification.pk)
        kit.fetch(notifications._CLAIM, {"kinds": notifications.kinds_of(), "lease": 120.0})  # another process tries now
        raise ConnectionError("late")

    make("slow")

    assert notifications.deliver_due() == 0
    assert notifications.deliver_due() == 0
    row = Notification.objects.get()
    assert (row.tries, row.last_error) == (2, "")


def test_what_a_frozen_process_delivers_after_another_gave_it_up_is_no_incident():
    @notifications.handler("slow", within=timedelta(days=3))
    def slow(notification):
        later(notification.pk)
        (claimed,) = kit.fetch(notifications._CLAIM, {"kinds": notifications.kinds_of(), "lease": 120.0})
        refused = {"id": claimed[0], "tries": claimed[1], "error": "unknown user", "refused": True, "within": 1.0, "longest": 3600}
        kit.fetch(notifications._FAILED, refused)

    make("slow")

    assert notifications.deliver_due() == 1
    row = Notification.objects.get()
    assert (row.delivered_at is None, row.given_up_at, row.last_error) == (False, None, "")


def test_waits_grow_with_every_failure():
    notifications.handler("no-way")(kit.raising(ConnectionError("no route")))
    pk = make("no-way").pk
    waits = []
    for _ in range(4):
        later(pk)
        notifications.deliver_due()
        waits += kit.fetch("SELECT round(extract(epoch FROM not_before - now())) FROM supervision_notification")[0]

    assert [int(wait) for wait in waits] == [5, 10, 20, 40]


def test_an_incident_is_mailed_once_with_a_link_and_what_it_holds(mailbox, settings):
    settings.PUBLIC_URL = "https://orders.example"
    kit.in_error(1)
    kit.looked()

    assert notifications.deliver_due() == 1
    assert notifications.deliver_due() == 0

    (message,) = mailbox
    incident = Incident.objects.get()
    assert message["To"] == "ops@shop.example"
    assert message["X-Incident-ID"] == str(incident.pk)
    assert "beta-step fails: refused" in message["Subject"]
    body = message.get_payload()
    assert f"https://orders.example/admin/supervision/incident/{incident.pk}/" in body
    assert "It holds 1 order." in body


def test_a_mail_the_server_did_not_take_is_sent_again_under_the_same_id(mailbox, settings):
    kit.in_error(1)
    kit.looked()
    port, settings.EMAIL_PORT = settings.EMAIL_PORT, 1

    assert notifications.deliver_due() == 0
    settings.EMAIL_PORT = port
    later(Notification.objects.get().pk)

    assert notifications.deliver_due() == 1
    assert len({message["Message-ID"] for message in mailbox}) == 1


def test_three_orders_with_one_cause_are_one_mail(mailbox):
    for _ in range(3):
        kit.in_error(0)
    kit.looked()

    notifications.deliver_due()

    assert ["It holds 3 orders." in message.get_payload() for message in mailbox] == [True]


def test_much_at_once_is_told_in_one_mail(mailbox):
    for number in range(25):
        Alert.objects.create(run_id=run_of(kit.in_error(0)).pk, position=1, direction="do", generation=1, kind="skipped", code=f"c{number}")
    kit.looked()

    notifications.deliver_due()

    (message,) = mailbox
    assert message["Subject"] == "26 incidents have opened"
    assert message.get_payload().count("/admin/supervision/incident/") == 26


def test_an_incident_is_told_to_nobody_where_no_operator_has_an_address():
    kit.in_error(0)
    kit.looked()

    assert notifications.deliver_due() == 1
    assert mail.outbox == []


def test_an_alert_that_an_older_version_put_into_the_outbox_does_not_stay_there(mailbox):
    make("alert", payload={"alert": 1})
    make("journal-trouble", payload={"key": "k", "message": "m"})

    assert notifications.deliver_due() == 2
    assert mailbox == []


# ------------------------------------------------------------------------------------------------- giving up


class Refusing(Mailbox):
    """A server that answers every recipient with this code."""

    code = "550 5.1.1 no such user"

    async def handle_RCPT(self, server, session, envelope, address, rcpt_options):  # noqa: N802 - aiosmtpd's name
        return self.code


@pytest.fixture
def refusing(settings, tuned):
    """A mail server that refuses all recipients; set `.code` to say how."""
    box = Refusing()
    with listening(box, settings, tuned):
        yield box


def given_up() -> list[bool]:
    return [row.given_up_at is not None for row in Notification.objects.order_by("pk")]


def test_a_mail_refused_for_good_is_given_up_after_the_first_answer_and_is_an_incident(refusing):
    kit.in_error(0)
    kit.looked()

    assert notifications.deliver_due() == 0

    assert given_up() == [True]
    later(Notification.objects.get().pk)
    assert notifications.deliver_due() == 0
    assert Notification.objects.get().tries == 1
    assert "delivery_failed:notifications" in kit.incidents()


def test_a_mail_refused_for_now_is_tried_for_three_days(refusing):
    refusing.code = "451 4.7.1 come back later"
    kit.in_error(0)
    kit.looked()

    notifications.deliver_due()
    assert given_up() == [False]

    Notification.objects.update(not_before="2000-01-01T00:00Z", created_at=timezone.now() - timedelta(days=3, minutes=1))
    notifications.deliver_due()
    assert given_up() == [True]


def test_a_kind_without_a_limit_is_never_given_up():
    @notifications.handler("patient")
    def fails(notification):
        raise smtplib.SMTPRecipientsRefused({"x@shop.example": (550, b"no")})

    make("patient", created_at=timezone.now() - timedelta(days=30))

    notifications.deliver_due()

    assert given_up() == [False]


@pytest.mark.parametrize(
    "error",
    [
        smtplib.SMTPRecipientsRefused({"zoe.quoxley@canary.example": (550, b"5.1.1 <zoe.quoxley@canary.example>: no such mailbox")}),
        smtplib.SMTPDataError(554, b"5.7.1 zoe.quoxley@canary.example is not wanted"),
    ],
)
def test_the_address_that_a_mail_server_refused_is_neither_logged_nor_kept(caplog, error):
    @notifications.handler("refused", within=timedelta(days=3))
    def fails(notification):
        raise error

    make("refused")

    notifications.deliver_due()

    kept = Notification.objects.get().last_error
    assert "5." in kept
    assert kept in caplog.text
    assert "quoxley" not in kept + caplog.text


def test_wrong_credentials_are_ours_to_mend_and_give_nothing_up():
    @notifications.handler("unauthorised", within=timedelta(days=3))
    def fails(notification):
        raise smtplib.SMTPAuthenticationError(535, b"who are you")

    make("unauthorised")

    notifications.deliver_due()

    assert given_up() == [False]


def test_a_rolled_back_error_tells_nobody():
    key, place, items = kit.started("toy")
    with kit.transaction.atomic():
        kit.failures.fail(place, [(items[0].claim, kit.refusal())])
        kit.transaction.set_rollback(True)

    assert (Notification.objects.count(), Alert.objects.count(), kit.incidents()) == (0, 0, [])
    assert (run_of(key).process_state, step(key, "alpha-step").process_state) == ("Processing", "Processing")
    assert toy.TOLD["error"] == [key]  # a hook writes in the transaction; a rollback does not reach what it keeps elsewhere
