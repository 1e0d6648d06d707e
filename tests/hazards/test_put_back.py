"""A database's clock that ran ahead and is put back holds nothing up for as long as the jump was (H26)."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models.functions import Now

from supervision import testing
from supervision.governance import circuit_breaker, rate_limiter, resources
from supervision.intake import submission
from supervision.jobs import working
from supervision.models import Channel, Delivery, Incident, Notification, Resource, Telling, WebhookEndpoint
from supervision.outbox import channels, deliveries, notifications
from supervision.recovery import corrected_clock
from supervision.testing import run_until_idle, step, submit
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("engine")
HOUR = 3600.0


def jump(seconds: float = HOUR) -> None:
    """Put the database's clock back by so much: every time of the engine lies so much later than the clock says now."""
    kit.fetch("INSERT INTO supervision_pulse (minute) VALUES (date_trunc('minute', now())) ON CONFLICT DO NOTHING")
    testing.let_pass(-seconds)
    kit.fetch("UPDATE supervision_pulse SET minute = minute + %s * interval '1 s'", [seconds])
    resources.forget()


def ahead(table: str, column: str) -> float:
    """How many seconds the only row's time lies ahead."""
    return float(kit.fetch(f"SELECT extract(epoch FROM {column} - now()) FROM {table}")[0][0])  # noqa: S608 - our own names


def test_a_step_that_was_due_is_due():
    key = kit.waiting()[0]
    jump()

    kit.supervisor.sweep_once()
    run_until_idle()

    assert kit.state(key) == "Processed"


def test_a_retry_that_was_put_off_begins_after_its_own_delay():
    key, _, _ = kit.started()
    kit.expire_and_sweep(key)
    kit.fetch("UPDATE supervision_stepstate SET not_before = now() + interval '20 s' WHERE attempt = 1")
    jump()

    kit.supervisor.sweep_once()

    [[left]] = kit.fetch("SELECT extract(epoch FROM not_before - now()) FROM supervision_stepstate WHERE attempt = 1")
    assert 15 < left <= 21


@pytest.mark.parametrize(("delay", "sweeps"), [(300, 1), (300, 3), (2 * HOUR, 3)])
def test_however_many_sweeps_see_the_jump_the_delay_is_what_is_waited(delay: float, sweeps: int):
    """A delay that is longer than the jump is left as it is: it becomes no more than twice as long."""
    key, _, _ = kit.started()
    kit.expire_and_sweep(key)
    kit.fetch("UPDATE supervision_stepstate SET not_before = now() + %s * interval '1 s' WHERE attempt = 1", [delay])
    kit.fetch("INSERT INTO supervision_notification (kind, payload, not_before) VALUES ('job', '{}', now() + %s * interval '1 s')", [delay])
    jump()

    for _ in range(sweeps):
        kit.supervisor.sweep_once()

    [[left]] = kit.fetch("SELECT extract(epoch FROM not_before - now()) FROM supervision_stepstate WHERE attempt = 1")
    [[later]] = kit.fetch("SELECT extract(epoch FROM not_before - now()) FROM supervision_notification WHERE kind = 'job'")
    assert delay - 30 < left <= (delay + 1 if delay < HOUR else 2 * delay)
    assert delay - 30 < later <= delay + 1


def test_a_retry_that_is_put_off_for_long_by_a_clock_that_is_right_keeps_its_delay():
    key, _, _ = kit.started()
    kit.expire_and_sweep(key)
    kit.fetch("UPDATE supervision_stepstate SET not_before = now() + interval '2 days' WHERE attempt = 1")
    kit.fetch("INSERT INTO supervision_pulse (minute) VALUES (now() + interval '1 hour')")

    kit.supervisor.sweep_once()

    assert step(key, "alpha-step").not_before > kit.fetch("SELECT now() + interval '47 hours'")[0][0]


def test_without_a_minute_in_the_future_a_sweep_asks_no_table(monkeypatch: Any):
    kit.fetch("INSERT INTO supervision_pulse (minute) VALUES (now())")
    asked: list[str] = []
    monkeypatch.setattr(corrected_clock.db, "run", lambda statement, facts: asked.append(statement) or [(False,)])

    corrected_clock.look(100)

    assert asked == [corrected_clock._WAS_AHEAD]


def test_an_open_breaker_lets_calls_try_again_after_its_cool_down():
    Resource.objects.create(name="alpha", breaker_threshold=1, cool_down_seconds=5)
    circuit_breaker.failed("alpha", [circuit_breaker.FailedCall(1, unreachable=True)])
    jump()
    assert not circuit_breaker.admit("alpha", [7]).runs

    corrected_clock.look(100)

    assert list(circuit_breaker.admit("alpha", [7]).runs) == [7]


def test_probes_of_before_the_jump_give_their_places_back():
    Resource.objects.create(name="alpha", breaker_threshold=1, cool_down_seconds=1)
    circuit_breaker.failed("alpha", [circuit_breaker.FailedCall(1, unreachable=True)])
    testing.let_pass(2)
    resources.forget()
    assert circuit_breaker.admit("alpha", [7]).runs
    jump()
    assert not circuit_breaker.admit("alpha", [8]).runs

    corrected_clock.look(100)

    assert list(circuit_breaker.admit("alpha", [8]).runs) == [8]


