"""Comparing and settling while orders change, when the process dies on the way, and when a verb is repeated."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from orders.gateways import payment
from orders.reconciliation import payment_verbs
from supervision.errors import ChangedMeanwhile, Refused
from supervision.ledger import reconciliation
from supervision.ledger.reconciliation import CannotCompare, CannotSettle
from supervision.models import ArchivedRun, Finding
from supervision.operations import archive
from tests.engine import kit
from tests.reconciliation.test_charges import BORN, cancelled, charge, in_the_middle, own_charge

__all__ = ["in_the_middle"]
pytestmark = pytest.mark.usefixtures("budget")


def test_a_finding_whose_cause_is_gone_is_closed_by_the_next_look(order, found):
    stray = charge(order)
    [finding] = found(order)
    payment.refund(stray, key=f"{order}:by-hand")

    assert found(order) == []
    closed = Finding.objects.get(pk=finding.pk)
    assert (closed.verb, closed.outcome.split(":")[0]) == ("", "gone")


def test_a_finding_older_than_the_look_is_looked_at_again_and_kept(order, found):
    charge(order)
    [finding] = found(order)

    [again] = found(order, since=kit.fetch("SELECT now() + interval '1 hour'")[0][0])

    assert again.pk == finding.pk


@pytest.mark.parametrize("mode", ["error_before", "error_after_effect", "reset_after_effect"])
def test_a_refund_whose_answer_is_lost_is_made_once(services, order, found, mode):
    charge(order)
    [finding] = found(order)
    services.faults("payment", mode, probability=1)
    try:
        reconciliation.settle(finding.pk, "refund", by="olga", reason="lost")
    except (CannotSettle, CannotCompare):
        assert Finding.objects.get(pk=finding.pk).last_error
        services.clear()
        reconciliation.settle(finding.pk, "refund", by="olga", reason="lost, again")

    services.clear()
    assert services.effects("payment", "refund", order) == 1
    assert services.charged(order) == 0
    assert found(order) == []


def test_no_more_is_given_back_than_the_finding_says(services, order, found):
    stray = charge(order)
    payment.refund(stray, key=f"{order}:by-hand", amount=580)
    [finding] = found(order)
    assert finding.amount == Decimal("20.00")
    services.fail_refund(payment.refunds_of(stray)[0].id)

    with pytest.raises(CannotSettle, match=r"25\.80 EUR now"):
        reconciliation.settle(finding.pk, "refund", by="olga", reason="approved for 20.00")
    assert services.charged(order) == 2580
    finding.refresh_from_db()
    assert (finding.amount, finding.closed_at) == (Decimal("25.80"), None)

    reconciliation.settle(finding.pk, "refund", by="olga", reason="all of it")
    assert services.charged(order) == 0


def test_a_refund_that_fails_while_the_finding_is_settled_is_not_given_back_with_it(services, order, found, monkeypatch):
    stray = charge(order)
    payment.refund(stray, key=f"{order}:by-hand", amount=580)
    [finding] = found(order)
    settle = payment_verbs.act

    def then_it_fails(*about, **how):
        services.fail_refund(payment.refunds_of(stray)[0].id)
        return settle(*about, **how)

    monkeypatch.setattr(payment_verbs, "act", then_it_fails)
    with pytest.raises(CannotSettle, match="it has changed just now"):
        reconciliation.settle(finding.pk, "refund", by="olga", reason="approved for 20.00")
    assert services.charged(order) == 2580


def test_two_operators_at_once_refund_once(services, order, found):
    charge(order)
    [finding] = found(order)
    services.faults("payment", "slow", latency_ms=300)

    answers = kit.at_once(*[lambda: reconciliation.settle(finding.pk, "refund", by="olga", reason="both") for _ in range(2)])

    assert sorted(isinstance(answer, ChangedMeanwhile) for answer in answers) == [False, True]
    services.clear()
    assert services.effects("payment", "refund", order) == 1


def test_a_charge_given_back_while_the_lists_were_read_is_no_finding(found, in_the_middle, monkeypatch):
    order = in_the_middle()
    read = payment.listed

    def listed_and_then_cancelled(since):
        charges = list(read(since))
        cancelled(order)
        return iter(charges)

    monkeypatch.setattr(payment, "listed", listed_and_then_cancelled)

    assert found(order) == []


def test_an_order_that_becomes_known_while_it_is_looked_at_is_left_for_the_next_time(order, found, monkeypatch):
    charge(order)
    read = payment.refunds_of

    def meanwhile(intent):
        if not kit.fetch("SELECT 1 FROM supervision_run WHERE key = %s", [order]):
            kit.fetch(BORN, [order])
        return read(intent)

    monkeypatch.setattr(payment, "refunds_of", meanwhile)

    assert found(order) == []


def test_a_settlement_that_died_can_be_begun_again_when_its_time_is_over(services, order, found):
    charge(order)
    [finding] = found(order)
    kit.fetch("UPDATE supervision_finding SET settling_until = now() + interval '1 minute', tries = 1")
    with pytest.raises(ChangedMeanwhile):
        reconciliation.settle(finding.pk, "refund", by="olga", reason="r")
    assert services.charged(order) == 2580
    kit.fetch("UPDATE supervision_finding SET settling_until = now() - interval '1 second'")

    reconciliation.settle(finding.pk, "refund", by="olga", reason="r")

    assert services.charged(order) == 0


def test_a_finding_that_needs_nothing_any_more_is_settled_without_a_call(services, order, found):
    stray = charge(order)
    [finding] = found(order)
    payment.refund(stray, key=f"{order}:by-hand")

    assert reconciliation.settle(finding.pk, "refund", by="olga", reason="r").startswith("gone")
    assert services.effects("payment", "refund", order) == 1


def test_a_verb_that_does_not_fit_or_has_no_reason_changes_nothing(services, order, found):
    charge(order)
    [finding] = found(order)

    for verb, reason in (("adopt", "r"), ("cancel", "r"), ("refund", " ")):
        with pytest.raises(Refused):
            reconciliation.settle(finding.pk, verb, by="olga", reason=reason)
    with pytest.raises(Refused):
        reconciliation.settle(finding.pk + 10_000, "refund", by="olga", reason="r")

    assert services.charged(order) == 2580
    assert Finding.objects.get(pk=finding.pk).tries == 0


def test_a_service_that_cannot_be_read_gives_no_findings_and_says_so(services, order, found):
    charge(order)
    [finding] = found(order)
    services.faults("payment", "down")

    with pytest.raises(CannotCompare):
        reconciliation.compare("payment")

    assert [row.pk for row in reconciliation.findings("payment") if row.order_key == order] == [finding.pk]
    assert kit.fetch("SELECT last_error <> '', failing_since IS NOT NULL FROM supervision_reconciliation") == [(True, True)]
    services.clear()
    reconciliation.compare("payment")
    assert kit.fetch("SELECT last_error, failing_since FROM supervision_reconciliation") == [("", None)]


def test_many_charges_are_compared_page_by_page(buy, order, found, monkeypatch):
    monkeypatch.setattr(payment, "LIST_PAGE", 2)
    orders = [buy() for _ in range(5)]
    strays = {charge(f"{order}{number}") for number in range(5)}

    rows = found(*orders, *[f"{order}{number}" for number in range(5)])

    assert {row.external_id for row in rows} == strays


def test_archived_runs_without_effects_stop_no_comparison(buy, found):
    """A return that was cancelled before its goods came, and a parcel that was replaced before it was booked."""
    order = buy()
    kit.fetch("UPDATE supervision_run SET finished_at = now() - interval '40 days', created_at = now() - interval '40 days'")
    kit.fetch("UPDATE supervision_notification SET delivered_at = now()")
    list(archive.batches(timedelta(days=30), keep_orders=True))
    row = ArchivedRun.objects.get(key=order)
    row.body |= {"application": {"returns": [{"id": "gone", "number": "R1"}]}, "children": [{"key": "gone"}]}
    row.save()
    ArchivedRun.objects.create(
        key="gone", run_id=row.run_id + 1, workflow=row.workflow, process_state="Cancelled",
        created_at=row.created_at, finished_at=row.finished_at, body={"run": {"payload": {}}, "steps": [], "effects": None},
    )  # fmt: skip
    stray = charge(order)

    assert [finding.external_id for finding in found(order)] == [stray]


def test_an_archived_order_is_still_known(buy, found):
    order, cancelled_late = buy(), buy()
    own = own_charge(order)
    kit.fetch("UPDATE supervision_run SET finished_at = now() - interval '40 days', created_at = now() - interval '40 days'")
    kit.fetch("UPDATE supervision_notification SET delivered_at = now()")

    list(archive.batches(timedelta(days=30), keep_orders=True))
    assert kit.fetch("SELECT count(*) FROM supervision_run") == [(0,)]

    assert found(order, cancelled_late) == []
    stray = charge(order)
    [finding] = found(order)
    assert finding.external_id == stray != own
