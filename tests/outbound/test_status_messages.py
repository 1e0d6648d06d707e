"""The database writes a status message in the transaction of its transition, with numbers without a gap."""

from __future__ import annotations

import pytest
from django.db import transaction

from supervision.errors import PermanentFailure
from supervision.intake.consuming import consume_batch
from supervision.models import Notification, WebhookEndpoint
from supervision.operations import operator_verbs
from supervision.outbox import subscriptions
from supervision.testing import make_due, run_of, run_until_idle, submit
from tests.engine import kit as engine_kit
from tests.outbound import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("out")


@pytest.fixture(autouse=True)
def ada_listens(out):
    kit.listen("https://shop.example/hook")


refuse = engine_kit.raising(PermanentFailure("no"))


def test_an_order_that_goes_through_is_received_processing_and_processed():
    key = kit.done()

    assert kit.told(key) == [(1, "received"), (2, "processing"), (3, "processed")]
    assert run_of(key).status_seq == 3


def test_an_order_that_is_undone_says_so_at_its_end_and_not_before():
    toy.GAMMA.on_perform = refuse
    key = kit.order("toy-undo")
    consume_batch(born=False)
    run_until_idle()

    assert run_of(key).process_state == "Cancelled"
    assert kit.statuses(key) == ["received", "processing", "cancelled"]


def test_an_order_that_goes_on_after_an_error_says_so_again():
    toy.BETA.on_perform = refuse
    key = kit.order()
    run_until_idle()
    assert kit.statuses(key) == ["received", "processing", "error"]

    toy.BETA.on_perform = None
    operator_verbs.resubmit(key, by="olga", reason="fixed")
    run_until_idle()

    assert kit.statuses(key) == ["received", "processing", "error", "processing", "processed"]


def test_an_undo_that_fails_and_is_resubmitted_is_told_without_a_gap():
    toy.BETA.on_perform = toy.ALPHA.on_compensate = refuse
    key = kit.order("toy-undo")
    run_until_idle()
    assert kit.statuses(key) == ["received", "processing", "error"]

    toy.ALPHA.on_compensate = None
    operator_verbs.resubmit(key, by="olga", reason="fixed")
    make_due(key)
    run_until_idle()

    assert run_of(key).process_state == "Cancelled"
    assert kit.statuses(key) == ["received", "processing", "error", "cancelled"]


def test_an_order_cancelled_before_it_was_taken_up_is_received_and_cancelled():
    key = kit.order()
    operator_verbs.cancel(key, by="ada", reason="changed my mind")
    consume_batch()

    assert kit.statuses(key) == ["received", "cancelled"]


def test_an_order_that_begins_at_once_is_received_and_processing_at_once():
    key = kit.order()
    consume_batch(born=True)

    assert run_of(key).process_state == "Processing"
    assert kit.statuses(key) == ["received", "processing"]


def test_a_rolled_back_transition_tells_nobody():
    key, place, items = at_the_last_step()
    with transaction.atomic():
        engine_kit.finish(place, items)
        assert kit.statuses(key) == ["received", "processing", "processed"]
        transaction.set_rollback(True)

    assert run_of(key).process_state == "Processing"
    assert (kit.statuses(key), run_of(key).status_seq) == (["received", "processing"], 2)

    engine_kit.finish(place, items)
    assert kit.statuses(key) == ["received", "processing", "processed"]


def at_the_last_step():
    key = kit.order()
    ((place, claims),) = engine_kit.schedule()
    items = engine_kit.step_verbs.start(place, claims)
    while place.position < 2:
        claims = engine_kit.finish(place, items, {}).claims
        place = place.following
        items = engine_kit.step_verbs.start(place, claims)
    return key, place, items


def test_an_order_to_which_nobody_listens_leaves_nothing():
    key = kit.done(client=kit.BOB)

    assert run_of(key).process_state == "Processed"
    assert (run_of(key).notify, run_of(key).status_seq) == (False, 0)
    assert not Notification.objects.filter(kind="status").exists()


def test_orders_side_by_side_have_their_own_numbers():
    keys = [kit.order() for _ in range(5)] + [kit.order(client=kit.BOB)]
    run_until_idle()

    assert {tuple(kit.statuses(key)) for key in keys[:5]} == {("received", "processing", "processed")}
    assert kit.statuses(keys[5]) == []


def test_a_webhook_hears_of_the_next_order_after_its_registration():
    assert subscriptions.interested([kit.BOB, kit.ADA], [None, None]) == [False, True]

    kit.listen("https://elsewhere.example/", kit.BOB)

    assert subscriptions.interested([kit.BOB, "user:3"], [None, None]) == [True, False]


def test_a_webhook_that_is_switched_off_or_removed_listens_to_nothing():
    kit.listen("https://elsewhere.example/", kit.BOB)
    WebhookEndpoint.objects.filter(client=kit.BOB).update(active=False)
    subscriptions.remove_webhook(WebhookEndpoint.objects.get(client=kit.ADA))

    assert subscriptions.interested([kit.ADA, kit.BOB], [None, None]) == [False, False]


def test_an_order_with_a_reply_token_is_listened_to():
    assert subscriptions.interested(["user:3", "user:3"], ["a hash", None]) == [True, False]


def test_guests_cost_no_query(monkeypatch):
    monkeypatch.setattr("supervision.postgres.db.fetch", lambda *_: pytest.fail("asked the database"))

    assert subscriptions.interested(["", "guest"], [None, None]) == [False, False]


def test_an_order_of_a_guest_is_told_to_nobody():
    key = submit("toy-plain", {"n": 1})
    run_until_idle()

    assert kit.told(key) == []
