"""Webhooks, reply tokens and deliveries at the API: an account sees only its own, and a secret is shown once."""

from __future__ import annotations

import json

import pytest
from django.db import connection
from django.db.models.functions import Now

from orders.services import cancel_order
from supervision.intake.consuming import consume_batch
from supervision.models import Delivery, Notification, ReplyToken, Run, Submission, WebhookEndpoint
from supervision.operations import archive
from supervision.outbox import deliveries, reply_queues, subscriptions
from supervision.outbox.deliveries import Try
from supervision.outbox.subscriptions import MOST_TOKENS, MOST_WEBHOOKS
from supervision.wakeup import hints
from tests.shopping import a_product, a_request, account, signed_in

HOOKS, TOKENS, DELIVERIES, ORDERS = "/api/v1/webhooks/", "/api/v1/reply-tokens/", "/api/v1/deliveries/", "/api/v1/orders/"
URL = "https://shop.example/hook"


@pytest.fixture(autouse=True)
def _quiet(db, settings, monkeypatch):
    settings.API_THROTTLE = None
    monkeypatch.setattr(hints, "enabled", False)
    a_product()


ada, bob = account("ada", "client"), account("bob", "client")
olga, vera = account("olga", "operator"), account("vera", "viewer")


def register(client, **body):
    return client.post(HOOKS, {"url": URL, **body})


def placed(client, **changes) -> str:
    """An order that was consumed and whose status messages have become deliveries."""
    answer = client.post(ORDERS, a_request(**changes))
    assert answer.status_code == 202, answer.json()
    consume_batch(born=False)
    deliveries.fan_out()
    Delivery.objects.update(not_before="2026-01-01T00:00Z")  # now() does not move in a test's one transaction
    return answer.json()["id"]


# ----------------------------------------------------------------------------------------------------- webhooks


def test_a_webhook_is_registered_and_its_secret_shown_once(ada):
    answer = register(ada)

    assert answer.status_code == 201
    made = answer.json()
    assert set(made) == {"id", "secret", "url", "events"}
    assert made["secret"].startswith("whsec_")
    listed = ada.get(HOOKS).json()
    assert [row["id"] for row in listed["results"]] == [made["id"]]
    assert (listed["next"], listed["previous"]) == (None, None)
    for later in (ada.get(HOOKS), ada.get(f"{HOOKS}{made['id']}/")):
        assert made["secret"] not in later.content.decode()
        assert "secret" not in later.content.decode()


def test_secrets_are_long_and_never_the_same(ada):
    secrets = {register(ada).json()["secret"] for _ in range(5)}

    assert len(secrets) == 5
    assert all(len(secret) >= len("whsec_") + 43 for secret in secrets)


def test_events_can_be_chosen_by_either_name(ada):
    made = register(ada, events=["processed", "order.error", "order.processed"])

    assert made.json()["events"] == ["order.processed", "order.error"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "url"),
        ({"url": ""}, "url"),
        ({"url": 7}, "url"),
        ({"url": "ftp://shop.example/"}, "url"),
        ({"url": "http://127.0.0.1:9000/"}, "url"),
        ({"url": "http://localhost/"}, "url"),
        ({"url": "http://169.254.169.254/latest/meta-data/"}, "url"),
        ({"url": "http://[::1]/"}, "url"),
        ({"url": "http://10.0.0.1/"}, "url"),
        ({"url": "https://u:p@shop.example/"}, "url"),
        ({"url": URL, "events": ["order.lost"]}, "events"),
        ({"url": URL, "events": "order.processed"}, "events"),
        ({"url": URL, "secret": "mine"}, "secret"),
    ],
)
def test_what_cannot_be_registered_is_refused_with_the_field_named(ada, body, field):
    answer = ada.post(HOOKS, body)

    assert answer.status_code == 400
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert field in answer.json()["errors"]
    assert not WebhookEndpoint.objects.exists()


def test_private_addresses_are_accepted_where_the_installation_allows_them(ada, settings):
    settings.WEBHOOK_ALLOW_PRIVATE = True

    assert register(ada, url="http://127.0.0.1:9000/hook").status_code == 201


