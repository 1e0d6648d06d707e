"""The step bar of a run's page: what each step waited and worked, its branches, and its text for readers without pictures."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from supervision import testing
from supervision.console.run_page.durations import STOPPED, WAITED, WORKED
from supervision.console.run_page.step_bar import step_bar
from supervision.insight.queries import TimelineEntry
from supervision.models import Run, StepState
from supervision.operations import operator_verbs
from supervision.runtime.humanize import duration
from tests.support.console import fail, page

START = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def told(seconds: float, step: str | None, to_state: str, attempt: int | None = 1, direction: str = "do", why: str = "") -> TimelineEntry:
    return TimelineEntry(at(seconds), None, "event", step, direction, attempt, None, to_state, "agents", why)


def a_step(name: str, position: int, state: str = "Processed", **fields: Any) -> StepState:
    return StepState(name=name, position=position, process_state=state, direction=fields.pop("direction", "do"), **fields)


def a_run(state: str = "Processed", **fields: Any) -> Run:
    return Run(created_at=START, process_state=state, **fields)


def test_waiting_and_work_are_told_to_the_millisecond_with_every_attempt():
    history = [
        told(0, None, "Pending"),
        told(0.25, "pay", "Processing"),
        told(1.5, "pay", "Pending", why="it answered 503"),
        told(4, "pay", "Processing", 2),
        told(4.125, "pay", "Processed", 2),
        told(4.125, "mail", "Processing"),
        told(5, "mail", "Processed"),
    ]

    bar = step_bar(a_run(finished_at=at(5)), [a_step("pay", 0), a_step("mail", 1)], history, at(99))

    pay, mail = bar.rows
    assert (duration(pay.waited), duration(pay.worked), pay.stopped) == ("2.750 s", "1.375 s", None)
    assert [(span.attempt, span.outcome, span.why, duration(took)) for span, took in pay.attempts] == [
        (1, "Pending", "it answered 503", "1.250 s"),
        (2, "Processed", "", "0.125 s"),
    ]
    assert (mail.waited, duration(mail.worked)) == (None, "0.875 s")
    assert [(part.kind, part.x, part.width) for part in pay.bars] == [
        (WAITED, "0.0", "50.0"),
        (WORKED, "50.0", "250.0"),
        (WAITED, "300.0", "500.0"),
        (WORKED, "800.0", "25.0"),
    ]
    assert duration(bar.took) == "5.000 s"


def test_what_goes_on_is_drawn_until_now_and_a_step_in_error_as_stopped():
    history = [told(0, "pay", "Processing"), told(1, "pay", "Error", why="declined")]

    (row,) = step_bar(a_run("Error"), [a_step("pay", 0, "Error")], history, at(10)).rows

    assert (duration(row.worked), duration(row.stopped), row.ended) == ("1.000 s", "9.000 s", None)
    assert [part.kind for part in row.bars] == [WORKED, STOPPED]


def test_branches_share_a_stage_and_a_step_that_joins_them_waits_for_the_last():
    steps = [
        a_step("begin", 0, after=[]),
        a_step("left", 1, after=[0]),
        a_step("right", 2, after=[0]),
        a_step("join", 3, after=[1, 2]),
    ]
    history = [
        told(0, "begin", "Processing"), told(1, "begin", "Processed"),
        told(1, "left", "Processing"), told(1, "right", "Processing"),
        told(2, "left", "Processed"), told(5, "right", "Processed"),
        told(5.5, "join", "Processing"), told(6, "join", "Processed"),
    ]  # fmt: skip

    bar = step_bar(a_run(finished_at=at(6)), steps, history, at(9))

    assert [[row.step.name for row in stage] for stage in bar.stages] == [["begin"], ["left", "right"], ["join"]]
    assert duration(bar.rows[3].waited) == "0.500 s"


def test_undoing_has_rows_of_its_own_that_begin_when_the_run_went_back():
    steps = [a_step("pay", 0), a_step("pay", 0, direction="undo")]
    history = [
        told(0, "pay", "Processing"), told(1, "pay", "Processed"),
        told(10, None, "Compensating", None),
        told(12, "pay", "Processing", direction="undo"), told(13, "pay", "Processed", direction="undo"),
    ]  # fmt: skip

    bar = step_bar(a_run("Cancelled", finished_at=at(13)), steps, history, at(20))

    assert [(duration(row.waited), duration(row.worked)) for row in bar.undone] == [("2.000 s", "1.000 s")]


def test_a_long_time_is_told_in_days_hours_and_minutes():
    assert duration(timedelta(days=3, minutes=2, seconds=1, milliseconds=7)) == "3 d 0 h 2 min 1.007 s"


@pytest.mark.django_db
@pytest.mark.usefixtures("no_hints")
class TestThePage:
    def test_money_and_customer_come_before_steps_and_keys_are_folded_away_at_the_end(self, operator: Client):
        (order,) = fail()

        html = operator.get(page(order)).content.decode()

        places = [html.index(part) for part in (order.number, 'id="sc-lines"', 'id="sc-path"', 'id="sc-attempts"', 'id="sc-machinery"')]
        assert places == sorted(places)
        folded = html[html.index('<details class="sc-panel" id="sc-machinery">') :]
        key = testing.step(order.public_id, "charge-payment").idempotency_key
        assert key in folded
        assert key not in html[: -len(folded)]

    def test_the_bar_is_a_table_with_its_figures_as_text_and_no_inline_style(self, operator: Client):
        (order,) = fail()

        html = operator.get(page(order)).content.decode()
        drawn = html[html.index('id="sc-path"') : html.index('id="sc-attempts"')]

        assert drawn.count('<th scope="row"') == 4
        assert re.search(r"\d\.\d{3} s</td>", drawn)
        assert drawn.count("<svg") == drawn.count('aria-hidden="true" focusable="false"') == 4
        assert not re.search(r"<style|style=|<script|onclick", drawn)

    def test_an_order_whose_undo_is_over_is_not_said_to_be_undoing(self, operator: Client):
        (order,) = fail()
        operator_verbs.cancel(order.public_id, by="olga", reason="the customer asked")
        assert ">undoing<" in operator.get(page(order)).content.decode()

        Run.objects.filter(pk=order.run_id).update(process_state="Cancelled", finished_at=START)

        html = operator.get(page(order)).content.decode()
        assert "Cancelled" in html
        assert ">undoing<" not in html
