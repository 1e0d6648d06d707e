"""The test of a webhook: a signed message through the ordinary rows, sent once, which differs from every message about an order."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from django.utils import timezone
from standardwebhooks.webhooks import Webhook

from supervision.models import Delivery, WebhookEndpoint
from supervision.outbox import deliveries, subscriptions
from supervision.outbox.status_sender import deliver_all
from tests.outbound import kit

pytestmark = pytest.mark.usefixtures("out")


def test_a_test_is_signed_sent_once_and_told_from_the_messages_of_orders(receiver):
    hook = kit.listen(receiver.url, kit.ADA, "order.error")
    WebhookEndpoint.objects.update(retry_at=timezone.now() + timedelta(hours=1))
    key = kit.done()

    row = subscriptions.send_test(hook, by="ada")
    deliver_all()

    [message] = receiver.messages
    Webhook(hook.secret).verify(message.body, message.headers)
    assert json.loads(message.body)["type"] == "webhook.test"
    assert message.data == {"order": None, "seq": 0, "status": "test"}
    row.refresh_from_db()
    assert (row.run_id, row.tries, row.status_code, row.delivered_at is not None) == (None, 1, 204, True)
    assert [entry.get("asked_by") or entry["status_code"] for entry in row.log] == ["ada", 204]
    assert not subscriptions.about_order(Delivery.objects.all(), key).exists()


def test_a_test_that_fails_is_not_tried_again(receiver):
    receiver.answer = lambda *_: 503
    row = subscriptions.send_test(kit.listen(receiver.url), by="ada")

    deliver_all()
    kit.let_waits_pass()
    deliver_all()

    row.refresh_from_db()
    assert (row.tries, row.status_code, row.given_up_at is not None) == (1, 503, True)
    assert len(receiver.messages) == 1


def test_the_log_keeps_the_newest_tests_of_each_webhook_and_all_messages_of_orders(receiver):
    hook, other = kit.listen(receiver.url), kit.listen(receiver.url, kit.BOB)
    subscriptions.send_test(other, by="bob")
    kit.done()
    deliveries.fan_out()
    of_orders = Delivery.objects.exclude(run=None).count()
    sent = [subscriptions.send_test(hook, by="ada").pk for _ in range(subscriptions.TESTS_KEPT + 2)]

    assert list(hook.deliveries.filter(run=None).order_by("pk").values_list("pk", flat=True)) == sent[2:]
    assert (other.deliveries.count(), Delivery.objects.exclude(run=None).count()) == (1, of_orders)


def test_a_webhook_that_is_switched_off_gets_no_test(receiver):
    hook = kit.listen(receiver.url)
    WebhookEndpoint.objects.update(active=False)

    assert subscriptions.send_test(hook, by="ada") is None
    assert kit.deliveries() == []