def test_an_account_meets_its_own_webhooks_only(ada, bob, olga):
    mine = register(ada).json()["id"]

    assert bob.get(HOOKS).json()["results"] == []
    assert bob.get(f"{HOOKS}{mine}/").status_code == 404
    assert bob.delete(f"{HOOKS}{mine}/").status_code == 404
    assert olga.get(HOOKS).status_code == 403
    assert ada.get(f"{HOOKS}{mine}/").json()["url"] == URL


def test_a_removed_webhook_is_gone_and_hears_nothing_more(ada):
    mine = register(ada).json()["id"]
    placed(ada)

    assert ada.delete(f"{HOOKS}{mine}/").status_code == 204

    assert ada.delete(f"{HOOKS}{mine}/").status_code == 404
    assert ada.get(HOOKS).json()["results"] == []
    placed(ada)
    assert [(row.seq, row.given_up_at is not None) for row in Delivery.objects.all()] == [(1, True)]
    assert ada.get(DELIVERIES).json()["results"][0]["state"] == "given-up"


def test_there_is_an_end_to_how_many_an_account_may_have(ada, bob):
    for _ in range(MOST_WEBHOOKS):
        register(ada)
    for _ in range(MOST_TOKENS):
        ada.post(TOKENS)

    assert (register(ada).status_code, register(ada).json()["code"]) == (409, "too_many")
    assert (ada.post(TOKENS).status_code, ada.post(TOKENS).json()["code"]) == (409, "too_many")
    assert register(bob).status_code == 201


def test_lists_are_cut_into_pages(ada):
    ids = [register(ada).json()["id"] for _ in range(3)]

    first = ada.get(HOOKS, {"page_size": 2}).json()
    second = ada.get(first["next"]).json()

    assert [row["id"] for row in first["results"] + second["results"]] == ids[::-1]
    assert second["next"] is None
    assert ada.get(HOOKS, {"foo": 1}).status_code == 400


# ------------------------------------------------------------------------------------------------ reply tokens


def test_a_reply_token_is_shown_once_with_the_queue_behind_it(ada):
    answer = ada.post(TOKENS)

    assert answer.status_code == 201
    made = answer.json()
    assert made["queue"] == f"reply.{made['id']}"
    listed = ada.get(TOKENS)
    assert [row["queue"] for row in listed.json()["results"]] == [made["queue"]]
    assert made["token"] not in listed.content.decode()
    assert Notification.objects.get().payload == {"queue": made["queue"]}


def test_an_order_carries_the_hash_of_its_reply_token_and_never_the_token(ada):
    made = ada.post(TOKENS).json()
    order = placed(ada, reply_to=made["token"])

    row = ReplyToken.objects.get()
    assert Run.objects.get(key=order).reply_to == row.token_hash
    assert Delivery.objects.get().reply_token_id == row.pk
    with connection.cursor() as cursor:
        for table in ("supervision_submission", "supervision_run", "supervision_replytoken", "supervision_delivery"):
            cursor.execute(f"SELECT coalesce(string_agg(t::text, ''), '') FROM {table} t")  # noqa: S608 - the names above
            assert made["token"] not in cursor.fetchone()[0]


@pytest.mark.parametrize("what", ["unknown", "foreign", "revoked", "queue", "hash"])
def test_an_order_is_refused_whose_reply_token_is_not_this_accounts(ada, bob, what):
    made = (bob if what == "foreign" else ada).post(TOKENS).json()
    if what == "revoked":
        assert ada.delete(f"{TOKENS}{made['id']}/").status_code == 204
    name = {"unknown": "rpl_nobody", "queue": made["queue"], "hash": ReplyToken.objects.get().token_hash}.get(what, made["token"])

    answer = ada.post(ORDERS, a_request(reply_to=name))

    assert answer.status_code == 400
    assert list(answer.json()["errors"]) == ["reply_to"]
    assert not Submission.objects.exists()


def test_one_bad_reply_token_in_a_batch_harms_no_other_order(ada):
    token = ada.post(TOKENS).json()["token"]
    wishes = [a_request(reply_to=token), a_request(reply_to="rpl_nobody"), a_request()]

    results = ada.post(f"{ORDERS}batch/", {"orders": wishes}).json()["results"]

    assert [result["status"] for result in results] == [202, 400, 202]
    assert list(results[1]["errors"]) == ["reply_to"]


