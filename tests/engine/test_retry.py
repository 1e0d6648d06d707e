"""The retry policy: what follows a failure (counting, thresholds, delays). Pure functions, so no database."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervision.errors import DefinitionError
from supervision.retry import (
    Abandon,
    Compensate,
    Fail,
    Failure,
    OnExhausted,
    OnPermanent,
    Outcome,
    Retry,
    RetryLimits,
    RetryPolicy,
    Skip,
    Wait,
    decide,
)

POLICY = RetryPolicy(first_delay=timedelta(seconds=1), max_delay=timedelta(seconds=60))
EXPIRED = Failure(outcome=Outcome.EXPIRED, message="no answer")


def limits(threshold: int = 3, exhausted: OnExhausted = OnExhausted.ERROR, permanent: OnPermanent = OnPermanent.ERROR) -> RetryLimits:
    return RetryLimits(threshold=threshold, long_wait=timedelta(seconds=300), on_exhausted=exhausted, on_permanent=permanent)


@pytest.mark.parametrize(("failures_before", "kind"), [(1, Retry), (2, Fail), (3, Fail)], ids=["N-1", "N", "N+1"])
def test_a_step_is_retried_below_the_threshold_and_failed_from_it_on(failures_before, kind):
    decision = decide(failures_before, EXPIRED, POLICY, limits(threshold=3))

    assert isinstance(decision, kind)


def test_a_threshold_of_one_means_no_retry():
    assert isinstance(decide(0, EXPIRED, POLICY, limits(threshold=1)), Fail)


@pytest.mark.parametrize("failures_before", [0, 2, 3, 50])
def test_a_lost_dispatch_is_sent_again_at_once_and_never_counted(failures_before):
    lost = Failure(outcome=Outcome.EXPIRED, started=False)

    assert decide(failures_before, lost, POLICY, limits()) == Retry(delay=timedelta(0), counted=False)


def test_a_postponed_step_comes_back_when_it_asked_to_and_is_not_counted():
    postponed = Failure(outcome=Outcome.POSTPONED, not_before=timedelta(seconds=7))

    assert decide(99, postponed, POLICY, limits()) == Retry(delay=timedelta(seconds=7), counted=False)


@pytest.mark.parametrize(
    ("how", "kind"),
    [(OnExhausted.ERROR, Fail), (OnExhausted.WAIT, Wait), (OnExhausted.COMPENSATE, Compensate), (OnExhausted.SKIP, Skip)],
)
def test_the_policy_says_what_exhausted_attempts_lead_to(how, kind):
    assert isinstance(decide(2, EXPIRED, POLICY, limits(exhausted=how)), kind)


@pytest.mark.parametrize(("how", "kind"), [(OnPermanent.ERROR, Fail), (OnPermanent.COMPENSATE, Compensate), (OnPermanent.SKIP, Skip)])
def test_the_policy_says_what_a_permanent_failure_leads_to(how, kind):
    refused = Failure(outcome=Outcome.PERMANENT, message="declined")

    assert isinstance(decide(0, refused, POLICY, limits(permanent=how)), kind)


@pytest.mark.parametrize("outcome", list(Outcome))
def test_an_attempt_of_a_run_that_is_being_undone_is_abandoned_whatever_its_end(outcome):
    assert isinstance(decide(0, Failure(outcome=outcome, abandoned=True), POLICY, limits()), Abandon)


@pytest.mark.parametrize("outcome", [Outcome.EXPIRED, Outcome.TRANSIENT, Outcome.UNKNOWN, Outcome.POSTPONED])
def test_nothing_is_retried_when_the_time_for_the_whole_order_is_over(outcome):
    overdue = Failure(outcome=outcome, run_overdue=True)

    assert isinstance(decide(0, overdue, POLICY, limits()), Fail)
    assert isinstance(decide(0, overdue, POLICY, limits(exhausted=OnExhausted.WAIT)), Fail)
    assert isinstance(decide(0, overdue, POLICY, limits(exhausted=OnExhausted.COMPENSATE)), Compensate)


def test_a_service_that_asks_for_a_pause_gets_at_least_that_pause():
    asked = Failure(outcome=Outcome.TRANSIENT, not_before=timedelta(seconds=30))

    assert decide(0, asked, POLICY, limits(), roll=0.0) == Retry(delay=timedelta(seconds=30), counted=True)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (1000, 60)])
def test_delays_double_up_to_the_longest(failures, seconds):
    assert POLICY.delay(failures, 0.0) == timedelta(seconds=seconds)


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True), st.floats(0, 1), st.floats(1, 10))
def test_every_delay_lies_within_its_jitter(failures, roll, jitter, factor):
    policy = RetryPolicy(jitter=jitter, factor=factor)
    least = policy.delay(failures, 0.0)

    assert least <= policy.delay(failures, roll) <= least * (1 + jitter) + timedelta(microseconds=2)
    assert least <= policy.max_delay


@given(st.integers(1, 50), st.sampled_from([Outcome.EXPIRED, Outcome.TRANSIENT, Outcome.UNKNOWN]), st.sampled_from(list(OnExhausted)))
def test_exactly_threshold_failures_end_retrying(threshold, outcome, how):
    failure = Failure(outcome=outcome)

    decisions = [decide(count, failure, POLICY, limits(threshold, how)) for count in range(threshold)]

    assert all(isinstance(decision, Retry) and decision.counted for decision in decisions[:-1])
    assert not isinstance(decisions[-1], Retry)


@given(st.integers(0, 100), st.sampled_from(list(Outcome)), st.booleans(), st.booleans(), st.sampled_from(list(OnExhausted)))
def test_every_failure_has_a_decision_and_no_delay_is_negative(count, outcome, started, overdue, how):
    decision = decide(count, Failure(outcome=outcome, started=started, run_overdue=overdue), POLICY, limits(exhausted=how))

    assert isinstance(decision, Retry | Wait | Compensate | Fail | Skip)
    assert getattr(decision, "delay", timedelta(0)) >= timedelta(0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"threshold": 0},
        {"first_delay": timedelta(seconds=-1)},
        {"first_delay": timedelta(seconds=9), "max_delay": timedelta(seconds=1)},
        {"factor": 0.5},
        {"jitter": 1.5},
        {"jitter": -0.1},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_where_it_is_written(wrong):
    with pytest.raises(DefinitionError):
        RetryPolicy(**wrong)
