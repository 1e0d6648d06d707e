"""Causes of incidents that no step shows: dead letters, forgotten pauses, receivers that accept nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from supervision.approvals import waiting
from supervision.incidents import causes, lifecycle
from supervision.intake import consuming
from supervision.models import Approval, DeadLetter, Incident, Notification, Resource, WebhookEndpoint
from supervision.operations import operator_verbs, pauses
from supervision.testing import run_of, submit_many
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("engine")


def hours_ago(hours: float) -> str:
    return (timezone.now() - timedelta(hours=hours)).isoformat()


def test_open_dead_letters_are_one_incident_until_each_is_decided(tuned):
    tuned(INCIDENT_CRITICAL_ORDERS=3)
    letters = [DeadLetter.objects.create(source="test", body=b"x", reason="y", public_id=key) for key in (None, "an-order")]
    assert kit.incidents() == ["dead_letters"]
    assert Incident.objects.get().title == "2 dead letters wait for a decision."
    assert (Incident.objects.get().orders, Incident.objects.get().severity, kit.told()) == (1, "warning", 1)

    DeadLetter.objects.create(source="test", body=b"x", reason="y", public_id="another-order")
    kit.looked()
    assert (Incident.objects.get().orders, Incident.objects.get().severity, kit.told()) == (2, "critical", 2)

    for letter in [*letters, DeadLetter.objects.latest("id")]:
        operator_verbs.discard_dead_letter(letter.pk, by="olga", reason="noise")
    assert kit.incidents() == []


@pytest.mark.parametrize(
    ("scope", "name", "cause"),
    [
        ("all", "", "pause_overrun:all"),
        ("agent", "alpha", "pause_overrun:agent:alpha"),
        ("workflow", "toy-plain", "pause_overrun:workflow:toy-plain"),
        ("order", "first", "pause_overrun:order"),
    ],
)
def test_a_pause_without_an_end_that_outlived_its_bound_is_an_incident(scope, name, cause):
    keys = kit.waiting(2)
    pauses.pause(scope, keys[0] if scope == "order" else name, reason="maintenance", by="olga")
    assert kit.incidents() == []

    kit.fetch("UPDATE supervision_pause SET paused_at = now() - interval '241 min'")
    assert kit.incidents() == [cause]

    row = Incident.objects.get()
    held = [run_of(key).pk for key in (keys[:1] if scope == "order" else keys)]
    assert row.orders == len(held)
    assert lifecycle.runs_of(row.kind, row.cause) == sorted(held)
    assert lifecycle.holding([run_of(key).pk for key in keys]) == dict.fromkeys(held, row.pk)
    assert timezone.now() - row.opened_at > timedelta(hours=4)

    pauses.lift(scope, keys[0] if scope == "order" else name, by="olga")
    assert kit.incidents() == []


def test_a_pause_with_an_end_or_that_holds_nobody_is_none():
    pauses.pause("agent", "alpha", reason="r", by="olga")
    pauses.pause("all", reason="r", by="olga", until=timedelta(days=1))
    kit.fetch("UPDATE supervision_pause SET paused_at = now() - interval '5 hours'")
    assert kit.incidents() == []

    kit.waiting(2)
    assert kit.incidents() == ["pause_overrun:agent:alpha"]


def test_a_resource_that_stays_paused_while_steps_wait_is_an_incident():
    keys = kit.waiting(2)
    Resource.objects.update_or_create(name="alpha", defaults={"paused": True})
    assert kit.incidents() == []

    kit.fetch("UPDATE supervision_stepstate SET not_before = now() - interval '5 hours' WHERE not_before IS NOT NULL")
    assert kit.incidents() == ["pause_overrun:resource:alpha"]
    row = Incident.objects.get()
    assert (row.orders, row.resource) == (2, "alpha")
    assert lifecycle.runs_of(row.kind, row.cause) == sorted(run_of(key).pk for key in keys)
    assert set(lifecycle.holding([run_of(key).pk for key in keys]).values()) == {row.pk}


def test_a_webhook_that_takes_nothing_for_long_is_an_incident_until_it_takes_something():
    hook = WebhookEndpoint.objects.create(
        public_id="wh_x", client="shop", url="https://shop.example/", secret="s", failing_since=timezone.now()
    )
    try:
        assert kit.incidents() == []
        WebhookEndpoint.objects.update(failing_since=hours_ago(1))
        assert kit.incidents() == ["delivery_failed:webhook:wh_x"]
        assert "https://shop.example/" in Incident.objects.get().title

        WebhookEndpoint.objects.update(failing_since=None)
        assert kit.incidents() == []
    finally:
        hook.delete()


def test_many_webhooks_that_take_nothing_are_one_incident():
    """Our own way out is closed: operators are told once, and not of each receiver."""
    made = [
        WebhookEndpoint(public_id=f"wh_{n}", client=f"shop:{n}", url=f"https://{n}.example/", secret="s", failing_since=hours_ago(1))
        for n in range(causes.ONE_BY_ONE + 1)
    ]
    WebhookEndpoint.objects.bulk_create(made)
    try:
        assert kit.incidents() == ["delivery_failed:webhooks"]
        assert Incident.objects.get().title == "21 webhooks do not take their messages."

        WebhookEndpoint.objects.filter(public_id__in=["wh_3", "wh_4"]).update(failing_since=None)
        assert len(kit.incidents()) == 19
        assert Incident.objects.filter(closed_at=None, cause__startswith="delivery_failed:webhook:wh_").count() == 19
    finally:
        WebhookEndpoint.objects.all().delete()


def test_many_requests_for_an_approval_with_a_reason_each_are_one_incident():
    """A client that asks for each order in its own words is told of once, as one that gives all the same reason."""
    facts = {"verb": "refund", "asked_by": "olga", "stake": [["30.00", "EUR"]], "expires_at": timezone.now() + timedelta(days=1)}
    keys = kit.waiting(2)
    for n in range(waiting.ONE_BY_ONE + 1):
        run_id = run_of(keys[n % 2]).pk
        Approval.objects.create(subject=f"order {n}", identity=f"{n}", reason=f"order {n} came late", run_id=run_id, **facts)
    try:
        [cause] = kit.incidents()
        row = Incident.objects.get()
        assert row.title.startswith("olga asks another operator to approve 21 times: refund, 630.00 EUR.")
        assert set(lifecycle.runs_of(row.kind, cause)) == {run_of(key).pk for key in keys}

        Approval.objects.filter(identity__in=["3", "4"]).update(state="refused")
        assert len(kit.incidents()) == 19
    finally:
        Approval.objects.all().delete()


def test_what_was_given_up_is_told_of_until_somebody_has_seen_it():
    Notification.objects.create(kind="letter", given_up_at=timezone.now(), last_error="550 no such user")
    assert kit.incidents() == ["delivery_failed:notifications"]

    operator_verbs.acknowledge_incident(Incident.objects.get().pk, by="olga", reason="an old address")
    assert kit.incidents() == []

    Notification.objects.create(kind="letter", given_up_at=timezone.now() + timedelta(seconds=1), last_error="550 no such user")
    assert kit.incidents() == ["delivery_failed:notifications"]


def given_up() -> None:
    kit.fetch(
        "INSERT INTO supervision_notification (kind, payload, given_up_at, last_error) VALUES ('letter', '{}', clock_timestamp(), 'no')"
    )


def test_what_was_seen_does_not_count_again_when_its_incident_returns():
    """The incident returns within half an hour and has to be acknowledged again, for the new message alone."""
    for _ in range(3):
        given_up()
        assert kit.incidents() == kit.incidents() == ["delivery_failed:notifications"]
        assert Incident.objects.get().title == "1 message of ours was refused and given up: no"
        operator_verbs.acknowledge_incident(Incident.objects.get().pk, by="olga", reason="an old address")
        assert kit.incidents() == []

    assert kit.told() == 2, "its beginning and its end"


def test_messages_that_fail_again_and_again_are_told_of_by_their_kind_until_they_are_delivered():
    waits = {"kind": "letter", "tries": 3, "not_before": timezone.now() + timedelta(hours=1)}
    failing = [Notification.objects.create(last_error="no such table", **waits) for _ in range(2)]
    Notification.objects.create(kind="letter")  # has not been tried
    assert kit.incidents() == [], "it may still be delivered"

    Notification.objects.filter(pk__in=[one.pk for one in failing]).update(created_at=hours_ago(1))
    assert kit.incidents() == ["delivery_failed:letter"]
    assert Incident.objects.get().title == "2 messages of the kind letter fail again and again, the last: no such table"

    Notification.objects.update(delivered_at=timezone.now())
    assert kit.incidents() == []


def test_an_order_behind_its_sessions_head_is_held_by_what_holds_the_head():
    first, second = submit_many("toy-plain", [{"n": 1, "session": "s"}, {"n": 2, "session": "s"}])
    consuming.consume_batch(born=False)
    head, behind = run_of(first), run_of(second)
    kit.fetch("UPDATE supervision_run SET session_key = 's' WHERE id = ANY (%s)", [[head.pk, behind.pk]])
    kit.fetch("UPDATE supervision_stepstate SET not_before = NULL WHERE run_id = %s", [behind.pk])
    kit.fetch("UPDATE supervision_stepstate SET not_before = now() - interval '10 min' WHERE run_id = %s AND position = 0", [head.pk])
    assert kit.incidents() == ["starvation:agent.alpha"]

    row = Incident.objects.get()

    assert row.orders == 1
    assert lifecycle.holding([head.pk, behind.pk]) == {head.pk: row.pk, behind.pk: row.pk}


def test_an_outage_of_its_resource_holds_every_order_that_waits_there():
    keys = kit.waiting(3)
    Resource.objects.update_or_create(
        name="alpha", defaults={"breaker_state": "open", "opened_at": hours_ago(1), "retry_at": hours_ago(-1)}
    )
    assert kit.incidents() == ["outage:alpha"]
    row = Incident.objects.get()

    runs = [run_of(key).pk for key in keys]

    assert lifecycle.holding(runs) == dict.fromkeys(runs, row.pk)
    assert lifecycle.runs_of(row.kind, row.cause) == sorted(runs)
    assert (row.orders, kit.told()) == (3, 1)


def test_an_outage_of_an_hour_is_one_incident_and_its_orders_end_without_another(tuned):
    keys = kit.waiting(30)
    down = {"breaker_state": "open", "opened_at": hours_ago(1), "retry_at": hours_ago(-1), "last_error_at": timezone.now()}
    Resource.objects.update_or_create(name="alpha", defaults=down)
    kit.fetch("UPDATE supervision_stepstate SET not_before = now() - interval '1 hour' WHERE not_before IS NOT NULL")
    for _ in range(3):
        kit.looked()
    kit.fetch("UPDATE supervision_resource SET breaker_state = 'closed', opened_at = NULL, retry_at = NULL, failures = 0")
    for _ in range(3):
        kit.looked()

    assert list(Incident.objects.values_list("cause", flat=True)) == ["outage:alpha"]
    events = [row["event"] for row in Notification.objects.filter(kind="incident").order_by("pk").values_list("payload", flat=True)]
    assert events == ["opened", "closed"]
    kit.circuit_breaker.forget()
    assert kit.idle_states(keys) == {"Processed"}


def test_orders_of_a_version_that_nobody_knows_are_held_by_its_incident():
    (key,) = kit.waiting(1)
    run = run_of(key)
    Incident.objects.create(kind="unknown_version", cause="unknown_version:toy-plain:1")

    assert set(lifecycle.holding([run.pk])) == {run.pk}
    assert lifecycle.runs_of("unknown_version", "unknown_version:toy-plain:1") == [run.pk]
    assert lifecycle.runs_of("unknown_version", "unknown_version:odd") == []
    assert lifecycle.runs_of("of-a-newer-version", "x") == []