def test_an_order_that_was_accepted_is_replayed_after_its_token_was_revoked(ada):
    made = ada.post(TOKENS).json()
    wish, key = a_request(reply_to=made["token"]), {"HTTP_IDEMPOTENCY_KEY": "k1"}
    first = ada.post(ORDERS, wish, **key)
    ada.delete(f"{TOKENS}{made['id']}/")

    again = ada.post(ORDERS, wish, **key)

    assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])


@pytest.mark.parametrize("name", ["id", "queue", "token"])
def test_a_token_is_revoked_by_whichever_name_one_has_of_it(ada, bob, name):
    made = ada.post(TOKENS).json()

    assert bob.delete(f"{TOKENS}{made[name]}/").status_code == 404
    assert ada.delete(f"{TOKENS}{made[name]}/").status_code == 204
    assert ada.delete(f"{TOKENS}{made[name]}/").status_code == 404
    assert ada.get(TOKENS).json()["results"] == []
    wishes = Notification.objects.filter(kind=subscriptions.REPLY_QUEUE_REVOKED)
    assert {wish.payload["queue"] for wish in wishes} == {made["queue"]}


def test_a_customer_and_a_guest_cannot_name_a_reply_token(ada):
    token = ada.post(TOKENS).json()["token"]

    answer = signed_in("carl", "customer").post(ORDERS, a_request(reply_to=token))

    assert (answer.status_code, list(answer.json()["errors"])) == (400, ["reply_to"])


# --------------------------------------------------------------------------------------------------- deliveries


def test_an_account_sees_what_was_sent_to_it_and_an_operator_everything(ada, bob, olga, vera):
    register(ada)
    hers = placed(ada)
    register(bob)
    his = placed(bob)

    def orders(client):
        return {row["order"] for row in client.get(DELIVERIES).json()["results"]}

    assert (orders(ada), orders(bob)) == ({hers}, {his})
    assert orders(olga) == orders(vera) == {hers, his}
    (row,) = bob.get(DELIVERIES).json()["results"]
    assert ada.get(f"{DELIVERIES}{row['id']}/").status_code == 404
    assert ada.post(f"{DELIVERIES}{row['id']}/redeliver/").status_code == 404


def test_a_delivery_tells_its_state_its_tries_and_its_next_one(ada):
    hook = register(ada).json()["id"]
    order = placed(ada)

    (row,) = ada.get(DELIVERIES).json()["results"]
    assert row["order"] == order
    assert (row["webhook"], row["queue"], row["event"], row["seq"]) == (hook, None, "order.received", 1)
    assert (row["state"], row["tries"], row["last_error"], row["message_id"]) == ("waiting", 0, None, f"msg_{order}_1")

    ((due,),) = deliveries.claim_webhooks(1, 1, suspect=False).values()
    deliveries.record([Try(due, delivered=False, answered=True, status_code=500, error="answered 500", seconds=0.25)])

    whole = ada.get(f"{DELIVERIES}{row['id']}/").json()
    assert (whole["state"], whole["tries"], whole["status_code"], whole["last_error"]) == ("waiting", 1, 500, "answered 500")
    assert [(entry["status_code"], entry["error"], entry["seconds"]) for entry in whole["log"]] == [(500, "answered 500", 0.25)]
    assert json.loads(whole["body"])["data"] == {"order": order, "seq": 1, "status": "received"}
    assert whole["next_try_at"] > whole["created_at"]


def test_the_deliveries_of_an_order_are_found_after_it_was_archived(ada):
    register(ada)
    order = placed(ada)
    cancel_order(order, by="ada", reason="no")
    deliveries.fan_out()
    Delivery.objects.update(delivered_at=Now())
    Notification.objects.update(delivered_at=Now())

    assert archive.take([order]).runs == 1

    rows = ada.get(DELIVERIES, {"order": order}).json()["results"]
    assert {row["event"] for row in rows} >= {"order.received", "order.cancelled"}
    assert {row["order"] for row in rows} == {order}


