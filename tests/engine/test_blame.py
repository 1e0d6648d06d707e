"""Blame by evidence: the engine tells an order's own failure from an outage, and probes a service with different orders."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from supervision.dispatch import scheduler
from supervision.errors import OutcomeUnknown, PermanentFailure, Postpone, TransientFailure
from supervision.governance import circuit_breaker, outages, probes, resources
from supervision.incidents import lifecycle
from supervision.models import Alert, Resource, StepEvent
from supervision.operations import operator_verbs
from supervision.recovery import supervisor
from supervision.testing import make_due, run_of, run_until_idle, step, submit, submit_many
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


def failing(poisonous=lambda request: True, error=lambda: OutcomeUnknown("failed (500)")):
    """Let beta fail every call of these orders and answer all others."""

    def behave(request):
        if poisonous(request):
            raise error()

    toy.BETA.on_perform = behave


def beta():
    return Resource.objects.get(name="beta")


def cool_down_passes():
    Resource.objects.filter(name="beta").update(retry_at="2020-01-01T00:00:00Z")
    resources.forget()
    circuit_breaker._tried.clear()


def work_on(rounds):
    """This many times: let every wait pass, then perform every step that is due."""
    for _ in range(rounds):
        make_due()
        cool_down_passes()
        run_until_idle()


def processed(keys):
    return sum(run_of(key).process_state == "Processed" for key in keys)


def bad(request):
    return request.payload["n"] < 0


# ----------------------------------------------------------------------------------------------- an order's own failure


def test_three_poisonous_orders_among_forty_end_in_error_and_stop_nobody():
    failing(bad)
    poison = submit_many("toy-five", [{"n": -n} for n in (1, 2, 3)])
    work_on(4)  # there are no other orders, so the breaker opens
    healthy = submit_many("toy-five", [{"n": n} for n in range(40)])

    work_on(4)
    assert processed(healthy) == 40

    work_on(10)
    assert {run_of(key).process_state for key in poison} == {"Error"}
    assert {step(key, "beta-step").failure_count for key in poison} == {5}
    assert Alert.objects.filter(kind="error").count() == 3
    assert beta().breaker_state == "closed"
    assert kit.healthy()


def test_a_lone_order_whose_service_fails_waits_longer_and_longer_and_never_stops_in_error():
    """The step's threshold (3) is below the breaker's (5). In an earlier version such an order ended in Error."""
    failing()
    key = submit("toy-plain", {"n": 1})

    for _ in range(12):
        kit.again()
        supervisor.sweep_once()

    row = step(key, "beta-step")
    assert (run_of(key).process_state, row.process_state, row.failure_count) == ("Processing", "Pending", 0)
    assert len(toy.BETA.performed) == 12
    assert beta().breaker_state == "closed"

    kit.fetch("UPDATE supervision_stepstate SET failing_since = now() - interval '60 s' WHERE failing_since IS NOT NULL")
    kit.again()
    ((wait,),) = kit.fetch(
        "SELECT extract(epoch FROM not_before - now())::float8 FROM supervision_stepstate WHERE failing_since IS NOT NULL"
    )
    assert 55 < wait < 80


def test_after_another_orders_success_the_failures_of_one_are_its_own():
    failing(bad)
    key = kit.ran("toy-plain", n=-1)
    assert step(key, "beta-step").failure_count == 0
    kit.ran()

    for expected in (1, 2, 3):
        kit.again()
        assert step(key, "beta-step").failure_count == expected

    assert run_of(key).process_state == "Error"


def test_a_success_before_the_first_failure_says_nothing():
    kit.ran()
    failing(bad)
    key = submit("toy-plain", {"n": -1})
    kit.again(6)

    assert (run_of(key).process_state, step(key, "beta-step").failure_count) == ("Processing", 0)


def test_a_success_in_a_process_that_had_not_heard_of_the_failure_is_told_by_timer():
    failing(bad)
    key = kit.ran("toy-plain", n=-1)
    resources._seen = resources.Snapshot({"beta": replace(resources.look().by_name["beta"], watched=False)})
    circuit_breaker.succeeded("beta", [time.monotonic()])
    assert beta().successes == []

    resources.forget()
    circuit_breaker.tell()
    assert len(beta().successes) == 1
    kit.again()

    assert step(key, "beta-step").failure_count == 1


def test_what_was_counted_before_the_breaker_opened_is_given_back():
    failing(bad)
    first = kit.ran("toy-five", n=-1)
    kit.ran("toy-five")
    kit.again(2)
    assert step(first, "beta-step").failure_count == 2

    failing()  # now the service fails for every order
    others = submit_many("toy-five", [{"n": n} for n in range(5)])
    run_until_idle()

    assert beta().breaker_state == "open"
    assert {step(key, "beta-step").failure_count for key in [first, *others]} == {0}
    assert kit.healthy()


def test_an_order_that_an_operator_resubmits_starts_with_a_clean_record():
    key = kit.in_error(1)
    kit.fetch("UPDATE supervision_stepstate SET failing_since = now(), blamed_count = 3 WHERE process_state = 'Error'")

    operator_verbs.resubmit(key, by="operator", reason="mended")

    row = step(key, "beta-step")
    assert (row.failing_since, row.blamed_count) == (None, None)


# ------------------------------------------------------------------------------------------------------ an outage


def test_a_refused_connection_opens_the_breaker_for_one_lone_order():
    failing(error=lambda: TransientFailure("cannot be reached", unreachable=True))
    key = submit("toy-plain", {"n": 1})
    kit.again(8)

    assert (beta().breaker_state, beta().last_code) == ("open", "unreachable")
    assert (run_of(key).process_state, step(key, "beta-step").failure_count) == ("Processing", 0)


def test_a_refused_key_is_an_incident_at_once_that_names_what_to_do():
    failing(error=lambda: TransientFailure("refuses our API key (401): check BETA_KEY", refuses_us=True))
    keys = submit_many("toy-plain", [{"n": n} for n in range(3)])
    run_until_idle()
    assert beta().breaker_state == "open"  # after fewer failures than its threshold
    work_on(10)

    (cause,) = outages.outages()
    assert (cause.key, cause.kind, cause.code, cause.severity, cause.orders) == ("outage:beta", "outage", "refuses_us", "critical", 3)
    assert "check BETA_KEY" in cause.title
    assert cause.since == beta().opened_at
    assert {run_of(key).process_state for key in keys} == {"Processing"}


def test_an_open_breaker_is_one_cause_with_all_who_wait_until_it_closes():
    assert list(outages.outages()) == []
    failing()
    submit_many("toy-plain", [{"n": n} for n in range(12)])
    run_until_idle()

    (cause,) = outages.outages()
    assert (cause.key, cause.resource, cause.orders, cause.severity) == ("outage:beta", "beta", 12, "critical")
    assert "beta is out since" in cause.title
    assert "failed (500)" in cause.title
    assert lifecycle._detectors["outage"] is outages.outages

    toy.BETA.on_perform = None
    work_on(2)
    assert list(outages.outages()) == []


def test_a_lone_order_that_nobody_can_judge_is_told_too():
    failing()
    submit("toy-plain", {"n": 1})
    kit.again(5)

    (cause,) = outages.outages()
    assert (cause.key, cause.orders, beta().breaker_state) == ("outage:beta", 1, "closed")
    assert "the only order" in cause.title

    submit("toy-plain", {"n": 2})
    toy.BETA.on_perform = None
    run_until_idle()
    assert list(outages.outages()) == []


def test_a_successor_waits_unclaimed_while_its_service_is_out():
    failing()
    submit_many("toy-plain", [{"n": n} for n in range(6)])
    run_until_idle()

    late = kit.ran("toy-plain", n=9)

    assert not StepEvent.objects.filter(run__key=late, position=1).exists()
    assert step(late, "beta-step").not_before is not None


# ---------------------------------------------------------------------------------------------------------- probes


def half_open(orders=6, **settings):
    failing()
    keys = submit_many("toy-plain", [{"n": n} for n in range(orders)])
    run_until_idle()
    assert beta().breaker_state == "open"
    make_due()
    cool_down_passes()
    return keys


def events_of_beta():
    return StepEvent.objects.filter(position=1).count()


def test_a_refusal_is_an_answer_and_closes_the_breaker():
    half_open()

    toy.BETA.on_perform = kit.raising(PermanentFailure("no"))
    run_until_idle()

    assert beta().breaker_state == "closed"
    kit.again()
    assert Alert.objects.filter(kind="error").count() == 6


def test_waiters_write_nothing_while_the_probe_is_out():
    half_open()
    held = probes.claim("beta")  # another scheduler has claimed the probe
    assert sum(map(len, held.values())) == 1
    before = events_of_beta()

    for _ in range(5):
        circuit_breaker.forget()
        run_until_idle()

    assert events_of_beta() == before


def test_of_many_schedulers_at_once_one_gets_the_probe():
    half_open()

    answers = kit.at_once(*[lambda: sum(map(len, probes.claim("beta").values()))] * 6)

    assert sorted(answers) == [0, 0, 0, 0, 0, 1]
    assert len(beta().probing) == 1
    assert StepEvent.objects.filter(position=1, to_state="Processing", attempt=2).count() == 1


def test_probes_take_orders_that_have_not_failed_first_and_then_each_in_turn():
    keys = half_open(5)
    late = submit_many("toy-plain", [{"n": 100 + n} for n in range(2)])
    run_until_idle()  # the probe failed; the later orders wait
    toy.BETA.performed.clear()

    for _ in range(8):
        work_on(1)

    asked = [request.run_key for request in toy.BETA.performed]
    assert len(asked) == 8
    assert set(asked[:2]) <= set(late) | set(keys)
    assert set(late) <= set(asked[:3])
    assert len(set(asked[:7])) >= 6  # no order is the probe twice while others have not been


@pytest.mark.parametrize("error", [Postpone("later"), ZeroDivisionError("our own mistake")], ids=["postponed", "our own"])
def test_a_probe_that_proves_nothing_makes_room_for_another_at_once(error):
    half_open()
    asked = len(toy.BETA.performed)
    toy.BETA.on_perform = kit.raising(error)
    run_until_idle()

    assert len(toy.BETA.performed) > asked
    assert (beta().breaker_state, beta().probing, beta().probes) == ("half-open", [], 0)
    toy.BETA.on_perform = None
    circuit_breaker.forget()
    run_until_idle()
    assert beta().breaker_state == "closed"


def test_a_half_open_breaker_is_tried_out_without_any_other_work_to_do():
    half_open()

    assert scheduler.due()
    assert sum(map(len, probes.claim("beta").values())) == 1
    assert not scheduler.due()
