"""The circuit breaker's rules without a database: who is to blame, when it opens, and which calls are its probes."""

from __future__ import annotations

import pytest

from supervision.breaker import CLOSED, HALF_OPEN, MOST_KEPT, OPEN, PROBE_SECONDS, Breaker, FailedCall

NOW = 1_000_000.0


def at(breaker, seconds):
    """The same row this many seconds later."""
    breaker.now = NOW + seconds
    return breaker


def fails(breaker, *runs, failing_for=None, **facts):
    return breaker.failed([FailedCall(run, failing_for=failing_for, **facts) for run in runs])


def test_failures_of_several_orders_open_it_at_the_threshold_and_none_is_counted():
    breaker = Breaker(NOW)

    told = [fails(breaker, run) for run in (1, 2, 3, 4)]
    assert (breaker.state, [it.wait for it in told]) == (CLOSED, [None] * 4)
    last = fails(breaker, 5)

    assert (breaker.state, last.wait, breaker.opened_at, breaker.retry_at) == (OPEN, 5.0, NOW, NOW + 5)
    assert not any(it.blames[run].own for run, it in enumerate([*told, last], start=1))


def test_one_lone_order_never_opens_it_and_is_never_blamed():
    breaker = Breaker(NOW)

    told = [fails(at(breaker, n), 7, failing_for=float(n) or None) for n in range(50)]

    assert breaker.state == CLOSED
    assert not any(it.blames[7].own for it in told)
    assert told[-1].blames[7].failing_for == 49


def test_a_refused_connection_is_no_orders_fault_and_opens_it_for_one_lone_order():
    breaker = Breaker(NOW, successes=[NOW - 1])

    told = [fails(at(breaker, n), 7, failing_for=100.0 + n, unreachable=True) for n in range(5)]

    assert breaker.state == OPEN
    assert not any(it.blames[7].own for it in told)


def test_a_refused_key_opens_it_at_once():
    breaker = Breaker(NOW, successes=[NOW - 1])

    told = fails(breaker, 7, failing_for=100.0, refuses_us=True)

    assert (breaker.state, told.blames[7].own) == (OPEN, False)


def test_a_failure_counts_for_its_order_once_another_call_has_succeeded_since_its_first():
    breaker = Breaker(NOW)
    assert not fails(breaker, 7).blames[7].own
    breaker.succeeded([0.5], just_now=True)  # this call ended before the failure
    assert not fails(at(breaker, 1), 7, failing_for=1.0).blames[7].own

    at(breaker, 3).succeeded([0.1], just_now=True)
    later = fails(at(breaker, 5), 7, failing_for=5.0)

    assert later.blames[7].own
    assert later.blames[7].anew


def test_what_is_counted_since_the_last_success_is_told_from_what_was_counted_before():
    breaker = Breaker(NOW, successes=[NOW - 1])
    assert fails(at(breaker, 1), 7, failing_for=10.0).blames[7].anew
    assert not fails(at(breaker, 2), 7, failing_for=11.0).blames[7].anew

    at(breaker, 3).succeeded([0.0], just_now=True)

    assert fails(at(breaker, 4), 7, failing_for=13.0).blames[7].anew


def test_orders_known_to_be_at_fault_do_not_open_it_together():
    breaker = Breaker(NOW, successes=[NOW - 9, NOW - 8, NOW - 7, NOW - 6, NOW - 5])

    for second in range(20):
        told = fails(at(breaker, second), 1, 2, 3, failing_for=10.0 + second)
        assert all(blame.own for blame in told.blames.values())

    assert breaker.state == CLOSED


def test_orders_that_were_overtaken_by_too_few_to_be_sure_open_it_and_get_back_what_was_counted():
    breaker = Breaker(NOW, successes=[NOW - 5])

    told = [fails(at(breaker, second), 1, 2, failing_for=10.0 + second) for second in range(3)]

    assert [it.wait is None for it in told] == [True, True, False]
    assert set(told[-1].give_back) == {1, 2}


def test_so_many_orders_that_fail_while_none_succeeds_are_an_outage_whatever_is_known_of_them():
    breaker = Breaker(NOW, successes=[NOW - 9, NOW - 8, NOW - 7, NOW - 6, NOW - 5])

    assert fails(breaker, *range(9), failing_for=10.0).wait is None
    assert fails(breaker, 9, failing_for=10.0).wait is not None


def test_calls_that_were_under_way_when_it_opened_change_nothing():
    breaker = Breaker(NOW, state=OPEN, retry_at=NOW + 3, opened_at=NOW - 2, failures=5)

    told = fails(breaker, 8, 9)

    assert (told.wait, breaker.retry_at, breaker.failures) == (3.0, NOW + 3, 5)
    at(breaker, 4).probe([4])
    fails(breaker, 8)
    assert breaker.state == HALF_OPEN
    breaker.succeeded([0.1], just_now=False)
    assert breaker.state == HALF_OPEN


def test_a_failed_probe_opens_it_again_and_a_good_one_closes_it():
    breaker = Breaker(NOW, state=OPEN, retry_at=NOW, opened_at=NOW - 9)
    breaker.probe([4])
    fails(breaker, 4)
    assert (breaker.state, breaker.retry_at, breaker.opened_at) == (OPEN, NOW + 5, NOW - 9)

    at(breaker, 5).probe([6])

    assert breaker.succeeded([0.0], just_now=True)
    assert (breaker.state, breaker.failures, breaker.suspects, breaker.opened_at) == (CLOSED, 0, [], None)


def test_no_more_probes_than_allowed_go_and_one_that_never_ends_is_given_up():
    breaker = Breaker(NOW, state=OPEN, retry_at=NOW, probe_limit=2)
    assert breaker.probes_left() == 2
    breaker.probe([1])

    assert breaker.admit([9, 1, 8]) == [1, 9]  # the chosen order and one more
    assert (breaker.probes_left(), breaker.admit([7])) == (0, [])
    assert at(breaker, PROBE_SECONDS + 1).probes_left() == 2


def test_a_probe_without_a_verdict_makes_room_for_another():
    breaker = Breaker(NOW, state=OPEN, retry_at=NOW)
    breaker.probe([1])

    breaker.give_back([5])
    assert breaker.probes_left() == 0
    breaker.give_back([1])

    assert (breaker.state, breaker.probes_left()) == (HALF_OPEN, 1)


@pytest.mark.parametrize("threshold", [1, 5, 1000])
def test_what_is_remembered_is_bounded(threshold):
    breaker = Breaker(NOW, threshold=threshold)
    for second in range(3000):
        at(breaker, second)
        breaker.failed([FailedCall(second)])
        breaker.state = CLOSED
        if second % 1000 == 999:
            breaker.succeeded([0.0] * 200, just_now=True)

    assert len(breaker.successes) <= MOST_KEPT
    assert len(breaker.suspects) <= max(MOST_KEPT, 4 * threshold)
