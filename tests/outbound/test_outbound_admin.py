"""The console's pages for outbound messages: viewers may read, operators may act, and no page shows a secret."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction
from django.test import Client

from supervision.models import Delivery, ReplyToken, Run, WebhookEndpoint
from supervision.outbox import subscriptions
from tests.engine.kit import BLOCKED, fetch
from tests.support.console import ATTACK, hidden, person
from tests.support.shop import until

pytestmark = pytest.mark.django_db
LIST = "/admin/supervision/delivery/"


@pytest.fixture
def hook() -> WebhookEndpoint:
    return WebhookEndpoint.objects.create(public_id="wh_1", client="user:1", url="https://shop.example/hook", secret="whsec_c2VjcmV0")


@pytest.fixture
def delivery(hook) -> Delivery:
    run = Run.objects.create(workflow="toy", key="order-1")
    body = '{"type":"order.error","timestamp":"2026-01-01T00:00:00Z","data":{"order":"order-1","seq":1,"status":"error"}}'
    return Delivery.objects.create(
        public_id="dlv_1", client="user:1", endpoint=hook, run=run, seq=1, event="order.error", message_id="msg_order-1_1", body=body,
        tries=2, status_code=503, last_error=f"answered 503 {ATTACK}", given_up_at="2026-01-04T00:00Z",
        log=[
            {"at": "2026-01-01T00:00:00Z", "status_code": 503, "error": ATTACK, "seconds": 0.5},
            {"at": "2026-01-01T00:00:05Z", "asked_by": "ada"},
        ],
    )  # fmt: skip


@pytest.mark.parametrize("model", ["delivery", "webhookendpoint", "replytoken"])
def test_operators_and_viewers_look_and_others_do_not(operator, viewer, delivery, model):
    ReplyToken.objects.create(token_hash="h", client="user:1", queue="reply.1")
    customer = Client()
    customer.force_login(person("carl", "customer"))
    row = {"delivery": Delivery, "webhookendpoint": WebhookEndpoint, "replytoken": ReplyToken}[model].objects.get()

    for path in (f"/admin/supervision/{model}/", f"/admin/supervision/{model}/{row.pk}/change/"):
        assert operator.get(path).status_code == viewer.get(path).status_code == 200
        assert customer.get(path).status_code == 403
    assert f"/admin/supervision/{model}/" in operator.get("/admin/").content.decode()


def test_a_secret_and_a_tokens_hash_are_shown_to_nobody(operator, hook):
    token = ReplyToken.objects.create(token_hash="the-hash-of-a-token", client="user:1", queue="reply.1")

    for path in (f"webhookendpoint/{hook.pk}/change/", "webhookendpoint/", f"replytoken/{token.pk}/change/", "replytoken/"):
        page = operator.get(f"/admin/supervision/{path}").content.decode()
        assert hook.secret not in page
        assert token.token_hash not in page


def test_a_delivery_shows_its_state_its_last_error_and_every_try(operator, delivery):
    listed = operator.get(LIST).content.decode()
    page = operator.get(f"{LIST}{delivery.pk}/change/").content.decode()

    assert "given up" in listed
    assert "answered 503" in listed
    assert "order-1" in page
    assert "asked for again by ada" in page
    for html in (listed, page):
        assert "<script>window.pwned" not in html
        assert "<img src=x" not in html


@pytest.mark.parametrize(("state", "found"), [("given-up", 1), ("waiting", 0), ("failing", 0), ("delivered", 0), ("nonsense", 1)])
def test_deliveries_are_filtered_by_state(operator, delivery, state, found):
    assert operator.get(LIST, {"state": state}).content.decode().count("order.error</") == found


@pytest.mark.parametrize(("term", "found"), [("order-1", 1), ("dlv_1", 1), ("user:1", 1), ("no-such-order", 0), ("\0", 1)])
def test_deliveries_are_found_by_order_id_or_client(operator, delivery, term, found):
    assert operator.get(LIST, {"q": term}).content.decode().count("order.error</") == found


def test_an_operator_sends_again_and_a_viewer_does_not(operator, viewer, delivery):
    action = {"action": "deliver_again", "_selected_action": [delivery.pk]}

    viewer.post(LIST, action)
    delivery.refresh_from_db()
    assert delivery.given_up_at is not None

    page = operator.post(LIST, action, follow=True).content.decode()
    delivery.refresh_from_db()
    assert "1 message is being sent again." in page
    assert (delivery.given_up_at, delivery.tries, delivery.log[-1]["asked_by"]) == (None, 0, "olga")


def test_what_has_no_receiver_is_said_so(operator, delivery, hook):
    WebhookEndpoint.objects.update(active=False)

    page = operator.post(LIST, {"action": "deliver_again", "_selected_action": [delivery.pk]}, follow=True).content.decode()

    assert "gone or switched off" in page


def test_an_operator_switches_a_webhook_off_and_changes_nothing_else(operator, viewer, hook):
    path = f"/admin/supervision/webhookendpoint/{hook.pk}/change/"

    assert viewer.post(path, {"url": "https://evil.example/"}).status_code == 403
    operator.post(path, {"initial-active": "True", "url": "https://evil.example/", "client": "user:2"})

    hook.refresh_from_db()
    assert (hook.active, hook.url, hook.client, hook.secret) == (False, "https://shop.example/hook", "user:1", "whsec_c2VjcmV0")


def test_a_form_that_changes_nothing_does_not_undo_what_another_operator_has_changed(operator, hook):
    path = f"/admin/supervision/webhookendpoint/{hook.pk}/change/"
    shown = hidden(operator.get(path).content.decode())
    WebhookEndpoint.objects.update(active=False, failures=3)

    assert operator.post(path, {**shown, "active": "on"}).status_code == 302

    hook.refresh_from_db()
    assert (hook.active, hook.failures) == (False, 3)


@pytest.mark.django_db(transaction=True)
def test_a_webhook_that_its_client_removes_while_the_form_is_saved_stays_removed(operator, hook):
    path = f"/admin/supervision/webhookendpoint/{hook.pk}/change/"

    def save() -> int:
        try:
            return operator.post(path, {"initial-active": "False", "active": "on"}).status_code
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as other:
        with transaction.atomic():
            subscriptions.remove_webhook(hook)
            answer = other.submit(save)
            until(lambda: len(fetch(BLOCKED)) == 1, within=20, what="the form to wait")
        status = answer.result(30)

    hook.refresh_from_db()
    assert status == 403
    assert (hook.active, hook.removed_at is not None, hook.secret) == (False, True, "")


def test_a_removed_webhook_cannot_be_switched_on_again(operator, hook):
    WebhookEndpoint.objects.update(active=False, removed_at="2026-01-01T00:00Z")

    operator.post(f"/admin/supervision/webhookendpoint/{hook.pk}/change/", {"active": "on"})

    hook.refresh_from_db()
    assert not hook.active


def test_an_operator_tries_a_webhook_from_its_page_and_sees_the_delivery(operator, viewer, hook):
    page, test = f"/admin/supervision/webhookendpoint/{hook.pk}/change/", f"/admin/supervision/webhookendpoint/{hook.pk}/test/"
    assert test in operator.get(page).content.decode()
    assert test not in viewer.get(page).content.decode()

    assert (viewer.post(test).status_code, operator.get(test).status_code) == (403, 405)
    assert not Delivery.objects.exists()
    shown = operator.post(test, follow=True).content.decode()

    row = Delivery.objects.get()
    assert (row.event, row.endpoint, row.log[0]["asked_by"]) == ("webhook.test", hook, "olga")
    assert "The test is being sent." in shown
    assert "none: a test" in shown
    assert "webhook.test" in operator.get(LIST).content.decode()


def test_a_webhook_that_is_switched_off_is_not_tried(operator, hook):
    WebhookEndpoint.objects.update(active=False)

    assert "test/" not in operator.get(f"/admin/supervision/webhookendpoint/{hook.pk}/change/").content.decode()
    page = operator.post(f"/admin/supervision/webhookendpoint/{hook.pk}/test/", follow=True).content.decode()

    assert "nothing was sent" in page
    assert not Delivery.objects.exists()


def test_an_operator_sends_again_from_a_deliverys_page_and_a_viewer_does_not(operator, viewer, delivery):
    page, again = f"{LIST}{delivery.pk}/change/", f"{LIST}{delivery.pk}/again/"
    assert again in operator.get(page).content.decode()
    assert again not in viewer.get(page).content.decode()

    assert (viewer.post(again).status_code, operator.get(again).status_code) == (403, 405)
    delivery.refresh_from_db()
    assert delivery.given_up_at is not None
    shown = operator.post(again, follow=True).content.decode()

    delivery.refresh_from_db()
    assert "1 message is being sent again." in shown
    assert (delivery.given_up_at, delivery.log[-1]["asked_by"]) == (None, "olga")


def test_the_list_costs_the_same_however_many_rows_it_shows(operator, delivery, django_assert_max_num_queries):
    Delivery.objects.bulk_create(
        Delivery(
            public_id=f"dlv_x{n}", client="user:1", endpoint_id=delivery.endpoint_id, run_id=delivery.run_id, seq=n, event="order.received",
            message_id=f"m{n}", body=delivery.body,
        )
        for n in range(2, 30)
    )  # fmt: skip

    with django_assert_max_num_queries(20):
        operator.get(LIST)
