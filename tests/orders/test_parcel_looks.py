"""The looks at parcels of which no webhook came: every order is read once, every parcel is asked for until its journey ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib import import_module

import pytest
from django.apps import apps
from django.db import connection

from orders.agents import parcel_news
from orders.gateways import carrier as gateway
from orders.models import Parcel, ParcelCursor, ParcelWatch
from orders.parcels import watch
from supervision import testing
from supervision.testkit.run import Run
from tests.shopping import place
from tests.support.parcels import all_read, causes, due_now, event, gather, parcels, sent, shop, state, step_of, tell
from tests.support.shop import until

__all__ = ["sent", "shop"]


def test_the_parcels_of_new_orders_are_found_behind_them(shop, sent):
    gather()

    [parcel] = Parcel.objects.all()
    assert (parcel.key, parcel.order_key, parcel.shipment) == (step_of(sent).idempotency_key, sent, step_of(sent).result["shipment"])
    assert parcel.look_at > datetime.now(UTC)
    assert not ParcelWatch.objects.exists()
    parcel.delete()
    later = place()
    shop.run()
    gather()
    assert [one.order_key for one in Parcel.objects.all()] == [later]  # an order is read once


def test_an_order_that_has_not_ended_is_looked_at_again_and_an_old_one_never(shop, services, settings):
    services.faults("carrier", "error_before")
    key = place()
    shop.run()
    gather()
    assert ParcelWatch.objects.filter(order_key=key, looks=1, look_at__gt=datetime.now(UTC)).exists()
    services.clear()
    testing.let_pass(600)
    shop.run()
    Run(key).assert_state("Processed")
    ParcelWatch.objects.update(look_at=datetime.now(UTC))
    watch.look_at_orders()
    assert Parcel.objects.filter(order_key=key).exists()
    assert not ParcelWatch.objects.exists()

    Parcel.objects.all().delete()
    ParcelCursor.objects.all().delete()
    settings.PARCEL_WATCHED_FOR = 0.0
    gather()
    assert not Parcel.objects.exists()


def test_a_look_that_a_clock_that_was_put_back_has_set_too_far_ahead_is_due(shop, sent, settings):
    """No pause between two looks is so long (H26)."""
    until(all_read, what="the end of every earlier transaction of the server")
    far = 3 * max(watch.LONGEST_PAUSE, settings.PARCEL_LOOK_AFTER * 2**parcel_news.SLOWEST)
    ParcelWatch.objects.update(look_at=datetime.now(UTC) + timedelta(seconds=far))

    parcel_news.turn()

    assert [one.order_key for one in Parcel.objects.all()] == [sent]
    Parcel.objects.update(look_at=datetime.now(UTC) + timedelta(seconds=far))

    assert parcel_news.turn() == 1


def test_an_order_whose_row_becomes_visible_late_is_not_passed_by(shop):
    """Its id was given to a transaction that has not committed yet when later orders are read."""
    gather()
    early = connection.copy()
    early.ensure_connection()
    try:
        early.set_autocommit(False)
        with early.cursor() as cursor:
            cursor.execute(
                "INSERT INTO orders_order (public_id, number, run_id, email, total, currency) VALUES ('late', '1', 0, 'a@b.c', 1, 'EUR')"
            )
        later = place()
        shop.run()
        for _ in range(3):
            watch.read_orders()
        watch.look_at_orders()
        assert not ParcelWatch.objects.filter(order_key="late").exists()
        early.commit()
    finally:
        early.close()

    until(all_read, what="the end of every earlier transaction")

    assert ParcelWatch.objects.filter(order_key="late").exists()
    watch.look_at_orders()
    assert Parcel.objects.get().order_key == later


def test_orders_are_read_on_after_a_restore_to_a_server_that_has_made_fewer_transactions(shop, sent):
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO orders_parcelcursor (id, done_to, seen_to, seen_before) SELECT 1, 0, max(id), 4000000000 FROM orders_order"
        )

    gather()

    assert Parcel.objects.get().order_key == sent
    assert ParcelCursor.objects.get().seen_before < 4_000_000_000


def test_the_carrier_is_asked_where_no_webhook_came(shop, sent, services):
    gather()
    shipment = step_of(sent).result["shipment"]
    services.move(shipment, "picked_up")
    due_now()
    assert parcel_news.turn() == 1
    assert parcels(sent)[0]["state"] == "picked_up"
    assert parcels(sent)[0]["changed_at"] is not None
    assert parcel_news.turn() == 0  # not due

    services.move(shipment, "delivered")
    due_now()
    assert parcel_news.turn() == 1
    assert state(sent) == "delivered"
    due_now()
    assert parcel_news.turn() == 0  # a journey that has ended is asked for no more


@pytest.mark.parametrize("told", ["picked_up", "delivered"])
def test_a_look_that_a_webhook_overtook_brings_no_old_state_back(shop, sent, services, monkeypatch, told):
    gather()
    real = gateway.standing

    def overtaken(shipment):
        seen = real(shipment)
        tell(event(step_of(sent).idempotency_key, told))
        return seen

    monkeypatch.setattr(gateway, "standing", overtaken)
    due_now()
    parcel_news.turn()

    assert state(sent) == told
    assert (Parcel.objects.get().look_at is None) == (told == "delivered")


def test_a_carrier_that_is_away_is_asked_later_and_the_pauses_grow(shop, sent, services, settings):
    settings.PARCEL_LOOK_AFTER = 1_000.0
    gather()
    services.faults("carrier", "error_before")
    due_now()
    assert parcel_news.turn() == 0
    assert seconds_until_the_look() == pytest.approx(parcel_news.LEASE, abs=60)
    services.clear()
    Parcel.objects.update(looks=0)
    pauses = []
    for _ in range(6):
        due_now()
        parcel_news.turn()
        pauses.append(seconds_until_the_look())
    assert pauses == pytest.approx([1_000, 2_000, 4_000, 8_000, 8_000, 8_000], abs=60)


def test_a_parcel_of_which_the_carrier_always_answers_nonsense_holds_no_other_up_and_is_told(shop, services, monkeypatch):
    keys = [place() for _ in range(3)]
    shop.run()
    gather()
    spoiled = Parcel.objects.get(order_key=keys[0])
    for key in keys[1:]:
        services.move(step_of(key).result["shipment"], "picked_up")
    real = gateway.standing

    def standing(shipment):
        if shipment == spoiled.shipment:
            raise gateway.Broken("answered 410 to a look-up")
        return real(shipment)

    monkeypatch.setattr(gateway, "standing", standing)
    with connection.cursor() as cursor:  # it comes first, and its time is over
        cursor.execute("UPDATE orders_parcel SET look_at = now() - interval '1 s'")
        cursor.execute(
            "UPDATE orders_parcel SET look_at = now() - interval '1 min', booked_at = now() - interval '31 days' WHERE key = %s",
            [spoiled.key],
        )

    assert parcel_news.turn() == 3

    assert [state(key) for key in keys] == ["booked", "picked_up", "picked_up"]
    assert Parcel.objects.get(key=spoiled.key).look_at is None
    assert "tells no end" in causes().popitem()[1]


def test_a_carrier_that_answers_nonsense_to_all_is_asked_little(shop, services, monkeypatch):
    for _ in range(5):
        place()
    shop.run()
    gather()
    asked = []

    def standing(shipment):
        asked.append(shipment)
        raise gateway.Broken("failed (500)")

    monkeypatch.setattr(gateway, "standing", standing)
    due_now()

    assert (parcel_news.turn(), len(set(asked))) == (3, 3)


def seconds_until_the_look() -> float:
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM look_at - now())::float8 FROM orders_parcel")
        return cursor.fetchone()[0]


def test_a_parcel_without_an_end_is_told_and_not_asked_for_any_more(shop, sent, services):
    gather()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orders_parcel SET booked_at = now() - interval '31 days'")
    due_now()
    assert parcel_news.turn() == 1

    assert Parcel.objects.get().look_at is None
    assert "tells no end" in causes().popitem()[1]
    tell(event(step_of(sent).idempotency_key, "delivered"))
    assert causes() == {}


def test_a_parcel_that_the_carrier_has_deleted_is_shown_as_such(shop, sent, services):
    gather()
    gateway_delete(step_of(sent).idempotency_key, sent)
    due_now()
    parcel_news.turn()

    assert state(sent) == "cancelled"
    assert Parcel.objects.get().look_at is None


def gateway_delete(key: str, order: str) -> None:
    with parcel_news.http.budget(parcel_news.time.monotonic() + 10):
        gateway.delete(key, order)


def test_delivered_parcels_cost_a_look_nothing(shop):
    """A hundred thousand of them: the statement reads the index of the parcels that are due, and finds it empty."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO orders_parcel (key, order_key, state) SELECT 'k' || n, 'o' || n, 'delivered' FROM generate_series(1, 100000) n"
        )
        cursor.execute("ANALYZE orders_parcel")
        cursor.execute("EXPLAIN SELECT key FROM orders_parcel WHERE look_at <= now() ORDER BY look_at LIMIT 10 FOR UPDATE SKIP LOCKED")
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "parcel_to_look_at" in plan
    assert parcel_news.turn() == 0


