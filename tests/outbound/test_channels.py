"""Operators' channels: told of an incident once when it opens, once when it closes, and again when it gets worse."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from django.core.management import CommandError, call_command
from django.test import Client
from standardwebhooks.webhooks import Webhook

from supervision.incidents import lifecycle
from supervision.incidents.lifecycle import Cause
from supervision.models import Channel, Incident, Telling
from supervision.operations import operator_verbs
from supervision.outbox import channels
from supervision.postgres import db
from tests.engine.kit import until
from tests.support.console import person

SECRET = "whsec_" + "c2VjcmV0IG9mIHRlc3Rz"
NAME = "<!channel> & <https://evil.example|click>"


class Sink:
    """A real HTTP server that keeps what is posted. answer: the status, or a function that returns one."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], Any]] = []
        self.answer: Any = 202
        sink = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                sink.got.append(({name.lower(): value for name, value in self.headers.items()}, json.loads(body)))
                self.send_response(sink.answer() if callable(sink.answer) else sink.answer)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/services/T0/B0/token"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def bodies(self) -> list[Any]:
        return [body for _headers, body in self.got]


@pytest.fixture(autouse=True)
def _here(engine: None, settings: Any) -> Iterator[None]:
    settings.WEBHOOK_ALLOW_PRIVATE, settings.PUBLIC_URL = True, "https://shop.example"
    yield
    db.run("DELETE FROM auth_user_groups")


@pytest.fixture
def sink() -> Iterator[Sink]:
    made = Sink()
    yield made
    made.server.shutdown()
    made.server.server_close()


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


def test_a_dead_channel_delays_no_other_and_is_shown(sink: Sink, stands: Any):
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
    page = _operator().get("/admin/supervision/channel/").content.decode()
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


def test_two_processes_send_a_message_once(sink: Sink, stands: Any):
    channel = Channel.objects.create(name="slack", kind="slack", secret=sink.url)
    stands("bank")

    answers = [channels.send_next(channel.pk), channels.send_next(channel.pk)]

    assert (answers, len(sink.got)) == ([True, False], 1)


def test_a_process_that_dies_while_it_sends_leaves_the_message_to_another(sink: Sink, stands: Any):
    channel = Channel.objects.create(name="slack", kind="slack", secret=sink.url)
    stands("bank")
    db.run(channels._CLAIM, {"channel": channel.pk, "only": None, "lease": 60})  # and then it dies

    assert not channels.send_next(channel.pk)
    Telling.objects.update(not_before="2020-01-01T00:00Z")

    assert channels.send_next(channel.pk)
    assert Telling.objects.get().attempt == 2


def test_a_private_address_is_refused_when_it_is_entered_and_when_it_is_sent(settings: Any, sink: Sink, stands: Any):
    settings.WEBHOOK_ALLOW_PRIVATE = False
    Channel.objects.create(name="slack", kind="slack", secret=sink.url)
    stands("bank")

    send_all()
    page = _operator().post("/admin/supervision/channel/add/", {"name": "x", "kind": "webhook", "address": sink.url, "least": "warning"})

    assert sink.got == []
    assert "not a public address" in Channel.objects.get().last_error
    assert "not a public address" in page.content.decode()
    assert Channel.objects.count() == 1


# ------------------------------------------------------------------------------------------------------ console


def _operator() -> Client:
    client = Client()
    client.force_login(person("opal", "operator"))
    return client


def test_a_secret_is_never_shown_again_and_an_empty_field_keeps_it(sink: Sink):
    client = _operator()
    given = {"name": "team", "kind": "slack", "secret": sink.url, "least": "critical", "kinds": "outage, dead_letters", "active": "on"}
    client.post("/admin/supervision/channel/add/", given)
    channel = Channel.objects.get()
    place = f"/admin/supervision/channel/{channel.pk}/"

    shown = client.get(f"{place}change/").content.decode()
    client.post(f"{place}change/", {**given, "secret": "", "name": "renamed"})
    channel.refresh_from_db()

    assert "/services/" not in shown
    assert "••••oken" in shown
    assert (channel.name, channel.secret, channel.kinds) == ("renamed", sink.url, ["outage", "dead_letters"])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"kind": "mail", "address": ""}, "at least one mail address"),
        ({"kind": "mail", "address": "a@b.example, nonsense"}, "nonsense is no mail address"),
        ({"kind": "webhook", "address": "ftp://a.example"}, "begins with https://"),
        ({"kind": "webhook", "address": "https://a.example", "secret": "short secret"}, "whsec_"),
        ({"kind": "slack", "secret": ""}, "begins with https://"),
        ({"kind": "pagerduty", "secret": ""}, "integration key"),
    ],
)
def test_a_channel_that_cannot_work_is_refused(given: dict[str, str], problem: str):
    answer = _operator().post("/admin/supervision/channel/add/", {"name": "x", "least": "warning", "active": "on", **given})

    assert problem in answer.content.decode()
    assert not Channel.objects.exists()


def test_the_button_sends_a_test_and_says_the_answer(sink: Sink):
    channel = Channel.objects.create(name="slack", kind="slack", secret=sink.url)
    place, client = f"/admin/supervision/channel/{channel.pk}/test/", _operator()

    good = client.post(place, follow=True).content.decode()
    sink.answer = 404
    bad = client.post(place, follow=True).content.decode()

    assert "Test: delivered (202)" in good
    assert "answered 404" in bad
    assert [row.event for row in Telling.objects.all()] == ["test", "test"]
    assert Telling.objects.filter(delivered_at__isnull=True, given_up_at__isnull=True).count() == 0
    assert client.get(place).status_code == 405


def test_a_viewer_sees_channels_and_changes_nothing(sink: Sink):
    channel = Channel.objects.create(name="slack", kind="slack", secret=sink.url)
    client = Client()
    client.force_login(person("vera", "viewer"))
    place = f"/admin/supervision/channel/{channel.pk}/"

    assert "/services/" not in client.get(f"{place}change/").content.decode()
    assert client.post(f"{place}test/").status_code == 403
    assert client.post(f"{place}change/", {"name": "x"}).status_code == 403
    assert client.get("/admin/supervision/channel/add/").status_code == 403


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
