"""Operators' channels: told of an incident once when it opens, once when it closes, and again when it gets worse."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from django.core.management import CommandError, call_command
from django.db.models import F
from django.test import Client
from standardwebhooks.webhooks import Webhook

from supervision.incidents import lifecycle
from supervision.incidents.lifecycle import Cause
from supervision.models import Channel, Incident, Telling
from supervision.operations import operator_verbs
from supervision.outbox import channels
from supervision.postgres import db
from tests.engine.kit import until
from tests.outbound.kit import BROKEN, Sink

pytestmark = pytest.mark.usefixtures("here")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
SECRET = "whsec_" + "c2VjcmV0IG9mIHRlc3Rz"
NAME = "<!channel> & <https://evil.example|click>"


@pytest.fixture
def stands(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`stands("a", "b")`: these causes stand now, and no other of this kind; a look finds them."""
    found: list[Cause] = []
    monkeypatch.setattr(lifecycle, "_detectors", {"outage": lambda: list(found)})

    def call(*names: str, severity: str = "warning") -> None:
        found[:] = [Cause(kind="outage", key=f"outage:{name}", title=f"{name} is away", severity=severity, orders=3) for name in names]
        lifecycle.look()

    return call


def send_all() -> None:
    """Send what is due to each channel, as the process of the supervisor's role does."""
    for channel in Channel.objects.all():
        while channels.send_next(channel.pk):
            pass


def test_a_pagerduty_event_is_triggered_acknowledged_and_resolved_under_one_key(sink: Sink, stands: Any):
    Channel.objects.create(name="pager", kind="pagerduty", address=sink.url, secret="R" * 32)

    stands("bank")
    incident = Incident.objects.get()
    operator_verbs.acknowledge_incident(incident.pk, by="olga", reason="I look")
    operator_verbs.acknowledge_incident(incident.pk, by="bob", reason="me too")
    stands()
    send_all()

    assert [body["event_action"] for body in sink.bodies] == ["trigger", "acknowledge", "resolve"]
    assert {body["dedup_key"] for body in sink.bodies} == {f"shop.example/incident/{incident.pk}"}
    trigger = sink.bodies[0]
    assert (trigger["routing_key"], trigger["payload"]["severity"], trigger["payload"]["class"]) == ("R" * 32, "warning", "outage")
    assert trigger["links"][0]["href"] == f"https://shop.example/admin/supervision/incident/{incident.pk}/change/"


def test_a_webhook_is_signed_and_carries_a_stable_id(sink: Sink, stands: Any):
    Channel.objects.create(name="hook", kind="webhook", address=sink.url, secret=SECRET)
    sink.answer = 500

    stands("bank")
    send_all()
    Telling.objects.update(not_before="2020-01-01T00:00Z")
    Channel.objects.update(retry_at=None)
    sink.answer = 204
    send_all()

    (first, body), (second, again) = sink.got
    assert Webhook(SECRET).verify(json.dumps(body), second) == again
    assert first["webhook-id"] == second["webhook-id"]
    assert (body["type"], body["data"]["incident"], body["data"]["orders"]) == ("incident.opened", Incident.objects.get().pk, 3)
    row = Telling.objects.get()
    assert [(each["try"], each["status"]) for each in row.log] == [(1, 500), (2, 204)]
    assert (row.status_code, row.delivered_at is not None, Channel.objects.get().failing_since) == (204, True, None)


def test_slack_gets_a_text_in_which_names_mention_no_one(sink: Sink, stands: Any):
    Channel.objects.create(name="slack", kind="slack", secret=sink.url)

    stands(NAME)
    send_all()

    ((headers, body),) = sink.got
    assert "&lt;!channel&gt; &amp; &lt;https://evil.example|click&gt; is away" in body["text"]
    assert body["text"].count("<") == 1
    assert f"<https://shop.example/admin/supervision/incident/{Incident.objects.get().pk}/change/|" in body["text"]
    assert "webhook-signature" not in headers


def test_a_mail_channel_sends_by_smtp(settings: Any, stands: Any):
    class Kept:
        mails: list[Any] = []

        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802 - aiosmtpd's name
            self.mails.append(envelope)
            return "250 OK"

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = Controller(Kept(), hostname="127.0.0.1", port=port)
    server.start()
    try:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", port
        settings.EMAIL_HOST_USER = settings.EMAIL_HOST_PASSWORD = ""
        settings.EMAIL_USE_TLS = settings.EMAIL_USE_SSL = False
        Channel.objects.create(name="night", kind="mail", address="night@shop.example, day@shop.example")

        stands("bank")
        send_all()
    finally:
        server.stop()

    (envelope,) = Kept.mails
    assert envelope.rcpt_tos == ["night@shop.example", "day@shop.example"]
    assert b"bank is away" in envelope.content
    assert b"https://shop.example/admin/supervision/incident/" in envelope.content