def test_two_processes_share_the_looks(shop, services):
    for _ in range(4):
        place()
    shop.run()
    gather()
    due_now()

    asked = testing.at_once(parcel_news.turn, parcel_news.turn)

    assert sum(asked) == 4
    assert set(Parcel.objects.values_list("looks", flat=True)) == {1}


def test_a_parcel_that_another_process_has_in_hand_is_not_waited_for(shop, services):
    for _ in range(2):
        place()
    shop.run()
    gather()
    due_now()
    other = connection.copy()
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor, connection.cursor() as ours:
            cursor.execute("SELECT key FROM orders_parcel ORDER BY look_at LIMIT 1 FOR UPDATE")
            ours.execute("SET lock_timeout = '1s'")
            assert parcel_news.turn() == 1
    finally:
        with connection.cursor() as ours:
            ours.execute("SET lock_timeout TO DEFAULT")
        other.close()


def test_the_task_is_on_beats_list(db):
    migration = import_module("orders.migrations.0004_parcels")
    migration.create_periodic_task(apps, None)
    task = apps.get_model("django_celery_beat", "PeriodicTask").objects.get(name=migration.TASK)

    assert (task.task, task.queue, task.interval.every) == ("orders.look_at_parcels", "supervisor", 60)
    migration.remove_periodic_task(apps, None)
    assert not apps.get_model("django_celery_beat", "PeriodicTask").objects.filter(name=migration.TASK).exists()
