"""One status message becomes one delivery for each receiver that wants it, also when the fan-out is repeated."""

from __future__ import annotations

import json

import pytest
from django.db import transaction

from supervision.models import Alert, Delivery, Notification, WebhookEndpoint
from supervision.outbox import deliveries, notifications, subscriptions
from tests.engine import kit as engine_kit
from tests.outbound import kit

pytestmark = pytest.mark.usefixtures("out")


def test_each_endpoint_of_the_account_that_wants_the_event_gets_it_and_nobody_else():
    everything = kit.listen("https://one.example/")
    the_end = kit.listen("https://two.example/", kit.ADA, "order.processed", "order.cancelled")
    off = kit.listen("https://three.example/", kit.ADA, "order.processed")
    WebhookEndpoint.objects.filter(pk=off.pk).update(active=False)
    subscriptions.remove_webhook(kit.listen("https://four.example/"))
    kit.listen("https://bob.example/", kit.BOB)

    key = kit.done()
    assert deliveries.fan_out() == 3

    found = [(row.endpoint_id, row.seq, row.event) for row in kit.deliveries()]
    assert sorted(found) == sorted(
        [
            (everything.pk, 1, "order.received"),
            (everything.pk, 2, "order.processing"),
            (everything.pk, 3, "order.processed"),
            (the_end.pk, 3, "order.processed"),
            (off.pk, 3, "order.processed"),
        ]
    )
    assert {row.client for row in kit.deliveries()} == {kit.ADA}
    assert {json.loads(row.body)["data"]["order"] for row in kit.deliveries()} == {key}


def test_the_body_is_the_promised_one_and_the_same_for_every_receiver():
    kit.listen("https://one.example/")
    kit.listen("https://two.example/")
    _row, token = subscriptions.issue_reply_token(kit.ADA)
    key = kit.done(reply_to=subscriptions.references(kit.ADA, [token])[token])
    deliveries.fan_out()

    last = Delivery.objects.filter(seq=3)
    assert last.count() == 3
    assert len({(row.body, row.message_id) for row in last}) == 1
    body = json.loads(last[0].body)
    assert body == {"type": "order.processed", "timestamp": body["timestamp"], "data": {"order": key, "seq": 3, "status": "processed"}}
    assert body["timestamp"].endswith("Z")
    assert last[0].message_id == f"msg_{key}_3"


def test_repeating_it_adds_nothing():
    kit.listen("https://one.example/")
    kit.done()
    deliveries.fan_out()
    Notification.objects.update(delivered_at=None)

    assert deliveries.fan_out() == 3
    assert Delivery.objects.count() == 3


def test_two_who_fan_out_at_once_write_each_delivery_once():
    kit.listen("https://one.example/")
    for _ in range(10):
        kit.order()
    engine_kit.until(lambda: not engine_kit.schedule())

    answers = engine_kit.at_once(*[lambda: sum(iter(lambda: deliveries.fan_out(3), 0))] * 3)

    assert sum(answers) == Delivery.objects.count() == 20


def test_an_incident_does_not_wait_behind_status_messages():
    kit.listen("https://one.example/")
    Notification.objects.bulk_create(
        Notification(kind="status", payload={"seq": n, "status": "received", "at": "2026-01-01T00:00:00Z"}) for n in range(500)
    )
    engine_kit.in_error(0)
    engine_kit.looked()

    assert notifications.deliver_due(limit=1) == 1

    assert Notification.objects.get(kind="incident").delivered_at is not None
    assert Notification.objects.filter(kind="status", delivered_at__isnull=False).count() == 0
    assert Alert.objects.count() == 1


DELIVERED = """
INSERT INTO supervision_delivery (public_id, client, endpoint_id, seq, event, message_id, body, delivered_at, not_before)
SELECT 'd' || n, 'ada', CASE WHEN n > 5 THEN %(other)s ELSE %(endpoint)s END, 1, 'order.processed', 'm' || n, '{}',
       CASE WHEN n > 1000 THEN now() END, now()
  FROM generate_series(1, 3000) n;
INSERT INTO supervision_notification (kind, delivered_at)
SELECT CASE n %% 2 WHEN 0 THEN 'status' ELSE 'news' END, CASE WHEN n > 20 THEN now() END FROM generate_series(1, 6000) n;
ANALYZE supervision_delivery, supervision_notification
"""


def test_the_two_readers_of_the_outbox_each_have_an_index_of_their_own():
    """Beside many messages that are delivered, or wait for another webhook: of few rows the planner takes any index."""
    endpoint, other = kit.listen("https://one.example/").pk, kit.listen("https://two.example/").pk
    mail = notifications._CLAIM.replace("%(lease)s", "60").replace("%(kinds)s", "'{news}'")
    with transaction.atomic():
        engine_kit.fetch("SET LOCAL enable_seqscan = off")
        engine_kit.fetch("SET LOCAL enable_sort = off")
        engine_kit.fetch(DELIVERED % {"endpoint": endpoint, "other": other})
        for statement, index in [
            (mail, "notification_kind_due"),
            (deliveries._FAN_OUT.replace("%(limit)s", "10").replace("%%", "%"), "notification_to_fan_out"),
            (
                f"SELECT id FROM supervision_delivery WHERE endpoint_id = {endpoint} AND reply_token_id IS NULL AND not_before <= now()"  # noqa: S608
                " AND delivered_at IS NULL AND given_up_at IS NULL ORDER BY not_before LIMIT 10",
                "delivery_due",
            ),
        ]:
            plan = "\n".join(row[0] for row in engine_kit.fetch("EXPLAIN " + statement))
            assert f"using {index}" in plan, plan
        transaction.set_rollback(True)
