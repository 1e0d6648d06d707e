"""Incidents: one row per cause, and one notification when it opens and one when it closes, for any number of looks."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from supervision.errors import PermanentFailure, Refused, TransientFailure
from supervision.incidents import lifecycle
from supervision.incidents.lifecycle import Cause
from supervision.models import Alert, Incident, Notification
from supervision.operations import operator_verbs
from supervision.recovery import decisions, failures, supervisor
from supervision.testing import expire, run_of, run_until_idle, submit
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


refuse = kit.raising(PermanentFailure("still no", code="no_way"))


def news() -> list[tuple[int, str]]:
    """The notifications about incidents: how many incidents each names, and what it says of them."""
    rows = Notification.objects.filter(kind="incident").order_by("pk").values_list("payload", flat=True)
    return [(len(row["incidents"]), row["event"]) for row in rows]


def closed(cause: str, ago: timedelta) -> None:
    Incident.objects.filter(cause=cause).update(closed_at=timezone.now() - ago)


@pytest.fixture
def standing():
    """A detector of this test's own kind; the causes in the list stand."""
    causes: list[Cause] = []
    lifecycle.detector("test-kind")(lambda: list(causes))
    yield causes
    lifecycle._detectors.pop("test-kind")


def cause(key: str = "test-kind:a", **facts) -> Cause:
    return Cause(kind="test-kind", key=key, title=facts.pop("title", "It stands."), **facts)


# ----------------------------------------------------------------------------------------- opening and closing


def test_a_cause_opens_one_incident_and_its_end_closes_it_each_told_once(standing):
    standing.append(cause(orders=2, resource="carrier", step="book", code="x"))
    assert kit.looked() == lifecycle.Look(opened=1, told=1)
    assert kit.looked() == lifecycle.Look()
    standing.clear()
    assert kit.looked() == lifecycle.Look(closed=1, told=1)
    assert kit.looked() == lifecycle.Look()

    row = Incident.objects.get()
    assert (row.kind, row.cause, row.resource, row.step, row.code, row.orders) == ("test-kind", "test-kind:a", "carrier", "book", "x", 0)
    assert row.closed_at is not None
    assert row.notified_at is not None
    assert news() == [(1, "opened"), (1, "closed")]


def test_what_it_holds_is_counted_anew_at_every_look_and_told_only_when_it_gets_worse(standing):
    standing.append(cause(orders=2))
    kit.looked()
    standing[0] = cause(orders=9, title="It stands still.")
    kit.looked()
    row = Incident.objects.get()
    assert (row.orders, row.title) == (9, "It stands still.")
    standing[0] = cause(orders=12, severity="critical")
    kit.looked()
    standing[0] = cause(orders=3)
    kit.looked()
    standing[0] = cause(orders=12, severity="critical")
    kit.looked()

    assert news() == [(1, "opened"), (1, "worse")]


def test_what_a_customer_has_to_mend_is_shown_and_never_told(standing):
    standing.append(cause(severity="info"))
    kit.looked()
    standing.clear()
    kit.looked()

    row = Incident.objects.get()
    assert (row.severity, row.notified_at, row.closed_at is None) == ("info", None, False)
    assert news() == []


@pytest.mark.parametrize(("minutes", "rows"), [(29, 1), (31, 2)])
def test_a_cause_that_returns_soon_is_the_same_incident_and_is_not_told_again(standing, minutes, rows):
    standing.append(cause())
    kit.looked()
    standing.clear()
    kit.looked()
    closed("test-kind:a", timedelta(minutes=minutes))
    standing.append(cause())
    kit.looked()

    assert Incident.objects.count() == rows
    assert Incident.objects.filter(closed_at__isnull=True).count() == 1
    assert news() == [(1, "opened"), (1, "closed")] + [(1, "opened")] * (rows - 1)


def test_one_that_returned_and_then_stands_for_long_is_told_of_again_and_so_is_its_end(standing):
    standing.append(cause())
    kit.looked()
    standing.clear()
    kit.looked()
    standing.append(cause())
    kit.looked()
    Incident.objects.update(reopened_at=timezone.now() - timedelta(minutes=31))
    kit.looked()
    kit.looked()
    standing.clear()
    kit.looked()

    assert news() == [(1, "opened"), (1, "closed"), (1, "again"), (1, "closed")]


def test_a_detector_that_raises_stops_no_other_and_leaves_its_incidents_as_they_are(standing):
    standing.append(cause())
    kit.looked()

    @lifecycle.detector("broken-kind")
    def broken():
        raise ZeroDivisionError

    Incident.objects.create(kind="broken-kind", cause="broken-kind:x")
    try:
        standing.clear()
        kit.in_error(0)
        kit.looked()
    finally:
        lifecycle._detectors.pop("broken-kind")

    open_kinds = set(Incident.objects.filter(closed_at__isnull=True).values_list("kind", flat=True))
    assert open_kinds == {"broken-kind", "step_error"}