def test_each_channel_is_told_as_the_rules_say_and_of_what_it_is_routed(stands: Any):
    every = Channel.objects.create(name="every", kind="slack", secret="https://a.example/")
    critical = Channel.objects.create(name="critical", kind="slack", secret="https://b.example/", least="critical")
    other = Channel.objects.create(name="other", kind="slack", secret="https://c.example/", kinds=["dead_letters"])
    off = Channel.objects.create(name="off", kind="slack", secret="https://d.example/", active=False)

    stands("bank", severity="info")
    assert not Telling.objects.exists()
    for severity in ("warning", "warning", "critical", "critical", "warning"):
        stands("bank", severity=severity)
    stands()
    stands()

    said = {channel: list(channel.tellings.order_by("pk").values_list("event", flat=True)) for channel in (every, critical, other, off)}
    assert said == {every: ["opened", "worse", "closed"], critical: ["worse", "closed"], other: [], off: []}


def test_the_messages_commit_with_the_incident(stands: Any, monkeypatch: pytest.MonkeyPatch):
    Channel.objects.create(name="slack", kind="slack", secret="https://a.example/")
    monkeypatch.setattr(lifecycle, "NOTIFY", "SELECT 1/0")

    with pytest.raises(Exception, match="zero"):
        stands("bank")

    assert (Incident.objects.count(), Telling.objects.count()) == (0, 0)


def test_a_dead_channel_delays_no_other_and_is_shown(sink: Sink, stands: Any, operator: Client):
    held = threading.Event()
    dead = Sink()
    dead.answer = lambda: (held.wait(60), 500)[1]
    Channel.objects.create(name="a-dead", kind="slack", secret=dead.url)
    good = Channel.objects.create(name="good", kind="slack", secret=sink.url)
    lane = channels.Lane()
    try:
        stands("bank", "carrier")
        lane.turn()
        until(lambda: good.tellings.filter(delivered_at__isnull=False).count() == 2)
        assert Channel.objects.get(name="a-dead").tellings.filter(delivered_at__isnull=False).count() == 0
    finally:
        held.set()
        lane.drain()
        dead.server.shutdown()
        dead.server.server_close()

    failing = Channel.objects.get(name="a-dead")
    assert (failing.failures, failing.last_error) == (1, "answered 500")
    Channel.objects.filter(pk=failing.pk).update(failing_since="2020-01-01T00:00Z")
    page = operator.get("/admin/supervision/channel/").content.decode()
    assert "failing since 2020-01-01" in page


def test_a_channel_that_fails_for_long_is_an_incident_that_only_the_others_are_told_of():
    dead = Channel.objects.create(name="dead", kind="slack", secret="https://a.example/", failing_since="2020-01-01T00:00Z")
    good = Channel.objects.create(name="good", kind="slack", secret="https://b.example/")

    lifecycle.look()

    assert Incident.objects.get().kind == "channel_failed"
    assert [row.channel for row in Telling.objects.all()] == [good]
    assert dead.tellings.count() == 0


def test_the_end_is_not_told_before_the_beginning(sink: Sink, stands: Any):
    Channel.objects.create(name="pager", kind="pagerduty", address=sink.url, secret="R" * 32)
    stands("bank")
    sink.answer = 500
    send_all()
    sink.answer = 202
    stands()
    Channel.objects.update(retry_at=None)

    send_all()
    assert [body["event_action"] for body in sink.bodies] == ["trigger"]
    Telling.objects.update(not_before="2020-01-01T00:00Z")
    send_all()

    assert [body["event_action"] for body in sink.bodies] == ["trigger", "trigger", "resolve"]


@pytest.mark.parametrize(("broken", "why"), BROKEN)
def test_an_unforeseen_error_is_a_failed_try_and_given_up_in_the_end(sink: Sink, stands: Any, broken: dict[str, str], why: str):
    channel = Channel.objects.create(name="ops", **{"address": sink.url, **broken})
    stands("bank")

    assert not channels.send_next(channel.pk)

    channel.refresh_from_db()
    row = Telling.objects.get()
    assert (channel.failures, channel.failing_since is not None, channel.retry_at is not None) == (1, True, True)
    assert why in channel.last_error
    assert ([each["error"] for each in row.log], row.given_up_at) == ([channel.last_error], None)
    Telling.objects.update(not_before="2020-01-01T00:00Z", created_at="2020-01-01T00:00Z")
    Channel.objects.update(retry_at=None)
    channels.send_next(channel.pk)
    assert Telling.objects.get().given_up_at is not None


