"""The circuit breaker: one row for all processes; an outage counts as no order's failure."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from django.utils import timezone

from supervision.errors import OutcomeUnknown, PermanentFailure, TransientFailure
from supervision.governance import circuit_breaker
from supervision.intake import consuming
from supervision.models import Resource
from supervision.recovery import supervisor
from supervision.testing import make_due, run_of, run_until_idle, step, submit, submit_many
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


down = kit.raising(TransientFailure("connection refused"))


def the_breaker():
    return Resource.objects.get(name="beta")


def cool_down_passes(name="beta"):
    Resource.objects.filter(name=name).update(retry_at="2020-01-01T00:00:00Z")
    circuit_breaker.forget()


def break_down(orders=5):
    toy.BETA.on_perform = down
    keys = submit_many("toy-plain", [{"n": n} for n in range(orders)])
    run_until_idle()
    return keys


def test_five_failures_open_the_breaker_and_count_for_no_order_from_then_on():
    keys = break_down(8)

    assert the_breaker().breaker_state == "open"
    assert {step(key, "beta-step").failure_count for key in keys} == {0}  # the failures that opened the breaker count for no order
    assert {run_of(key).process_state for key in keys} == {"Processing"}
    assert {step(key, "beta-step").process_state for key in keys} == {"Pending"}


def test_four_failures_leave_it_closed_and_count_for_nobody_while_nobody_succeeds():
    keys = break_down(4)

    assert (the_breaker().breaker_state, the_breaker().failures) == ("closed", 4)
    assert {step(key, "beta-step").failure_count for key in keys} == {0}
    assert {step(key, "beta-step").process_state for key in keys} == {"Pending"}


def test_a_waiting_step_asks_again_within_half_a_minute_however_long_the_cool_down_is():
    """An operator may close the breaker by hand long before its cool-down is over."""
    circuit_breaker.know(["beta"])
    Resource.objects.filter(name="beta").update(cool_down_seconds=3600)
    keys = break_down(8)

    assert the_breaker().retry_at > timezone.now() + timedelta(minutes=50)
    assert all(step(key, "beta-step").not_before < timezone.now() + timedelta(minutes=1) for key in keys)


def test_nothing_is_called_while_it_is_open():
    break_down(5)
    asked = len(toy.BETA.performed)
    late = kit.ran("toy-plain", n=99)
    kit.again()

    assert len(toy.BETA.performed) == asked
    assert step(late, "alpha-step").process_state == "Processed"  # steps that call other services go on
    assert step(late, "beta-step").process_state == "Pending"


def test_one_probe_goes_through_after_the_cool_down_and_its_success_closes_it():
    keys = break_down(6)
    asked = len(toy.BETA.performed)
    toy.BETA.on_perform = None
    make_due()
    cool_down_passes()

    run_until_idle()

    assert the_breaker().breaker_state == "closed"
    assert len(toy.BETA.performed) >= asked + 1
    make_due()
    assert kit.idle_states(keys) == {"Processed"}


def test_a_failed_probe_opens_it_again_and_only_the_bound_was_asked():
    keys = break_down(6)
    asked = len(toy.BETA.performed)
    make_due()
    cool_down_passes()

    run_until_idle()

    assert len(toy.BETA.performed) == asked + 1
    assert the_breaker().breaker_state == "open"
    assert {step(key, "beta-step").failure_count for key in keys} == {0}


def test_an_outage_leads_no_order_to_error_however_often_it_is_tried():
    keys = break_down(6)

    for _ in range(20):
        make_due()
        cool_down_passes()
        run_until_idle()
        supervisor.sweep_once()

    assert {run_of(key).process_state for key in keys} == {"Processing"}
    toy.BETA.on_perform = None
    make_due()
    cool_down_passes()
    run_until_idle()
    make_due()
    assert kit.idle_states(keys) == {"Processed"}


@pytest.mark.parametrize("error", [PermanentFailure("no"), ZeroDivisionError()], ids=["a refusal", "a mistake"])
def test_refusals_are_answers_and_an_agents_own_mistakes_do_not_open_it_either(error):
    toy.BETA.on_perform = kit.raising(error)
    submit_many("toy-plain", [{"n": n} for n in range(6)])

    run_until_idle()

    assert not Resource.objects.filter(name="beta").exclude(breaker_state="closed").exists()


def test_an_unknown_outcome_keeps_its_effect_unknown_while_it_is_postponed():
    toy.BETA.on_perform = kit.raising(OutcomeUnknown("no answer"))
    keys = submit_many("toy-plain", [{"n": n} for n in range(6)])

    run_until_idle()

    assert {(step(key, "beta-step").effect, step(key, "beta-step").failure_count) for key in keys} == {("unknown", 0)}


def test_successes_in_between_clear_the_count():
    break_down(4)
    toy.BETA.on_perform = None
    kit.again()

    assert the_breaker().failures == 0


def test_probes_whose_caller_died_are_given_up():
    break_down(5)
    cool_down_passes()
    assert len(circuit_breaker.admit("beta", range(1, 11)).runs) == 1
    assert len(circuit_breaker.admit("beta", range(11, 21)).runs) == 0

    Resource.objects.filter(name="beta").update(probes_until="2020-01-01T00:00:00Z")

    assert len(circuit_breaker.admit("beta", range(21, 31)).runs) == 1


def test_looking_costs_no_statement_while_all_is_well(django_db_blocker):
    circuit_breaker.admit("beta", [1])

    with django_db_blocker.block():  # any statement raises
        assert len(circuit_breaker.admit("beta", range(200)).runs) == 200
        circuit_breaker.succeeded("beta", [time.monotonic()])


def test_born_claims_go_on_while_another_service_is_out():
    break_down(5)
    make_due()

    report = consuming.consume_batch()

    assert report.consumed == 0
    submit("toy-plain", {"n": 7})
    assert consuming.consume_batch().born