def test_a_statement_that_fails_in_a_detector_stops_no_other(standing):
    @lifecycle.detector("broken-kind")
    def broken():
        kit.fetch("SELECT 1 / 0")

    try:
        standing.append(cause())
        assert kit.looked().opened == 1
    finally:
        lifecycle._detectors.pop("broken-kind")


def test_an_incident_of_a_kind_that_this_code_does_not_know_is_left_alone():
    Incident.objects.create(kind="of-a-newer-version", cause="of-a-newer-version:x")

    assert kit.looked().closed == 0


def test_several_who_look_at_once_open_one_and_tell_once(standing):
    standing.extend(cause(f"test-kind:{n}") for n in range(5))

    kit.at_once(*[kit.looked] * 6)

    assert Incident.objects.count() == 5
    assert news() == [(1, "opened")] * 5


# ------------------------------------------------------------------------------------------- errors of steps


def test_orders_that_fail_in_the_same_way_are_one_incident_and_those_that_fail_otherwise_another(tuned):
    tuned(INCIDENT_CRITICAL_ORDERS=3)
    toy.BETA.on_perform = refuse
    for n in range(3):
        submit("toy", {"n": n})
    run_until_idle()
    kit.in_error(0)

    two = ["step_error:toy-plain:alpha-step:do:alpha:permanent", "step_error:toy:beta-step:do:beta:no_way"]
    assert sorted(kit.incidents()) == two
    first, second = Incident.objects.get(cause=two[1]), Incident.objects.get(cause=two[0])
    assert (first.orders, first.severity, first.step, first.resource, first.code) == (3, "critical", "beta-step", "beta", "no_way")
    assert (second.orders, second.severity) == (1, "warning")
    assert first.title == "beta-step fails: still no"
    assert set(Alert.objects.filter(incident=first).values_list("step", flat=True)) == {"beta-step"}


def test_a_card_that_was_refused_is_the_customers_matter():
    _key, place, items = kit.started("toy")
    failure = decisions.as_failure(PermanentFailure("declined", code="card_declined", for_customer=True))
    failures.fail(place, [(items[0].claim, failure)])

    kit.looked()

    assert Incident.objects.get().severity == "info"
    assert Alert.objects.get().severity == "info"
    assert kit.told() == 0


@pytest.mark.parametrize("times", [2, 3])
def test_every_further_error_of_a_step_of_unknown_effect_has_an_open_alert_and_an_open_incident(times):
    """A second Error of a step in the same generation: resubmitting keeps the key when the effect is unknown."""
    toy.ALPHA.on_perform = refuse
    key = kit.in_error(0, unknown=True)
    kit.looked()

    for _ in range(times - 1):
        operator_verbs.resubmit(key, by="olga", reason="looked at it")
        kit.looked()
        assert (kit.open_alerts(key), Incident.objects.filter(closed_at__isnull=True).count()) == ([], 0)
        assert kit.idle_state(key) == "Error"
        assert kit.open_alerts(key) == ["error"]
        assert len(kit.incidents()) == 1

    alert = Alert.objects.get(closed_at__isnull=True)
    assert (alert.acknowledged_at, alert.message) == (None, "still no")
    assert lifecycle.holding([run_of(key).pk]) == {run_of(key).pk: Incident.objects.get(closed_at__isnull=True).pk}


def test_every_further_error_of_an_undo_has_an_open_alert_and_an_open_incident():
    toy.BETA.on_compensate = refuse
    key = kit.undoing(2, "toy")
    run_until_idle()
    assert kit.incidents() == ["step_error:toy:beta-step:undo:beta:no_way"]

    for _ in range(2):
        operator_verbs.resubmit(key, by="olga", reason="try again")
        assert (kit.idle_state(key), kit.open_alerts(key)) == ("Error", ["error"])
        assert kit.incidents() == ["step_error:toy:beta-step:undo:beta:no_way"]


def test_an_order_whose_time_is_over_a_second_time_has_an_open_alert_and_an_open_incident():
    (key,) = kit.waiting(workflow="toy")
    for _ in range(2):
        kit.fetch("UPDATE supervision_run SET complete_by = now() - interval '1 s' WHERE key = %s", [key])
        supervisor.sweep_once()
        assert (kit.state(key), kit.open_alerts(key)) == ("Error", ["error"])
        assert kit.incidents() == ["step_error:toy:alpha-step:do:alpha:overdue"]
        operator_verbs.resubmit(key, by="olga", reason="more time")

    assert kit.incidents() == []