@pytest.mark.parametrize("since", [{"active": False}, {"failing_since": LONG_AGO, "failures": 9}])
def test_a_channel_that_comes_back_after_days_is_told_what_is_younger_than_three_days(sink: Sink, stands: Any, since: dict[str, Any]):
    """Each of its messages needs a try to fail for three days, and a channel that fails gets one now and then only."""
    channel = Channel.objects.create(name="pager", kind="slack", secret=sink.url)
    stands(*(f"bank-{n}" for n in range(30)))
    stands()
    Telling.objects.update(created_at=LONG_AGO)
    stands("carrier")
    Channel.objects.update(**since)
    lane = channels.Lane()
    lane.turn()
    lane.drain()

    Channel.objects.update(active=True, failing_since=None, failures=0, retry_at=None)
    send_all()

    told = [body["text"].splitlines()[0] for body in sink.bodies]
    assert sorted({"carrier" in text for text in told}) == [True], told
    assert channel.tellings.filter(given_up_at__isnull=False, last_error__contains="three days").count() == 60


def test_what_is_old_because_no_process_sent_it_gets_its_try(sink: Sink, stands: Any):
    Channel.objects.create(name="pager", kind="slack", secret=sink.url)
    stands("bank")
    Telling.objects.update(created_at=LONG_AGO)
    lane = channels.Lane()
    lane.turn()
    lane.drain()

    assert len(sink.bodies) == 1


def test_a_channel_that_was_switched_off_hears_of_the_end_of_what_it_was_told_of(sink: Sink, stands: Any):
    pager = Channel.objects.create(name="pager", kind="pagerduty", address=sink.url, secret="R" * 32)
    stands("bank")
    send_all()
    Channel.objects.update(active=False)
    stands("carrier")
    send_all()
    assert len(sink.bodies) == 1

    Channel.objects.update(active=True)
    send_all()

    assert [body["event_action"] for body in sink.bodies] == ["trigger", "resolve"]
    assert not pager.tellings.filter(delivered_at=None).exists()


def test_two_processes_send_a_message_once(sink: Sink, stands: Any):
    channel = Channel.objects.create(name="slack", kind="slack", secret=sink.url)
    stands("bank")

    answers = [channels.send_next(channel.pk), channels.send_next(channel.pk)]

    assert (answers, len(sink.got)) == ([True, False], 1)


def test_a_message_that_was_delivered_after_its_lease_is_not_sent_again(sink: Sink, stands: Any, monkeypatch: pytest.MonkeyPatch):
    """A server that takes longer than the lease would get it again and again, each time under another claim."""
    Channel.objects.create(name="slow", kind="webhook", address=sink.url, secret=SECRET)
    stands("bank")
    real = channels._try

    def slow(telling: Telling) -> Any:
        outcome = real(telling)
        Telling.objects.update(attempt=F("attempt") + 1)  # another process has claimed it meanwhile
        return outcome

    monkeypatch.setattr(channels, "_try", slow)
    send_all()
    Telling.objects.update(not_before="2020-01-01T00:00Z")
    send_all()

    assert len(sink.got) == 1
    assert Telling.objects.get().delivered_at is not None


def test_a_process_that_dies_while_it_sends_leaves_the_message_to_another(sink: Sink, stands: Any):
    channel = Channel.objects.create(name="slack", kind="slack", secret=sink.url)
    stands("bank")
    db.run(channels._CLAIM, {"channel": channel.pk, "only": None, "lease": 60})  # and then it dies

    assert not channels.send_next(channel.pk)
    Telling.objects.update(not_before="2020-01-01T00:00Z")

    assert channels.send_next(channel.pk)
    assert Telling.objects.get().attempt == 2


def test_a_private_address_is_refused_when_it_is_entered_and_when_it_is_sent(settings: Any, sink: Sink, stands: Any, operator: Client):
    settings.WEBHOOK_ALLOW_PRIVATE = False
    Channel.objects.create(name="slack", kind="slack", secret=sink.url)
    stands("bank")

    send_all()
    page = operator.post("/admin/supervision/channel/add/", {"name": "x", "kind": "webhook", "address": sink.url, "least": "warning"})

    assert sink.got == []
    assert "not a public address" in Channel.objects.get().last_error
    assert "not a public address" in page.content.decode()
    assert Channel.objects.count() == 1


def test_the_command_lists_tests_and_logs(sink: Sink, capsys: Any):
    Channel.objects.create(name="slack", kind="slack", secret=sink.url)

    call_command("channels", "test", "slack")
    call_command("channels", "--json")
    call_command("channels", "log", "slack")
    out = capsys.readouterr().out

    assert "slack: delivered, answer 202" in out
    assert '"kind": "slack"' in out
    assert "/services/" not in out
    sink.answer = 500
    with pytest.raises(CommandError, match="answered 500"):
        call_command("channels", "test", "slack")
    with pytest.raises(CommandError, match="no channel named 'nope'"):
        call_command("channels", "test", "nope")