def test_a_success_clears_a_failure_that_was_noted_in_the_future():
    Resource.objects.create(name="alpha", breaker_threshold=3)
    circuit_breaker.failed("alpha", [circuit_breaker.FailedCall(1, unreachable=True)])
    jump()

    corrected_clock.look(100)

    circuit_breaker.change("alpha", lambda breaker: breaker.succeeded([0.0], just_now=True))
    assert Resource.objects.get(name="alpha").failures == 0


def test_the_rate_limiter_makes_calls_again_and_dead_calls_give_their_slots_back():
    Resource.objects.create(name="alpha", rate_per_second=10, capacity=1)
    assert rate_limiter.take("alpha", [(1, "do", 0, 1)], lease_seconds=30).delays
    jump()

    corrected_clock.look(100)

    assert ahead("supervision_slot", "until") <= 31
    testing.let_pass(32)
    assert rate_limiter.take("alpha", [(2, "do", 0, 1)], lease_seconds=30).delays


@pytest.mark.parametrize("tries", [0, 1, 4, 9])
def test_a_notification_waits_no_longer_than_its_own_back_off(tries: int):
    Notification.objects.create(kind="alert", tries=tries)
    jump()

    corrected_clock.look(100)

    assert ahead("supervision_notification", "not_before") <= 0
    assert notifications.deliver_due() == 1


def test_a_notification_that_is_meant_for_later_keeps_its_delay():
    Notification.objects.create(kind="alert")
    kit.fetch("UPDATE supervision_notification SET not_before = now() + interval '2 days'")
    jump()

    corrected_clock.look(100)

    assert 47 * HOUR < ahead("supervision_notification", "not_before") <= 48 * HOUR + 1


def test_a_webhook_gets_its_message():
    hook = WebhookEndpoint.objects.create(public_id="wh_1", client="user:1", url="http://127.0.0.1:9/", secret="", failures=3)
    kit.fetch("UPDATE supervision_webhookendpoint SET retry_at = now() + interval '40 s'")
    Delivery.objects.create(
        public_id="dlv_1", client="user:1", endpoint=hook, seq=1, event="order.Processed", message_id="m", body="{}", tries=2
    )
    jump()

    corrected_clock.look(100)

    assert len(deliveries.claim_webhooks(5, 5, suspect=True)) == 1


def test_a_channel_is_told():
    channel = Channel.objects.create(name="ops", kind="webhook", address="http://127.0.0.1:9/", failures=2)
    kit.fetch("UPDATE supervision_channel SET retry_at = now() + interval '20 s'")
    Telling.objects.create(channel=channel, incident_id=Incident.objects.create(kind="error", cause="x").pk, event="opened", attempt=2)
    jump()

    corrected_clock.look(100)

    assert kit.fetch(channels._DUE, {"busy": []}) == [(channel.pk,)]


def test_a_submission_whose_hint_was_lost_is_hinted_at_again():
    submit("toy-plain", {})
    assert not submission.waiting(60)
    jump()

    assert submission.waiting(60)


def test_a_process_that_died_looks_alive_no_longer_than_usual():
    kit.fetch("INSERT INTO supervision_heartbeat (incarnation, role) VALUES ('dead', 'agents')")
    jump()

    corrected_clock.look(100)

    assert ahead("supervision_heartbeat", "seen_at") <= 0


def test_a_job_whose_process_died_is_hinted_at_again():
    kit.fetch(
        "INSERT INTO supervision_job (verb, filter, changes, reason, started_by, total, held, leased_by, leased_until)"
        " VALUES ('cancel', '{}', '{}', 'x', 'olga', 1, '[]', 'dead', now() + interval '30 s')"
    )
    assert not working.relay()
    jump()

    assert working.relay()


def test_a_row_that_another_process_has_locked_holds_no_other_up():
    tables = [f"supervision_{name}" for name in ("resource", "slot", "channel", "telling", "webhookendpoint")]
    Resource.objects.create(name="alpha", breaker_threshold=1, capacity=1)
    circuit_breaker.failed("alpha", [circuit_breaker.FailedCall(1, unreachable=True)])
    rate_limiter.take("alpha", [(1, "do", 0, 1)], lease_seconds=30)
    channel = Channel.objects.create(name="ops", kind="webhook", address="http://127.0.0.1:9/", retry_at=Now())
    Telling.objects.create(channel=channel, event="test", attempt=1)
    WebhookEndpoint.objects.create(public_id="wh_1", client="user:1", url="http://127.0.0.1:9/", secret="", retry_at=Now())
    kit.fetch("INSERT INTO supervision_heartbeat (incarnation, role) VALUES ('held', 'agents'), ('free', 'agents')")
    jump()
    with kit.another_connection() as other:
        for table in tables:
            other.execute(f"SELECT FROM {table} FOR UPDATE")
        other.execute("SELECT FROM supervision_heartbeat WHERE incarnation = 'held' FOR UPDATE")
        kit.fetch("SET lock_timeout = '1 s'")
        try:
            corrected_clock.look(100)
        finally:
            kit.fetch("RESET lock_timeout")

    seen = dict(kit.fetch("SELECT incarnation, seen_at > now() FROM supervision_heartbeat"))
    assert seen == {"held": True, "free": False}
