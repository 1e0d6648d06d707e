"""Incidents in the console: at the top of the overview, one page for each, acknowledged by operators with a reason."""

from __future__ import annotations

import json
import re
from io import StringIO

import pytest
from django.core.management import call_command
from django.db.models.functions import Now
from django.test import Client
from django.urls import reverse

from supervision.incidents import lifecycle
from supervision.incidents.lifecycle import Cause
from supervision.models import DeadLetter, Incident
from supervision.operations import doctor
from tests.support.console import ATTACK, fail, page

pytestmark = pytest.mark.django_db
LIST = "/admin/supervision/incident/"


@pytest.fixture
def standing() -> Incident:
    """Two orders that were refused; the supervisor has looked for incidents after that."""
    fail(2)
    lifecycle.look()
    return Incident.objects.get()


def address(row: Incident) -> str:
    return reverse("admin:supervision_incident_change", args=[row.pk])


def test_the_overview_shows_what_stands_before_everything_else(operator: Client, standing: Incident):
    html = operator.get("/admin/").content.decode()

    assert html.index("sc-incidents") < html.index("sc-states")
    assert address(standing) in html
    assert "charge-payment fails" in html
    assert "2 orders" in html
    assert "amounts once a minute" in html


def test_the_page_of_an_incident_names_its_orders_and_what_they_are_worth(operator: Client, standing: Incident):
    orders = fail(1)
    lifecycle.look()

    html = operator.get(address(standing)).content.decode()

    assert reverse("admin:orders_order_of_run", args=[orders[0].run_id]) in html
    assert "worth 77.40 EUR" in html
    assert standing.cause in html
    assert "charge-payment fails" in operator.get(f"{LIST}?open=yes").content.decode()
    assert address(standing) in operator.get(page(orders[0])).content.decode()


def test_what_only_customers_can_correct_waits_for_no_operator(operator: Client):
    fail(2, for_customer=True)
    lifecycle.look()
    row = Incident.objects.get(severity="info")

    html = operator.get("/admin/").content.decode()

    assert "Nothing waits for an operator." in html
    assert "waits for the customers, not for an operator" in html
    assert "No open alerts." in html
    assert f'href="/admin/orders/order/?incident={row.pk}">List its orders' in html
    assert "Resubmit all" not in html
    assert {finding.level for finding in doctor.alerts()} == {doctor.Level.OK}
    assert "sas_alerts_open 0.0" in operator.get("/metrics").content.decode()

    fail()
    lifecycle.look()
    html = operator.get("/admin/").content.decode()

    assert "Nothing waits for an operator." not in html
    assert "Resubmit all" in html
    assert [finding.message for finding in doctor.alerts()] == ["1 not acknowledged"]
    assert "sas_alerts_open 1.0" in operator.get("/metrics").content.decode()


def test_it_is_acknowledged_with_a_reason_and_stays_open(operator: Client, standing: Incident):
    assert operator.post(address(standing), {"reason": ""}).status_code == 200
    standing.refresh_from_db()
    assert standing.acknowledged_at is None

    assert operator.post(address(standing), {"reason": "the bank is asked"}).status_code == 302
    standing.refresh_from_db()
    html = operator.get(address(standing)).content.decode()

    assert (standing.acknowledged_by, standing.acknowledge_reason, standing.closed_at) == ("olga", "the bank is asked", None)
    assert "acknowledged by olga" in html
    assert 'name="reason"' not in html


def test_what_is_over_leads_to_its_order_and_is_closed_by_the_acknowledgement(operator: Client):
    [order] = fail(1)
    lifecycle.open_now(Cause(kind="overpaid", key=f"overpaid:{order.public_id}", title="Pay back: 4.20 EUR."))
    row = Incident.objects.get(kind="overpaid")

    html = operator.get(address(row)).content.decode()
    [way] = re.findall(r'href="([^"]+)"[^>]*>See the order<', html)

    assert "the incident is closed." in html
    assert "until its cause is gone" not in html
    assert page(order) in operator.get(way.replace("&amp;", "&")).content.decode()

    operator.post(address(row), {"reason": "paid back"})
    lifecycle.look()
    row.refresh_from_db()
    assert row.closed_at is not None