def test_acknowledged_is_still_open_and_closes_with_the_error():
    key = kit.in_error(0)
    kit.looked()
    row = Incident.objects.get()

    operator_verbs.acknowledge_incident(row.pk, by="olga", reason="I am on it")
    operator_verbs.acknowledge_incident(row.pk, by="otto", reason="me too")
    kit.looked()

    row.refresh_from_db()
    assert (row.acknowledged_by, row.acknowledge_reason, row.closed_at) == ("olga", "I am on it", None)
    assert (kit.open_alerts(key), Alert.objects.get().acknowledged_by) == (["error"], "olga")

    operator_verbs.skip(key, by="olga", reason="done by hand")
    kit.looked()
    row.refresh_from_db()
    assert row.closed_at is not None


@pytest.mark.parametrize(("pk", "reason"), [(0, "why not"), (None, " ")])
def test_an_unknown_incident_and_a_missing_reason_are_refused(pk, reason):
    kit.in_error(0)
    kit.looked()

    with pytest.raises(Refused):
        operator_verbs.acknowledge_incident(Incident.objects.get().pk if pk is None else pk, by="olga", reason=reason)

    assert Incident.objects.get().acknowledged_at is None


def test_a_run_in_error_without_an_open_alert_gets_one():
    """Older code or an operator's SQL may have written such a row."""
    key = kit.in_error(1)
    Alert.objects.update(closed_at=timezone.now())

    assert len(kit.incidents()) == 1

    assert kit.open_alerts(key) == ["error"]
    assert Alert.objects.get(closed_at__isnull=True).message == "refused"


def test_an_alert_whose_order_left_error_without_closing_it_is_closed():
    key = kit.in_error(1)
    kit.looked()
    operator_verbs.skip(key, by="olga", reason="done by hand")
    Alert.objects.update(closed_at=None)

    kit.looked()

    assert (kit.open_alerts(key), Incident.objects.filter(closed_at__isnull=True).count()) == ([], 0)


def test_an_alert_belongs_to_an_open_incident_also_when_its_own_was_closed_meanwhile():
    kit.in_error(0)
    kit.looked()
    first = Incident.objects.get()
    closed(first.cause, timedelta(hours=1))

    kit.looked()

    second = Incident.objects.get(closed_at__isnull=True)
    assert second.pk != first.pk
    assert Alert.objects.get().incident_id == second.pk


def test_a_step_that_was_given_up_is_told_of_until_somebody_has_seen_it():
    key, place, items = kit.at_step(2, "toy-skip")
    failures.fail(place, [(items[0].claim, kit.refusal())])
    kit.looked()
    row = Incident.objects.get()
    assert (kit.state(key), row.closed_at, row.orders) == ("Processed", None, 1)

    operator_verbs.acknowledge_incident(row.pk, by="olga", reason="mailed by hand")
    kit.looked()

    row.refresh_from_db()
    assert row.closed_at is not None


def test_a_step_that_waits_longer_is_told_of_until_it_runs_again():
    key = submit("toy-wait", {"n": 1})
    toy.ALPHA.on_perform = fail
    for _ in range(3):
        run_until_idle()
        kit.fetch("UPDATE supervision_stepstate SET not_before = now() WHERE process_state = 'Pending' AND not_before IS NOT NULL")
    assert kit.open_alerts(key) == ["exhausted"]
    (name,) = kit.incidents()
    assert name.startswith("step_error:toy-wait:alpha-step:do:")

    toy.ALPHA.on_perform = None
    assert kit.idle_state(key) == "Processed"
    assert (kit.incidents(), kit.open_alerts(key)) == ([], [])


fail = kit.raising(TransientFailure("busy", code="unrecorded"))  # the fault is our own, so no service is blamed


def test_claims_that_nobody_starts_are_told_of_until_one_is_started():
    key = submit("toy-plain", {"n": 1})
    for _ in range(5):
        kit.schedule()
        expire(key)
        failures.sweep(10)
    assert kit.incidents() == ["starvation:agent.alpha"]
    assert lifecycle.holding([run_of(key).pk])

    run_until_idle()

    assert (kit.incidents(), kit.open_alerts(key)) == ([], [])


# -------------------------------------------------------------------------------------------------- held orders


def test_held_money_is_what_the_application_says(monkeypatch):
    monkeypatch.setattr(lifecycle, "_money", [lambda runs: {"EUR": 2 * len(runs), "UGX": 1}])
    kit.in_error(0)
    kit.in_error(0)
    kit.looked()
    row = Incident.objects.get()

    runs = lifecycle.runs_of(row.kind, row.cause)

    assert len(runs) == 2
    assert lifecycle.held(runs) == [("EUR", 4), ("UGX", 1)]
    assert lifecycle.held([]) == []


def test_nothing_is_held_where_nothing_stands():
    key = submit("toy-plain", {"n": 1})
    kit.schedule()

    assert lifecycle.holding([run_of(key).pk]) == {}
    assert lifecycle.holding([]) == {}
