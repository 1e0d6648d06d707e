"""Steps that no process takes open one incident per agent, unless a breaker, pause, limit or session explains the wait."""

from __future__ import annotations

import pytest

from supervision.governance import circuit_breaker
from supervision.incidents import lifecycle, starvation
from supervision.models import Alert, Incident, Resource, ResourceRoute, StepState
from supervision.operations import pauses
from supervision.recovery import supervisor
from supervision.testing import run_of, run_until_idle, schedule, step, submit_many
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("engine")

AGENT = "starvation:agent.alpha"


def waiting(count: int = 3) -> list[str]:
    """Orders whose first step has been due for ten minutes and was never tried: it has no `complete_by`."""
    keys = kit.waiting(count)
    kit.fetch("UPDATE supervision_stepstate SET not_before = now() - interval '10 min' WHERE position = 0 AND complete_by IS NULL")
    return keys


def test_fresh_steps_that_nobody_picks_up_are_one_incident_whatever_their_number(tuned):
    tuned(INCIDENT_CRITICAL_ORDERS=5)
    keys = waiting(12)

    assert kit.incidents() == [AGENT]

    row = Incident.objects.get()
    assert (row.orders, row.severity, kit.told()) == (12, "critical", 1)
    assert Alert.objects.filter(kind="starvation", incident=row, closed_at__isnull=True).count() == 12
    assert set(StepState.objects.values_list("failure_count", flat=True)) == {0}
    runs = [run_of(key).pk for key in keys]
    assert lifecycle.holding(runs) == dict.fromkeys(runs, row.pk)
    assert lifecycle.runs_of(row.kind, row.cause) == sorted(runs)

    run_until_idle()

    assert kit.incidents() == []
    assert not Alert.objects.filter(closed_at__isnull=True).exists()


def test_a_released_step_nobody_picks_up_raises_one_alert_and_no_count():
    key, *_ = kit.started()
    kit.expire_and_sweep(key)
    kit.fetch(
        "UPDATE supervision_stepstate SET complete_by = now() - interval '1 s', not_before = now() - interval '1 s'"
        " WHERE process_state = 'Pending' AND position = 0"
    )

    supervisor.sweep_once()
    supervisor.sweep_once()

    assert (kit.alerts(key), kit.told(), step(key, "alpha-step").failure_count) == (["starvation"], 1, 1)


def test_of_very_many_only_the_oldest_have_an_alert_each(monkeypatch):
    monkeypatch.setattr(starvation, "_RAISE", starvation._RAISE.replace(f"o.n <= {starvation.ALERTS}", "o.n <= 2"))
    waiting(5)

    kit.looked()
    kit.looked()

    assert (Incident.objects.get().orders, Alert.objects.count()) == (5, 2)


def test_submissions_that_nobody_consumes_are_one_incident():
    submit_many("toy-plain", [{"n": n} for n in range(4)])
    assert kit.incidents() == []
    kit.fetch("UPDATE supervision_submission SET created_at = now() - interval '6 min'")

    assert kit.incidents() == ["starvation:submissions"]
    assert (Incident.objects.get().orders, kit.told()) == (4, 1)

    run_until_idle()
    assert kit.incidents() == []


def test_a_young_step_starves_nobody():
    kit.waiting()

    assert kit.incidents() == []


def resource(**fields) -> None:
    Resource.objects.update_or_create(name="alpha", defaults=fields)


def test_a_pause_explains_and_so_it_does_until_the_step_has_had_its_time_again():
    waiting()
    pauses.pause("agent", "alpha", reason="maintenance", by="olga")
    assert kit.incidents() == []

    pauses.lift("agent", "alpha", by="olga")
    assert kit.incidents() == []
    kit.fetch("UPDATE supervision_pause SET lifted_at = now() - interval '301 s', paused_at = now() - interval '1 hour'")
    assert kit.incidents() == [AGENT]


@pytest.mark.parametrize("scope", ["all", "workflow", "order"])
def test_a_pause_of_anything_else_explains_too(scope):
    (key,) = waiting(1)
    pauses.pause(scope, {"all": "", "workflow": "toy-plain", "order": key}[scope], reason="r", by="olga")

    assert kit.incidents() == []

    kit.fetch("UPDATE supervision_pause SET until = now() - interval '10 min', paused_at = now() - interval '1 hour'")
    assert kit.incidents() == [AGENT]


def test_an_outage_is_no_starvation_and_its_end_is_no_alarm():
    """The service is down for minutes: every waiting step is overdue, during the outage and in the minutes after it."""
    waiting(20)
    resource(breaker_state="open", opened_at="2026-01-01T00:00Z", retry_at="2999-01-01T00:00Z")
    kit.looked()
    assert not Incident.objects.filter(kind="starvation").exists()

    resource(breaker_state="closed", opened_at=None, retry_at=None)
    kit.looked()
    assert not Incident.objects.filter(kind="starvation").exists()
    assert not Alert.objects.exists()

    kit.fetch("UPDATE supervision_closure SET ended_at = now() - interval '301 s'")
    assert AGENT in kit.incidents()


def test_a_paused_resource_explains():
    waiting()
    resource(paused=True)

    assert kit.incidents() == []


def test_a_resource_that_others_of_its_service_stand_in_for_explains_nothing():
    waiting()
    resource(paused=True)
    Resource.objects.create(name="alpha-2", service="alpha")

    assert kit.incidents() == [AGENT]


def test_a_step_that_is_bound_to_a_resource_that_is_out_is_explained():
    waiting(2)
    Resource.objects.create(name="alpha-2", service="alpha", paused=True)
    kit.fetch("UPDATE supervision_stepstate SET resource = 'alpha-2', effect = 'unknown' WHERE position = 0")
    resource(paused=False)

    assert kit.incidents() == []


def test_a_route_to_a_resource_that_is_out_explains():
    waiting(2)
    resource(paused=False)
    Resource.objects.create(name="alpha-2", service="alpha", paused=True)
    ResourceRoute.objects.create(service="alpha", partition="*", resource="alpha-2")

    assert kit.incidents() == []


def test_a_limit_explains_as_long_as_work_goes_on_there():
    waiting(3)
    resource(capacity=1)
    assert kit.incidents() == [AGENT]

    circuit_breaker.forget()
    ((_place, claims),) = schedule()
    assert len(claims) == 1
    assert kit.incidents() == []


def test_a_full_house_explains_while_it_moves(tuned):
    tuned(IN_FLIGHT=1)
    waiting(3)
    key = schedule()[0][1][0].run_id
    assert kit.incidents() == [AGENT]

    kit.fetch("UPDATE supervision_stepstate SET started_at = now() WHERE run_id = %s AND process_state = 'Processing'", [key])
    assert kit.incidents() == []


def test_a_session_that_runs_in_order_starves_nobody():
    waiting(2)
    kit.fetch("UPDATE supervision_stepstate SET not_before = NULL WHERE position = 0")

    assert kit.incidents() == []


def test_a_step_that_waits_for_its_time_starves_nobody():
    waiting(2)
    kit.fetch(
        "UPDATE supervision_stepstate SET not_before = now() + interval '1 min', complete_by = now() - interval '1 s' WHERE position = 0"
    )

    assert kit.incidents() == []


def test_a_version_that_an_incident_names_starves_nobody(monkeypatch):
    waiting(2)
    cause = lifecycle.Cause(kind="unknown_version", key="unknown_version:toy-plain:1", title="No process knows version 1.")
    monkeypatch.setitem(lifecycle._detectors, "unknown_version", lambda: [cause])

    kit.looked()

    assert kit.incidents() == ["unknown_version:toy-plain:1"]
