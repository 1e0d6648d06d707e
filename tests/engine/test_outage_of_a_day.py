"""A service that is out for longer than an order may take: no order stops in Error, there is one incident, all orders end."""

from __future__ import annotations

import pytest

from supervision.errors import OutcomeUnknown
from supervision.governance import resources
from supervision.insight import waiting
from supervision.models import Alert, Incident, Notification, Run, StepState
from supervision.recovery import supervisor
from supervision.testing import make_due, run_until_idle, submit_many
from tests.engine import kit
from tests.support import toy
from tests.support.soak import sized

pytestmark = [pytest.mark.usefixtures("engine"), pytest.mark.timeout(1800)]

ORDERS = sized(300, 2000)
MINUTES_DOWN = 20


def a_minute_passes() -> None:
    """Let a minute pass, then run a sweep and a pass of the scheduler."""
    kit.hours_pass(1 / 60)
    resources.forget()
    supervisor.sweep_once()
    run_until_idle()


def states() -> set[str]:
    return set(Run.objects.values_list("process_state", flat=True).distinct())


def mails() -> list[str]:
    return [row["event"] for row in Notification.objects.filter(kind="incident").order_by("pk").values_list("payload", flat=True)]


def test_many_orders_wait_for_a_service_that_is_out_past_their_own_time():
    toy.BETA.on_perform = kit.raising(OutcomeUnknown("failed (500)"))
    submit_many("toy-plain", [{"n": n} for n in range(ORDERS)])
    run_until_idle()
    for _ in range(MINUTES_DOWN):
        a_minute_passes()
    kit.hours_pass(25)  # past complete_by, which is 24 h after the order
    for _ in range(3):
        a_minute_passes()

    assert states() == {"Processing"}
    assert set(StepState.objects.filter(name="beta-step").values_list("failure_count", flat=True)) == {0}
    (incident,) = Incident.objects.filter(closed_at__isnull=True)
    assert (incident.cause, incident.orders, incident.severity) == ("outage:beta", ORDERS, "critical")
    assert (mails(), Alert.objects.count()) == (["opened"], 0)
    told = waiting.why_waiting(list(Run.objects.values_list("pk", flat=True)))
    assert len(told) == ORDERS
    assert all(words is not None and "beta does not answer: its breaker is" in words for words in told.values())

    toy.BETA.on_perform = None
    for _ in range(10):
        make_due()
        a_minute_passes()
        if states() == {"Processed"}:
            break

    assert states() == {"Processed"}
    supervisor.sweep_once()
    assert not Incident.objects.filter(closed_at__isnull=True).exists()
    assert mails() == ["opened", "closed"]
    assert kit.healthy()
