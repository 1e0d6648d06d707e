"""The landing page: open incidents with money, trend, owner and notes; and below them the pulse, from rows of each minute."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from supervision.console import pulse_charts
from supervision.incidents import lifecycle, pulse
from supervision.insight.pulse import points
from supervision.models import Incident, IncidentNote, Job, Pulse, Run
from supervision.postgres import db
from tests.support.console import ATTACK, fail, person

pytestmark = pytest.mark.django_db
INDEX = "/admin/"
LATER = """
UPDATE supervision_pulse SET recorded_at = recorded_at - interval '1 minute' WHERE minute = (SELECT max(minute) FROM supervision_pulse)
"""
EARLIER = "INSERT INTO supervision_pulse (minute, incidents) VALUES (now() - interval '16 minutes', %(held)s::jsonb)"


def page(client: Client, address: str = INDEX) -> str:
    return client.get(address).content.decode()


def incident() -> Incident:
    lifecycle.look()
    return Incident.objects.get()


def address(row: Incident) -> str:
    return f"/admin/supervision/incident/{row.pk}/change/"


def open_since(minutes: int) -> None:
    db.fetch("UPDATE supervision_incident SET opened_at = now() - %(n)s * interval '1 minute'", {"n": minutes})


def finished(count: int, *, ago: str, took: float, state: str = "Processed", parent: str | None = None) -> None:
    db.fetch(
        "INSERT INTO supervision_run (workflow, key, process_state, finished_at, created_at, parent_key)"
        " SELECT 'fulfil-order', gen_random_uuid(), %(state)s, now() - %(ago)s::interval,"
        " now() - %(ago)s::interval - %(took)s * interval '1 s', %(parent)s FROM generate_series(1, %(count)s)",
        {"state": state, "ago": ago, "took": took, "parent": parent, "count": count},
    )


# ------------------------------------------------------------------------------------------------------- incidents


def test_an_incident_says_what_it_holds_since_when_and_that_it_grows(operator: Client):
    fail(2)
    row = incident()

    html = page(operator)

    assert f"?incident={row.pk}" in html
    assert "<b>51.60 EUR</b>" in html
    assert "growing: 2 more in 15 minutes" in html
    assert "no owner" in html


@pytest.mark.parametrize(
    ("before", "words"), [(1, "growing: 2 more"), (3, "as many as 15 minutes ago"), (7, "shrinking: -4 in"), (None, None)]
)
def test_the_trend_compares_with_the_row_of_15_minutes_before(operator: Client, before: int | None, words: str | None):
    fail(3)
    row = incident()
    db.fetch(EARLIER, {"held": None if before is None else json.dumps({row.pk: before})})
    open_since(60)

    html = page(operator)

    assert "3 orders" in html
    assert words in html if words else "15 minutes" not in html


def test_one_click_leads_to_its_orders_and_one_to_the_verb_that_settles_them_all(operator: Client, viewer: Client):
    orders = fail(2)
    row = incident()
    others = fail(1, at="book-shipment")
    lifecycle.look()

    links = re.findall(rf'href="([^"]*\?incident={row.pk})"', page(operator))
    shown = [page(operator, link) for link in links]

    assert [link.partition("?")[0] for link in links] == ["/admin/orders/order/", "/admin/orders/order/bulk/resubmit/"]
    assert all(order.number in shown[0] or order.public_id in shown[0] for order in orders)
    assert not any(order.number in shown[0] for order in others)
    assert "Resubmit: 2 orders" in shown[1]
    assert "bulk/resubmit" not in page(viewer)
    assert viewer.get(links[1]).status_code == 403


@pytest.mark.parametrize("said", ["", "0", "x", "9" * 30])
def test_an_incident_that_is_not_open_leads_back_to_the_list(operator: Client, said: str):
    answer = operator.get(f"/admin/orders/order/bulk/resubmit/?incident={said}", follow=True)

    assert answer.redirect_chain == [(f"/admin/orders/order/?incident={said}" if said else "/admin/orders/order/", 302)]
    assert not Job.objects.exists()


def test_an_incident_is_given_to_an_operator_and_the_change_is_noted(operator: Client):
    person("oscar", "operator")
    fail()
    row = incident()

    assert operator.post(address(row), {"verb": "assign", "owner": "oscar"}).status_code == 302
    operator.post(address(row), {"verb": "assign", "owner": "oscar"})
    operator.post(address(row), {"verb": "assign", "owner": "vera"})  # may only look
    operator.post(address(row), {"verb": "note", "text": " the bank is asked "})

    row.refresh_from_db()
    assert row.owner == "oscar"
    assert list(IncidentNote.objects.order_by("pk").values_list("author", "text")) == [
        ("olga", "Assigned to oscar."),
        ("olga", "the bank is asked"),
    ]
    assert "oscar looks after it" in page(operator)
    html = page(operator, address(row))
    assert html.index("the bank is asked") < html.index("Assigned to oscar.")


def test_who_only_looks_can_neither_assign_nor_note(viewer: Client):
    fail()
    row = incident()

    for said in ({"verb": "assign", "owner": "vera"}, {"verb": "note", "text": "t"}):
        assert viewer.post(address(row), said).status_code == 403
    assert "Add note" not in page(viewer, address(row))
    assert not IncidentNote.objects.exists()


def test_a_note_needs_words_and_an_open_incident(operator: Client):
    fail()
    row = incident()

    assert operator.post(address(row), {"verb": "note", "text": "  "}).status_code == 200
    assert operator.post(address(row), {"verb": "note", "text": "x" * 2001}).status_code == 200
    operator.post(address(row), {"verb": "note", "text": ATTACK})
    assert ATTACK not in page(operator, address(row))
    Incident.objects.update(closed_at="2026-01-01T00:00Z")
    operator.post(address(row), {"verb": "note", "text": "too late"})

    assert IncidentNote.objects.count() == 1


def test_without_incidents_the_page_says_what_it_would_show(operator: Client):
    html = page(operator)

    assert "No open incidents. All orders move." in html
    assert "appears here as one line" in html
    assert html.index("sc-incidents") < html.index("sc-pulse") < html.index("sc-states")


def test_forty_incidents_cost_as_many_statements_as_one(operator: Client):
    asked = []
    for count in (1, 39):
        Incident.objects.bulk_create(
            Incident(kind="outage", cause=f"outage:{count}:{n}", resource="payment", title=f"{count}.{n}", orders=n) for n in range(count)
        )
        page(operator)
        with CaptureQueriesContext(connection) as queries:
            html = page(operator)
        asked.append(len(queries))

    assert asked[0] == asked[1]
    assert html.count("See the breaker") in (0, 40)
    assert html.count('class="sc-cause"') == 40


# ----------------------------------------------------------------------------------------------------------- pulse


def test_each_minute_counts_what_ended_and_how_long_it_took():
    finished(90, ago="1 minute", took=2.0)
    finished(10, ago="1 minute", took=60.0)
    finished(1, ago="1 minute", took=9999.0, parent="a-child-is-no-order")
    finished(1, ago="8 days", took=1.0)
    finished(5, ago="1 minute", took=1.0, state="Cancelled")
    fail(3)
    lifecycle.look()
    for _hour in range(180):  # a look counts an hour of those that are missing
        db.fetch(LATER)
        pulse.record()

    found, whole = points("hour")

    assert whole is not None
    assert (whole.processed, whole.cancelled, whole.stopped) == (100, 5, 3)
    assert whole.p50 is not None
    assert whole.p95 is not None
    assert 2 <= whole.p50 <= 2.5
    assert 60 <= whole.p95 <= 75
    assert len(found) == 60
    assert whole.minutes == 60
    assert [points(span)[1].processed for span in ("day", "week")] == [100, 100]  # type: ignore[union-attr]


def test_a_new_database_has_its_figures_after_the_first_look():
    finished(3, ago="5 minutes", took=1.0)

    pulse.record()

    assert Pulse.objects.count() == 6
    assert points("hour")[1].processed == 3  # type: ignore[union-attr]


def test_a_minute_is_counted_again_until_it_is_surely_over_and_not_at_every_sweep():
    lifecycle.look()
    db.fetch("DELETE FROM supervision_pulse WHERE minute < now() - interval '1 hour'")
    db.fetch(
        "INSERT INTO supervision_pulse (minute, recorded_at) VALUES (date_trunc('minute', now()), now())"
        " ON CONFLICT (minute) DO UPDATE SET recorded_at = now()"
    )
    finished(7, ago="0 minutes", took=1.0)

    pulse.record()
    assert points("hour")[1].processed == 0  # type: ignore[union-attr]
    db.fetch("UPDATE supervision_pulse SET recorded_at = now() - interval '11 seconds'")
    pulse.record()

    assert points("hour")[1].processed == 7  # type: ignore[union-attr]


def test_the_row_of_now_knows_what_waits_longest_and_what_incidents_hold():
    fail(2)
    row = incident()
    db.fetch(
        "INSERT INTO supervision_pulse (minute, recorded_at) VALUES (date_trunc('minute', now()), 'epoch')"
        " ON CONFLICT (minute) DO UPDATE SET recorded_at = 'epoch'"
    )
    db.fetch(
        "INSERT INTO supervision_submission (public_id, workflow, payload, created_at) VALUES ('s', 'w', '{}', now() - interval '90 s')"
    )

    pulse.record()
    newest = Pulse.objects.latest("minute")

    assert newest.incidents == {str(row.pk): 2}
    assert 90 <= (newest.oldest_seconds or 0) < 150


def test_old_minutes_are_forgotten():
    db.fetch("INSERT INTO supervision_pulse (minute) SELECT now() - interval '9 days'")
    db.fetch("INSERT INTO supervision_pulse (minute, recorded_at) VALUES (date_trunc('minute', now()), 'epoch')")

    pulse.record()

    assert not Pulse.objects.extra(where=["minute < now() - interval '8 days'"]).exists()


@pytest.mark.parametrize(("span", "rows"), [("hour", 60), ("day", 48), ("week", 56), ("nonsense", 60)])
def test_the_pulse_is_drawn_and_is_a_table_too(operator: Client, span: str, rows: int):
    db.fetch(
        "INSERT INTO supervision_pulse (minute, processed, stopped, oldest_seconds, classes, counts)"
        " SELECT m, 12, 3, 4.5, '{3,20}', '{6,6}' FROM generate_series(date_trunc('minute', now()) - interval '8 days',"
        " date_trunc('minute', now()), '1 minute') m"
    )

    html = page(operator, f"{INDEX}?pulse={span}")
    section = html[html.index('id="sc-pulse"') : html.index('id="sc-states"')]

    assert section.count("<svg") == 4
    assert section.count("<tr>") == rows + 1
    assert section.count("<rect") == 2 * rows
    assert "20.0 %" in section
    assert 'aria-label="Orders Processed per minute: 12.0"' in section
    assert f'hx-get="/admin/?pulse={span}"' in html


def test_without_a_supervisor_there_are_no_figures(operator: Client):
    assert "A running supervisor writes them every minute." in page(operator)


def test_the_page_never_counts_the_runs_themselves(operator: Client):
    finished(1, ago="1 minute", took=1.0)
    statements: list[Any] = []
    with CaptureQueriesContext(connection) as queries:
        page(operator)
    statements = [query["sql"] for query in queries if "supervision_run" in query["sql"]]

    assert Run.objects.count() == 1
    assert statements
    assert not [sql for sql in statements if "percentile" in sql or "finished_at >" in sql]


def test_a_chart_without_figures_names_no_highest(operator: Client):
    lifecycle.look()

    charts = pulse_charts.pulse("hour")["charts"]

    assert charts[-1].top == "–"
