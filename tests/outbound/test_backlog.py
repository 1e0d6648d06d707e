"""A dead receiver with a large backlog delays no other receiver and costs little."""

from __future__ import annotations

import json

import pytest
from django.db import transaction

from supervision import testing
from supervision.models import Delivery, Notification, ReplyToken, WebhookEndpoint
from supervision.outbox import deliveries, notifications, subscriptions
from supervision.postgres import db
from supervision.store import hooks
from tests.outbound import kit
from tests.support import pages

pytestmark = pytest.mark.usefixtures("out")

MOUNTAIN = 20_000
MOST_PAGES = 250  # pages for the few messages that a claim takes; the backlog has several times as many


def messages(count: int, *, endpoint: WebhookEndpoint | None = None, token: ReplyToken | None = None, days: int = 0) -> None:
    """Write this many due deliveries for this receiver, requested this many days ago."""
    kit.fetch(
        "INSERT INTO supervision_delivery (public_id, client, endpoint_id, reply_token_id, run_id, seq, event, message_id, body, asked_at)"
        " SELECT 'd' || nextval('supervision_delivery_id_seq'), 'c', %s, %s, n, 1, 'order.processed', 'm' || n, '{}',"
        " now() - %s * interval '1 day' FROM generate_series(1, %s) n",
        [endpoint and endpoint.pk, token and token.pk, days, count],
    )


@pytest.fixture
def dead() -> WebhookEndpoint:
    """Mark the receiver as failing for long and due for a try; ANALYZE tells the planner its number of messages."""
    endpoint = kit.listen("http://dead.example/")
    kit.fetch("UPDATE supervision_webhookendpoint SET failures = 9, failing_since = now() - interval '1 hour' WHERE id = %s", [endpoint.pk])
    messages(MOUNTAIN, endpoint=endpoint)
    kit.fetch("ANALYZE supervision_delivery, supervision_webhookendpoint")
    return endpoint


def test_a_claim_for_receivers_that_answer_does_not_read_what_waits_for_a_dead_one(dead):
    healthy = kit.listen("http://healthy.example/", kit.BOB)
    messages(5, endpoint=healthy)
    found = {}

    cost = pages.touched(lambda: found.update(deliveries.claim_webhooks(16, 20, suspect=False)))

    assert {endpoint: len(due) for endpoint, due in found.items()} == {healthy.pk: 5}
    assert cost < MOST_PAGES


def test_trying_a_dead_receiver_out_reads_one_of_its_messages(dead):
    found = {}

    cost = pages.touched(lambda: found.update(deliveries.claim_webhooks(16, 20, suspect=True)))

    assert {endpoint: len(due) for endpoint, due in found.items()} == {dead.pk: 1}
    assert cost < MOST_PAGES


def test_a_claim_of_replies_does_not_read_all_that_wait():
    token = ReplyToken.objects.create(token_hash="t", client=kit.ADA, queue="replies.t")
    messages(MOUNTAIN, token=token)
    kit.fetch("ANALYZE supervision_delivery, supervision_replytoken")

    cost = pages.touched(lambda: deliveries.claim_replies(20, 20))

    assert cost < 4 * MOST_PAGES  # 20 messages with one update each


def test_looking_for_hopeless_messages_does_not_read_those_with_hope(dead):
    assert pages.touched(lambda: deliveries.give_up_hopeless("why")) < MOST_PAGES


@pytest.mark.parametrize("gone", ["removed", "switched off", "failing for days", "revoked"])
def test_a_mountain_without_hope_is_given_up_in_parts(gone, monkeypatch):
    monkeypatch.setattr(deliveries, "AT_ONCE", 300)
    token = None
    endpoint = None
    if gone == "revoked":
        token = ReplyToken.objects.create(token_hash="t", client=kit.ADA, queue="replies.t")
        kit.fetch("UPDATE supervision_replytoken SET revoked_at = now()")
    else:
        endpoint = kit.listen("http://gone.example/")
        change = {
            "removed": "removed_at = now(), active = false",
            "switched off": "active = false",
            "failing for days": "failing_since = now() - interval '4 days'",
        }[gone]
        kit.fetch(f"UPDATE supervision_webhookendpoint SET {change}")  # noqa: S608
    messages(1_000, endpoint=endpoint, token=token, days=4)

    deliveries.give_up_hopeless("no receiver is there")

    assert Delivery.objects.filter(given_up_at__isnull=False, last_error="no receiver is there").count() == 1_000