def test_deliveries_are_filtered_by_state_order_and_webhook(ada):
    hook = register(ada).json()["id"]
    first, second = placed(ada), placed(ada)
    done = Delivery.objects.get(run__key=first)
    Delivery.objects.filter(pk=done.pk).update(delivered_at="2026-01-01T00:00Z")

    def found(**filters):
        answer = ada.get(DELIVERIES, filters)
        return [row["order"] for row in answer.json()["results"]] if answer.status_code == 200 else answer.json()["errors"].keys()

    assert found(state="delivered") == [first]
    assert found(state="waiting") == [second]
    assert found(state="given-up") == []
    assert found(order=second) == [second]
    assert found(order="no-such-order") == []
    assert found(webhook=hook) == [second, first]
    assert found(webhook="wh_other") == []
    assert found(state="lost") == {"state"}
    assert found(foo="x") == {"foo"}


def test_a_delivery_is_sent_again_on_request(ada, olga, vera):
    register(ada)
    placed(ada)
    row = Delivery.objects.get()
    Delivery.objects.update(given_up_at="2026-01-01T00:00Z", tries=9, asked_at="2025-12-01T00:00Z")

    assert vera.post(f"{DELIVERIES}{row.public_id}/redeliver/").status_code in (403, 404)
    answer = ada.post(f"{DELIVERIES}{row.public_id}/redeliver/")
    assert (answer.status_code, answer.json()["state"], answer.json()["tries"]) == (202, "waiting", 0)
    assert olga.post(f"{DELIVERIES}{row.public_id}/redeliver/").status_code == 202

    row.refresh_from_db()
    assert [entry["asked_by"] for entry in row.log] == ["ada", "olga"]


def test_a_client_reads_no_operators_name_in_the_log_of_its_delivery(ada, olga, vera):
    register(ada)
    placed(ada)
    address = f"{DELIVERIES}{Delivery.objects.get().public_id}/"
    for caller in (ada, olga):
        caller.post(f"{address}redeliver/")

    assert [entry["asked_by"] for entry in ada.get(address).json()["log"]] == ["ada", "operator"]
    for reader in (olga, vera):
        assert [entry["asked_by"] for entry in reader.get(address).json()["log"]] == ["ada", "olga"]


def test_a_delivery_without_a_receiver_is_not_sent_again(ada):
    hook = register(ada).json()["id"]
    placed(ada)
    ada.delete(f"{HOOKS}{hook}/")

    answer = ada.post(f"{DELIVERIES}{Delivery.objects.get().public_id}/redeliver/")

    assert (answer.status_code, answer.json()["code"]) == (409, "receiver_gone")


def test_an_account_tries_its_own_webhook_and_reads_the_result_in_the_log(ada, bob):
    hook = register(ada, events=["order.error"]).json()["id"]

    answer = ada.post(f"{HOOKS}{hook}/test/")

    told = answer.json()
    assert (answer.status_code, told["event"], told["order"], told["seq"], told["state"]) == (202, "webhook.test", None, 0, "waiting")
    assert [row["id"] for row in ada.get(DELIVERIES, {"webhook": hook}).json()["results"]] == [told["id"]]
    assert json.loads(ada.get(f"{DELIVERIES}{told['id']}/").json()["body"])["type"] == "webhook.test"
    assert bob.post(f"{HOOKS}{hook}/test/").status_code == 404
    WebhookEndpoint.objects.update(active=False)
    answer = ada.post(f"{HOOKS}{hook}/test/")
    assert (answer.status_code, answer.json()["code"], Delivery.objects.count()) == (409, "receiver_gone", 1)


def test_lists_cost_the_same_however_many_rows_they_show(ada, django_assert_max_num_queries):
    register(ada)
    placed(ada)
    with django_assert_max_num_queries(4):
        ada.get(DELIVERIES)
    for _ in range(5):
        placed(ada)

    with django_assert_max_num_queries(4):
        assert len(ada.get(DELIVERIES).json()["results"]) == 6


def test_registering_asks_no_broker(ada, monkeypatch):
    """The web process answers without the broker: work at the broker goes through the outbox."""
    monkeypatch.setattr(reply_queues, "_connection", lambda: pytest.fail("asked the broker"))

    made = ada.post(TOKENS).json()
    assert ada.delete(f"{TOKENS}{made['id']}/").status_code == 204
