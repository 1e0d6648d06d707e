"""Operators race with each other and with the supervisor (H21): a click acts at most once, or the page says that it did not."""

from __future__ import annotations

import pytest

from supervision.errors import ChangedMeanwhile, Refused
from supervision.models import StepEvent
from supervision.operations import operator_verbs
from supervision.testing import expire, run_until_idle, schedule, step, submit
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("engine")


def resubmitted(key: str) -> int:
    """How often an operator let the failed step run again."""
    return StepEvent.objects.filter(run__key=key, position=0, from_state="Error").count()


@pytest.mark.parametrize("turn", range(5))
def test_of_two_operators_and_a_supervisor_at_once_one_operator_acts(turn):
    key = kit.in_error()
    seen = step(key, "alpha-step").attempt

    def click(who: str):
        return lambda: operator_verbs.resubmit(key, by=who, reason="looked at it", attempt=seen)

    answers = kit.at_once(click("olga"), kit.supervisor.sweep_once, click("otto"))

    refused = [answer for answer in answers if isinstance(answer, ChangedMeanwhile | Refused)]
    assert len(refused) == 1
    assert resubmitted(key) == 1
    run_until_idle()
    assert kit.state(key) == "Processed"
    assert kit.healthy()


@pytest.mark.parametrize("turn", range(5))
def test_an_operator_who_looked_before_the_sweep_does_not_act_on_what_it_changed(turn):
    """The step was resubmitted, claimed and expired again, so the operator's page is out of date."""
    key = kit.in_error()
    seen = step(key, "alpha-step").attempt
    operator_verbs.resubmit(key, by="olga", reason="looked at it", attempt=seen)
    ((place, claims),) = schedule()
    kit.step_verbs.start(place, claims)
    expire(key)

    answers = kit.at_once(kit.supervisor.sweep_once, lambda: operator_verbs.resubmit(key, by="otto", reason="me too", attempt=seen))

    assert isinstance(answers[1], ChangedMeanwhile | Refused)
    kit.supervisor.sweep_once()  # the first sweep may skip a step whose lock the operator held
    released = step(key, "alpha-step")
    assert (released.process_state, released.failure_count) == ("Pending", 1)
    assert resubmitted(key) == 1
    assert kit.healthy()


def test_a_cancel_and_a_resubmission_at_once_leave_an_order_that_ends():
    keys = [kit.in_error() for _ in range(4)]
    for key in keys:
        kit.at_once(
            lambda key=key: operator_verbs.cancel(key, by="ada", reason="changed my mind"),
            lambda key=key: operator_verbs.resubmit(key, by="olga", reason="looked at it"),
        )
        run_until_idle()
        assert kit.state(key) in ("Processed", "Cancelled")
    submit("toy-plain", {"n": 1})
    run_until_idle()
    assert kit.healthy()