def test_what_had_come_for_a_discarded_order_leads_to_the_dead_letters(operator: Client):
    lifecycle.open_now(Cause(kind="discarded_evidence", key="discarded_evidence:gone", title="What had come for it stays."))

    html = operator.get(address(Incident.objects.get())).content.decode()

    assert re.findall(r'href="([^"]+)"[^>]*>See the dead letters<', html) == [reverse("admin:supervision_deadletter_changelist")]


def test_a_text_of_several_lines_may_be_as_long_as_the_browser_lets_it(operator: Client, standing: Incident):
    reason, note = ("\n".join(["x" * 99, "x" * (most - 100)]) for most in (500, 2000))
    for typed in ({"verb": "note", "text": note}, {"reason": reason}):
        sent = {name: text.replace("\n", "\r\n") for name, text in typed.items()}
        assert operator.post(address(standing), sent).status_code == 302

    standing.refresh_from_db()
    assert (standing.acknowledge_reason, standing.notes.get().text) == (reason, note)


def test_a_note_on_an_incident_that_was_closed_meanwhile_is_shown_again_as_it_was_typed(operator: Client, standing: Incident):
    Incident.objects.update(closed_at=Now())

    answer = operator.post(address(standing), {"verb": "note", "text": "the bank\r\ncalls back"})

    assert f"There is no open incident {standing.pk}." in answer.text
    assert "the bank\r\ncalls back</textarea>" in answer.text
    assert not standing.notes.exists()


def test_who_only_looks_cannot_acknowledge(viewer: Client, standing: Incident):
    html = viewer.get(address(standing)).content.decode()

    assert 'name="reason"' not in html
    assert viewer.post(address(standing), {"reason": "r"}).status_code == 403
    standing.refresh_from_db()
    assert standing.acknowledged_at is None


def test_what_is_over_holds_nothing_and_is_listed_apart(operator: Client, standing: Incident):
    Incident.objects.update(closed_at="2026-01-01T00:00Z")

    assert "charge-payment fails" not in operator.get(f"{LIST}?open=yes").content.decode()
    assert "charge-payment fails" in operator.get(f"{LIST}?open=no").content.decode()
    html = operator.get(address(standing)).content.decode()
    assert 'id="sc-held"' not in html
    assert 'name="reason"' not in html
    assert "No open incidents." in operator.get("/admin/").content.decode()


def test_of_the_dead_letters_only_accepted_orders_are_called_orders(operator: Client):
    for key in (None, None, "an-order"):
        DeadLetter.objects.create(source="queue submissions", body=b"x", reason="y", public_id=key)
    lifecycle.look()
    row = Incident.objects.get(kind="dead_letters")

    html = operator.get("/admin/").content.decode()

    assert "3 dead letters wait for a decision." in html
    assert '<a class="sc-link" href="/admin/supervision/deadletter/?open=yes">1 order</a>' in html
    assert "3 orders" not in html
    assert "<dt>Orders it holds up</dt><dd>1</dd>" in operator.get(address(row)).content.decode()
    out = StringIO()
    call_command("incidents", "--json", stdout=out)
    assert [shown["orders"] for shown in json.loads(out.getvalue())] == [1]


def test_words_of_others_are_shown_as_words(operator: Client):
    row = Incident.objects.create(
        kind="journal", cause=ATTACK, title=ATTACK, step=ATTACK, code=ATTACK, resource=ATTACK, acknowledged_by=ATTACK
    )

    for place in ("/admin/", LIST, address(row)):
        assert ATTACK not in operator.get(place).content.decode()


@pytest.mark.parametrize("number", ["424242", "x"])
def test_an_incident_nobody_knows_is_not_found(operator: Client, number: str):
    assert operator.get(f"{LIST}{number}/change/").status_code == 404
