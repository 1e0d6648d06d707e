"""The pages of operators' channels: a secret is shown once, what cannot work is refused, and a button sends a test."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from supervision.models import Channel, Telling
from supervision.outbox import channels
from tests.outbound.kit import BROKEN, Sink
from tests.support.console import hidden, person

pytestmark = pytest.mark.usefixtures("here")


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


def test_the_key_of_pagerduty_is_sent_to_no_address_that_was_entered_without_it(sink: Sink):
    given = {"name": "pager", "kind": "pagerduty", "address": "http://127.0.0.1:9/", "least": "warning", "active": "on"}
    channel = Channel.objects.create(name="pager", kind="pagerduty", address=given["address"], secret="R" * 32)
    place, client = f"/admin/supervision/channel/{channel.pk}/", _operator()

    def answer(**changes: str) -> str:
        said = client.post(f"{place}change/", {**given, **changes})
        client.post(f"{place}test/")
        return said.content.decode()

    assert "The address changed: give the integration key again." in answer(address=sink.url)
    assert answer(name="renamed") == ""  # it is saved with its key
    answer(kind="webhook", address=sink.url)
    assert "Expected the integration key." in answer(address=sink.url)
    assert "R" * 32 not in str(sink.got)
    answer(address=sink.url, secret="N" * 32)
    answer(address=sink.url, name="renamed again")
    assert [body.get("routing_key") for body in sink.bodies] == [None, None, "N" * 32, "N" * 32]


def test_two_operators_keep_what_each_of_them_changed():
    channel = Channel.objects.create(name="ops", kind="mail", address="ops@example.com", kinds=["outage"])
    place, client = f"/admin/supervision/channel/{channel.pk}/change/", _operator()
    shown = {**hidden(client.get(place).content.decode()), "kind": "mail", "least": "warning"}

    client.post(place, {**shown, "address": "desk@example.com", "kinds": "outage, error"})  # and it is switched off
    answer = client.post(place, {**shown, "active": "on", "name": "renamed", "least": "critical"})

    channel.refresh_from_db()
    assert answer.status_code == 302
    assert (channel.name, channel.least) == ("renamed", "critical")
    assert (channel.address, channel.kinds, channel.active) == ("desk@example.com", ["outage", "error"], False)


@pytest.mark.parametrize("of_the_other", [{"address": "http://127.0.0.1:9/other"}, {"kind": "webhook", "secret": "whsec_c2VjcmV0"}])
def test_a_key_goes_to_no_address_that_another_operator_has_entered_meanwhile(of_the_other: dict[str, str]):
    channel = Channel.objects.create(name="pager", kind="pagerduty", address="http://127.0.0.1:9/", secret="R" * 32)
    place, client = f"/admin/supervision/channel/{channel.pk}/change/", _operator()
    shown = {**hidden(client.get(place).content.decode()), "kind": "pagerduty", "least": "warning", "active": "on"}
    Channel.objects.filter(pk=channel.pk).update(**of_the_other)

    answers = [client.post(place, {**shown, "secret": "N" * 32, "name": "renamed"}) for _twice in range(2)]

    kept = Channel.objects.get()
    assert ["Another operator has changed where this channel sends to" in answer.content.decode() for answer in answers] == [True, True]
    assert kept.name == "pager"
    assert kept.secret == of_the_other.get("secret", "R" * 32)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"kind": "mail", "address": ""}, "at least one mail address"),
        ({"kind": "mail", "address": "a@b.example, nonsense"}, "nonsense is no mail address"),
        ({"kind": "webhook", "address": "ftp://a.example"}, "begins with https://"),
        ({"kind": "mail", "address": f"a@{'ü' * 60}.example"}, ".example is no mail address"),
        ({"kind": "webhook", "address": "https://a.example", "secret": "short secret"}, "Expected whsec_ and base64"),
        ({"kind": "webhook", "address": "https://a.example", "secret": "whsec_"}, "Expected whsec_ and base64"),
        ({"kind": "mail", "address": "a@b.example", "name": "ops\nBcc: x@b.example"}, "Control characters are not allowed"),
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


@pytest.mark.parametrize(("broken", "why"), BROKEN)
def test_the_button_says_the_reason_whatever_goes_wrong(sink: Sink, broken: dict[str, str], why: str):
    channel = Channel.objects.create(name="ops", **{"address": sink.url, **broken})

    answer = _operator().post(f"/admin/supervision/channel/{channel.pk}/test/", follow=True)

    assert answer.status_code == 200
    assert f"Test: given up: {why}" in answer.content.decode()


def test_a_name_of_two_lines_is_one_line_in_a_mails_subject(mailoutbox: Any):
    channel = Channel.objects.create(name="ops\nBcc: x@b.example", kind="mail", address="a@b.example")

    assert channels.send_test(channel).delivered_at is not None

    assert [mail.subject for mail in mailoutbox] == ["A test of the channel ops Bcc: x@b.example"]


def test_a_viewer_sees_channels_and_changes_nothing(sink: Sink):
    channel = Channel.objects.create(name="slack", kind="slack", secret=sink.url)
    client = Client()
    client.force_login(person("vera", "viewer"))
    place = f"/admin/supervision/channel/{channel.pk}/"

    assert "/services/" not in client.get(f"{place}change/").content.decode()
    assert client.post(f"{place}test/").status_code == 403
    assert client.post(f"{place}change/", {"name": "x"}).status_code == 403
    assert client.get("/admin/supervision/channel/add/").status_code == 403


@pytest.mark.parametrize("at_once", [False, True])
def test_a_channel_is_deleted_with_the_log_of_its_messages_which_is_not_listed(at_once: bool):
    client = _operator()
    channel = Channel.objects.create(name="pager", kind="slack", secret="https://a.example/")
    Channel.objects.create(name="other", kind="slack", secret="https://b.example/")
    Telling.objects.bulk_create(Telling(channel=channel, incident_id=n, event="opened") for n in range(700, 720))
    page, said = f"/admin/supervision/channel/{channel.pk}/delete/", {"post": "yes"}
    if at_once:
        page, said = "/admin/supervision/channel/", said | {"action": "delete_selected", "_selected_action": [channel.pk]}

    asked = client.post(page, {**said, "post": ""}).content.decode() if at_once else client.get(page).content.decode()
    client.post(page, said)

    assert "20" in asked
    assert "opened 719" not in asked
    assert list(Channel.objects.values_list("name", flat=True)) == ["other"]
    assert not Telling.objects.exists()


def test_the_page_of_a_channel_says_its_state_in_words():
    operator = _operator()
    channel = Channel.objects.create(name="ops", kind="mail", address="ops@example.com", failing_since=timezone.now())

    html = operator.get(f"/admin/supervision/channel/{channel.pk}/change/").content.decode()

    assert "failing since" in html
    assert "(&#x27;failing&#x27;" not in html
