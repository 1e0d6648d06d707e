"""`manage.py reconcile`, its nightly task, and the causes it gives to incidents."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django_celery_beat.models import PeriodicTask

from orders.gateways import carrier, http, payment
from supervision import tasks
from supervision.incidents import lifecycle
from supervision.ledger import findings, reconciliation
from supervision.models import Finding, Incident
from tests.support.requests import ADDRESS

NAMES = {"id", "service", "kind", "order", "external_id", "amount", "currency", "verbs", "detail", "found_at", "last_error"}


@pytest.fixture
def orphans(shop, order):
    """A charge and a shipment of an unknown order."""
    with http.budget(http.time.monotonic() + 60):
        made = payment.create(amount=2580, currency="EUR", order=order, step_key="k", key=f"{order}:create")
        payment.confirm(made.id, payment_method="pm_card_visa", key=f"{order}:confirm")
        carrier.book(f"{order}:k", order, ADDRESS, [{"sku": "MUG-BLUE", "quantity": 1}])
    return order


def reconcile(*arguments: object) -> tuple[int, str, str]:
    """Run the command; returns its exit code, output and errors."""
    out, err = StringIO(), StringIO()
    try:
        call_command("reconcile", *map(str, arguments), stdout=out, stderr=err)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue(), err.getvalue()
    except CommandError as problem:
        return problem.returncode, out.getvalue(), str(problem)
    return 0, out.getvalue(), err.getvalue()


def about(order: str, said: str) -> list[dict]:
    return [one for one in json.loads(said) if one["order"] == order]


def test_findings_are_listed_as_json_and_the_exit_code_says_that_there_are_some(orphans):
    code, said, _ = reconcile("--json")

    assert code == 1
    mine = about(orphans, said)
    assert {(one["service"], one["kind"], one["amount"], one["currency"], tuple(one["verbs"])) for one in mine} == {
        ("payment", "orphan_charge", "25.80", "EUR", ("refund",)),
        ("carrier", "orphan_shipment", None, None, ("cancel",)),
    }
    assert all(set(one) == NAMES and one["external_id"] for one in mine)
    code, said, _ = reconcile("--service", "carrier", "--json")
    assert {one["kind"] for one in about(orphans, said)} == {"orphan_shipment"}
    code, said, _ = reconcile()
    assert orphans in said


def test_findings_are_settled_by_id_and_settling_again_is_refused_in_one_line(services, orphans):
    _, said, _ = reconcile("--json")
    [charge] = [one["id"] for one in about(orphans, said) if one["service"] == "payment"]

    code, said, _ = reconcile("--settle", "refund", "--reason", "lost", charge)
    assert (code, said.strip()) == (0, f"{charge}: 25.80 EUR given back")
    code, _, problem = reconcile("--settle", "refund", "--reason", "lost", charge)
    assert (code, problem) == (1, "1 of 1 not settled")
    assert services.charged(orphans) == 0
    assert Finding.objects.get(pk=charge).settled_by.startswith("command (")


def test_settling_without_ids_settles_what_the_verb_fits_and_then_nothing_is_left(services, orphans):
    reconcile()
    refunded = reconcile("--settle", "refund", "--reason", "all of them", "--json")
    deleted = reconcile("--settle", "cancel", "--reason", "all of them")

    assert (refunded[0], deleted[0]) == (0, 0)
    assert all(one["settled"] for one in json.loads(refunded[1]))
    assert reconcile() == (0, "no findings: our books agree with the services\n", "")
    assert reconcile("--json")[:2] == (0, "[]\n")
    assert reconcile("--settle", "cancel", "--reason", "r")[1] == "no open finding that cancel fits\n"


def test_a_service_that_cannot_be_read_is_told_in_one_line_and_the_other_is_compared(services, orphans):
    services.faults("payment", "down")

    code, said, problem = reconcile("--json")

    assert code == 2
    assert problem.startswith("payment: ")
    assert "\n" not in problem
    assert {one["kind"] for one in about(orphans, said)} == {"orphan_shipment"}


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--settle", "refund"), "--reason"),
        (("--settle", "burn", "--reason", "r"), "invalid choice"),
        (("--since", "yesterday"), "ISO 8601"),
        (("--service", "bank"), "invalid choice"),
        (("7",), "--settle"),
        (("--settle", "refund", "--reason", "r", "--by", "no-such-user", "7"), "no account"),
    ],
)
def test_a_command_line_that_is_wrong_is_told_why_in_one_line(shop, arguments, word):
    code, _, problem = reconcile(*arguments)

    assert code != 0
    assert word in problem


def test_what_is_open_can_be_listed_without_asking_the_services(services, orphans):
    reconcile()
    services.faults("all", "down")

    code, said, _ = reconcile("--open", "--json")

    assert code == 1
    assert len(about(orphans, said)) == 2


def test_every_night_both_services_are_compared_and_one_that_is_down_does_not_hold_up_the_other(services, orphans):
    services.faults("carrier", "down")

    tasks.reconcile()

    kinds = {cause.key: cause for cause in findings.standing()}
    assert kinds["reconciliation:payment:orphan_charge"].orders >= 1
    assert kinds["reconciliation:payment:orphan_charge"].severity == lifecycle.CRITICAL
    assert "cannot be compared" in kinds["reconciliation:carrier"].title
    services.clear()
    for verb in ("refund", "cancel"):
        tasks.reconcile()
        for row in reconciliation.findings():
            if verb in row.verbs:
                reconciliation.settle(row.pk, verb, by="olga", reason="r")
    assert list(findings.standing()) == []


@pytest.mark.parametrize("name", ["Ersatz für Müller", "Bob's order", "ends in \\"])
def test_what_others_make_on_our_accounts_is_found_and_stops_no_comparison(services, shop, order, name):
    with http.budget(http.time.monotonic() + 60):
        made = payment.create(amount=2580, currency="EUR", order=name, step_key="k", key=f"{order}:create")
        payment.confirm(made.id, payment_method="pm_card_visa", key=f"{order}:confirm")
        booked = carrier.book(f"{order}:k", name, ADDRESS, [{"sku": "MUG-BLUE", "quantity": 1}])

    for service in reconciliation.services():
        reconciliation.compare(service)

    assert {row.external_id for row in reconciliation.findings() if row.order_key == name} == {made.id, booked.id}
    for row in reconciliation.findings():
        if row.order_key == name:
            reconciliation.settle(row.pk, row.verbs[0], by="olga", reason="not ours")


def test_an_error_of_a_comparison_is_an_incident_and_the_other_service_is_compared(services, orphans, monkeypatch):
    def broken(since):
        raise RuntimeError("an entry that this program cannot read")

    monkeypatch.setattr(reconciliation._sources["carrier"], "look", broken)

    tasks.reconcile()

    kinds = {cause.key: cause for cause in findings.standing()}
    assert kinds["reconciliation:payment:orphan_charge"].orders >= 1
    assert "RuntimeError" in kinds["reconciliation:carrier"].title


def test_findings_are_one_incident_for_each_kind_and_it_closes_when_they_are_settled(services, orphans):
    reconcile()

    lifecycle.look()
    [charges] = Incident.objects.filter(kind="reconciliation", code="orphan_charge")
    assert (charges.cause, charges.closed_at, charges.resource) == ("reconciliation:payment:orphan_charge", None, "payment")
    assert charges.orders == len([row for row in reconciliation.findings("payment") if row.kind == "orphan_charge"])
    reconcile("--settle", "refund", "--reason", "all of them")

    lifecycle.look()
    charges.refresh_from_db()
    assert charges.closed_at is not None
    [parcels] = Incident.objects.filter(kind="reconciliation", code="orphan_shipment")
    assert parcels.closed_at is None


@pytest.mark.django_db
def test_beat_is_told_to_compare_every_night():
    nightly = PeriodicTask.objects.get(name="reconcile with the services")

    assert (nightly.task, nightly.queue, nightly.enabled) == ("supervision.reconcile", "supervisor", True)
    assert nightly.crontab.hour == "2"