def test_the_deliveries_of_one_order_are_found_without_those_of_all_others():
    key = kit.done()
    messages(MOUNTAIN, endpoint=kit.listen("http://healthy.example/"))
    kit.fetch("UPDATE supervision_delivery SET delivered_at = now(), run_id = -run_id")
    kit.fetch("UPDATE supervision_delivery SET run_id = (SELECT id FROM supervision_run WHERE key = %s) WHERE message_id = 'm7'", [key])
    kit.fetch("ANALYZE supervision_delivery")
    listed = subscriptions.about_order(subscriptions.deliveries_of(None), key).order_by("-id")

    assert "_hears_an_event_once" in listed[:51].explain()
    assert [row.message_id for row in listed] == ["m7"]


@pytest.mark.parametrize("kind", ["webhook", "reply queue"])
def test_a_receiver_with_a_mountain_is_removed_at_once_and_the_rest_is_given_up_later(kind, monkeypatch):
    """One statement for all of them takes longer than a client's request may, so the receiver could not be removed."""
    monkeypatch.setattr(subscriptions, "GIVEN_UP_AT_ONCE", 300)
    if kind == "webhook":
        endpoint = kit.listen("http://dead.example/")
        messages(1_000, endpoint=endpoint)
        subscriptions.remove_webhook(endpoint)
    else:
        token = ReplyToken.objects.create(token_hash="t", client=kit.ADA, queue="reply.t")
        messages(1_000, token=token)
        subscriptions.revoke_reply_token(token)
    waiting = Delivery.objects.filter(given_up_at=None)
    assert waiting.count() == 700

    deliveries.give_up_hopeless("no receiver is there")

    assert waiting.count() == 0


# ------------------------------------------------------------------------------------------------- notifications


def notify(kind: str, count: int = 1, seconds: int = 0) -> None:
    """Write this many notifications that have been due for so many seconds; ANALYZE tells the planner of them."""
    kit.fetch(
        "INSERT INTO supervision_notification (kind, not_before) SELECT %s, now() - %s * interval '1 s' FROM generate_series(1, %s)",
        [kind, seconds, count],
    )
    kit.fetch("ANALYZE supervision_notification")


def claim(lane: str) -> list[str]:
    """Claim the next due notification of this lane. Its kind, or nothing."""
    rows = db.run(notifications._CLAIM, {"kinds": notifications.kinds_of(lane), "lease": notifications.LEASE_SECONDS})
    return list(Notification.objects.filter(pk__in=[pk for pk, _tries in rows]).values_list("kind", flat=True))


@pytest.mark.parametrize("kind", ["of-a-newer-release", "job", "hook"])
@pytest.mark.parametrize("due", [0, 1])
def test_a_claim_does_not_read_the_notifications_that_it_leaves_to_others(kind, due):
    """Of a kind that this process does not know, of another lane, and calls of hooks: all older than what it may claim."""
    notify(kind, MOUNTAIN, seconds=3600)
    if due:
        notify("incident")
    found = []

    cost = pages.touched(lambda: found.extend(claim(notifications.SOON)))

    assert found == ["incident"] * due
    assert cost < 60


def test_the_kinds_of_a_lane_are_claimed_by_the_time_at_which_they_were_due():
    for kind, seconds in [("job", 20), ("alert", 40), ("job", 60), ("journal-trouble", 30)]:
        notify(kind, seconds=seconds)

    assert [claim(notifications.OTHERS) for _ in range(5)] == [["job"], ["alert"], ["journal-trouble"], ["job"], []]


def test_a_claim_locks_what_it_takes_and_nothing_else():
    """Else a second process would find nothing, and wait for its next look."""
    notify("job", seconds=60)
    notify("alert", seconds=30)
    with transaction.atomic():
        assert claim(notifications.OTHERS) == ["job"]
        assert testing.at_once(lambda: claim(notifications.OTHERS)) == [["alert"]]


@pytest.mark.parametrize("mountain", [1, 2], ids=["of a version that fails", "of a newer release"])
def test_a_claim_of_hooks_calls_reads_no_more_than_it_takes(mountain):
    """The oldest call of the versions 1 and 3 is claimed, beside many of one that this process knows, and of one that it does not."""
    calls = "INSERT INTO supervision_notification (kind, payload, not_before) SELECT 'hook', %s, now() - %s * interval '1 s'"
    for version, seconds, count in [(mountain, 3600, MOUNTAIN), (3, 60, 1), (1, 30, 1)]:
        call = json.dumps({"workflow": "hooked", "version": version, "hook": "on_error"})
        kit.fetch(f"{calls} FROM generate_series(1, {count})", [call, seconds])
    kit.fetch("ANALYZE supervision_notification")
    known = {"workflows": ["toy", "hooked", "hooked"], "versions": [1, 1, 3], "limit": 1}
    found = []

    cost = pages.touched(lambda: found.extend(db.run(hooks._CLAIM, known)))

    assert [call for _, *call in found] == [["hooked", {1: 1, 2: 3}[mountain], "on_error"]]
    assert cost < 60
