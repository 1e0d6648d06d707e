"""Capacity and rate limits: never more calls in flight or per second, and a step that has to wait counts no failure."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from itertools import pairwise

import pytest
from django.db import connection

from supervision.dispatch import scheduler
from supervision.errors import TransientFailure
from supervision.execution import runner
from supervision.governance import admission, circuit_breaker, rate_limiter
from supervision.models import Resource, Slot, StepEvent
from supervision.operations import operator_verbs
from supervision.testing import make_due, run_of, run_until_idle, schedule, step, submit, submit_many
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


def limit(name="beta", **limits):
    Resource.objects.update_or_create(name=name, defaults=limits)
    circuit_breaker.forget()


def holders(count, first=1):
    return [(run, "do", 1, 1) for run in range(first, first + count)]


class Gauge:
    """Measures the most calls in flight at once; each call takes a while."""

    def __init__(self, seconds=0.02):
        self.now = self.most = self.calls = 0
        self.seconds = seconds
        self.lock = threading.Lock()
        self.begun = []

    def __call__(self, request):
        with self.lock:
            self.now += 1
            self.calls += 1
            self.most = max(self.most, self.now)
            self.begun.append(time.monotonic())
        time.sleep(self.seconds)
        with self.lock:
            self.now -= 1


def work_off(keys, within=30.0):
    """Schedule and perform until all of these are Processed; waits are skipped."""
    deadline = time.monotonic() + within
    run_until_idle()
    while any(run_of(key).process_state != "Processed" for key in keys):
        assert time.monotonic() < deadline, [run_of(key).process_state for key in keys]
        run_until_idle()
        make_due()
        time.sleep(0.01)


def test_never_more_calls_in_flight_than_the_capacity_and_nobody_fails(tuned):
    tuned(LINGER_SECONDS=1.0)
    limit(capacity=3)
    gauge = toy.BETA.on_perform = Gauge()
    keys = submit_many("toy-plain", [{"n": n} for n in range(20)])

    work_off(keys)

    assert (gauge.most, gauge.calls) == (3, 20)
    assert {step(key, "beta-step").failure_count for key in keys} == {0}
    assert Slot.objects.count() == 0
    assert kit.seqs_are_gapless()
    assert kit.healthy()


def test_the_claim_never_takes_more_than_there_is_capacity_for():
    limit(capacity=4)
    keys = submit_many("toy-plain", [{"n": n} for n in range(30)])
    kit.go(schedule())  # performs the first steps, so that the second ones are due

    sent = [claim for _, claims in schedule() for claim in claims]

    assert len(sent) == 4
    assert scheduler.claim_once(lambda *_: None) == (0, 0)
    assert not scheduler.due()
    assert StepEvent.objects.filter(run__key__in=keys, position=1, to_state="Processing").count() == 4


def test_a_full_resource_stops_nobody_elses_steps():
    limit(capacity=1)
    submit_many("toy-plain", [{"n": n} for n in range(3)])
    kit.go(schedule())
    held = schedule()
    assert [place.position for place, _ in held] == [1]

    late = submit("toy-plain", {"n": 9})
    kit.go(schedule())

    assert step(late, "alpha-step").process_state == "Processed"


def test_capacity_edited_during_the_work_holds_from_the_next_claim():
    limit(capacity=5)
    assert len(rate_limiter.take("beta", holders(5), lease_seconds=30).delays) == 5
    Resource.objects.filter(name="beta").update(capacity=2)

    assert rate_limiter.take("beta", holders(5, first=10), lease_seconds=30).delays == {}
    rate_limiter.give_back(holders(4))
    taken = rate_limiter.take("beta", holders(5, first=10), lease_seconds=30)

    assert len(taken.delays) == 1
    assert "2 of 2 calls are under way" in taken.why


def test_slots_of_a_killed_holder_come_back_when_their_lease_has_passed():
    limit(capacity=2)
    rate_limiter.take("beta", holders(2), lease_seconds=30)
    assert rate_limiter.take("beta", holders(1, first=5), lease_seconds=30).delays == {}

    kit.fetch("UPDATE supervision_slot SET until = now() - interval '1 ms' WHERE run_id = 1")

    assert len(rate_limiter.take("beta", holders(2, first=5), lease_seconds=30).delays) == 1
    assert Slot.objects.filter(resource="beta").count() == 2


def test_processes_that_take_slots_at_the_same_moment_never_take_too_many():
    limit(capacity=5)
    for turn in range(10):
        firsts = [100 * turn + 10 * n for n in range(6)]
        taken = kit.at_once(
            *[lambda first=first: len(rate_limiter.take("beta", holders(3, first), lease_seconds=30).delays) for first in firsts]
        )
        assert sum(taken) == 5, taken
        kit.fetch("DELETE FROM supervision_slot")


def test_a_slot_is_leased_for_as_long_as_the_call_may_last():
    limit(capacity=2)
    rate_limiter.take("beta", holders(1), lease_seconds=30)

    ((seconds,),) = kit.fetch("SELECT extract(epoch FROM until - taken_at)::float8 FROM supervision_slot")

    assert seconds == pytest.approx(30 + rate_limiter.GRACE_SECONDS, abs=0.1)


class Outlasting:
    """For each call: by how many seconds its deadline lies after its slot's expiry."""

    def __init__(self):
        self.seconds = []

    def look(self, request):
        ((left,),) = kit.fetch(
            "SELECT extract(epoch FROM until - clock_timestamp())::float8 FROM supervision_slot WHERE run_id = %s", [request.run_id]
        )
        self.seconds.append(request.deadline - time.monotonic() - left)


@pytest.fixture
def one_thread(engine, monkeypatch):
    """This process can make one call at a time."""
    monkeypatch.setattr(runner.process.pool, "size", 1)


def test_no_call_outlives_its_slot_however_long_it_waited_for_a_thread(one_thread):
    limit(capacity=3)
    outlasting = Outlasting()

    def behave(request):
        outlasting.look(request)
        # Let time pass for the calls that already have a slot.
        kit.fetch("UPDATE supervision_slot SET until = until - interval '10 s' WHERE run_id <> %s", [request.run_id])
        connection.close()

    toy.BETA.on_perform = behave
    keys = submit_many("toy-plain", [{"n": n} for n in range(3)])
    kit.go(schedule())
    sent = schedule()
    assert sum(len(claims) for _, claims in sent) == 3
    kit.go(sent)
    kit.until(lambda: len(outlasting.seconds) == 3)

    assert max(outlasting.seconds) <= 0
    assert {step(key, "beta-step").failure_count for key in keys} == {0}


def test_no_call_outlives_its_slot_when_its_start_comes_late():
    limit(capacity=3)
    outlasting = Outlasting()

    def behave(request):
        outlasting.look(request)
        connection.close()

    toy.BETA.on_perform = behave
    submit("toy-plain", {"n": 1})
    kit.go(schedule())
    sent = schedule()
    with slow("supervision_slot", seconds=rate_limiter.GRACE_SECONDS + 0.5):
        kit.go(sent)
        kit.until(lambda: outlasting.seconds)

    assert outlasting.seconds[0] <= 0


def test_schedulers_that_claim_at_the_same_moment_lead_to_no_more_calls_than_there_are_slots(tuned):
    tuned(LINGER_SECONDS=1.0)
    limit(capacity=2)
    gauge = toy.BETA.on_perform = Gauge()
    keys = submit_many("toy-plain", [{"n": n} for n in range(12)])
    kit.go(schedule())

    def schedule_and_perform():
        sent = []
        scheduler.claim_once(lambda place, claims: sent.append((place, claims)))
        kit.go(sent)

    for _ in range(4):
        answers = kit.at_once(*[schedule_and_perform] * 4)
        assert not [answer for answer in answers if answer is not None]
        make_due()
    work_off(keys)

    assert gauge.most <= 2
    assert {step(key, "beta-step").failure_count for key in keys} == {0}
    assert Slot.objects.count() == 0


@pytest.mark.parametrize("rate", [0.5, 3, 10, 40, 250])
def test_no_second_has_more_calls_than_the_rate_allows_even_when_some_arrive_late(rate):
    """Checked on the reserved moments: any window of a second, when each call may be up to JITTER_SECONDS late."""
    limit(rate_per_second=rate)
    moments, now = [], 0.0

    def take_at(next_call: float, first: int) -> list[float]:
        """The granted delays when the next call is possible in this many seconds, without the time of the statements."""
        kit.fetch("UPDATE supervision_resource SET next_call_at = clock_timestamp() + make_interval(secs => %s)", [next_call])
        granted = list(rate_limiter.take("beta", holders(300, first=first), lease_seconds=1).delays.values())
        kit.fetch("DELETE FROM supervision_slot")
        return [delay + max(0.0, next_call - granted[0]) for delay in granted]

    for turn in range(400):
        granted = take_at(max(0.0, moments[-1] + rate_limiter.gap(rate) - now) if moments else 0.0, 1000 * turn)
        moments += [now + delay for delay in granted]
        now += rate_limiter.HORIZON_SECONDS
        if len(moments) > 600 or now > 20:
            break

    assert len(moments) > min(rate * now * 0.8, 500) - 1
    # Calls that arrive within one second were reserved within this window.
    window = 1 + rate_limiter.JITTER_SECONDS - 0.001
    most = max(sum(moment <= other < moment + window for other in moments) for moment in moments)
    assert most <= max(1, rate) + 1e-9
    assert all(later - earlier >= 1 / rate - 0.02 for earlier, later in pairwise(moments))


@contextmanager
def slow(*tables, seconds=0.4):
    """Delay every commit that wrote to one of these tables, as a checkpoint does that keeps the disk busy."""
    kit.fetch(f"CREATE FUNCTION a_slow_commit() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END'")
    for table in tables:
        kit.fetch(
            f"CREATE CONSTRAINT TRIGGER a_slow_commit AFTER INSERT OR UPDATE ON {table} DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION a_slow_commit()"
        )
    try:
        yield
    finally:
        kit.fetch("DROP FUNCTION a_slow_commit() CASCADE")


@pytest.fixture
def slow_commits(engine):
    """Every commit that wrote to a slot or a resource takes 0.4 s."""
    with slow("supervision_slot", "supervision_resource"):
        yield


def test_a_moment_does_not_move_when_the_commit_that_reserved_it_takes_long(slow_commits):
    """The call misses its moment and asks for a new one (`StepRequest.pace`). A moved moment would collide with later ones."""
    limit(rate_per_second=10)

    began = time.monotonic()
    taken = rate_limiter.take("beta", holders(1), lease_seconds=30)
    assert time.monotonic() - began > 0.4
    assert taken.at + taken.delays[holders(1)[0]] < began + 0.2

    began = time.monotonic()
    (moment,) = rate_limiter.reserve("beta", 1)
    assert time.monotonic() - began > 0.4
    assert moment < began + 0.3


def test_calls_begin_no_faster_than_the_rate(tuned):
    tuned(LINGER_SECONDS=1.0)
    limit(rate_per_second=20)
    gauge = toy.BETA.on_perform = Gauge(seconds=0.0)
    keys = submit_many("toy-plain", [{"n": n} for n in range(20)])

    work_off(keys)

    assert gauge.calls == 20
    assert max(sum(begun <= other < begun + 1 for other in gauge.begun) for begun in gauge.begun) <= 20
    assert gauge.begun[-1] - gauge.begun[0] >= 19 / 20
    assert {step(key, "beta-step").failure_count for key in keys} == {0}


def test_a_paused_resource_gets_no_call_until_it_goes_on():
    limit(paused=True)
    key = kit.ran()
    kit.again()
    assert (step(key, "beta-step").process_state, toy.BETA.performed) == ("Pending", [])

    limit(paused=False)
    make_due()
    assert kit.idle_state(key) == "Processed"


def test_a_pause_between_claim_and_call_postpones_and_counts_no_failure():
    limit(capacity=5)
    key = submit("toy-plain", {"n": 1})
    kit.go(schedule())
    sent = schedule()
    limit(paused=True)

    kit.go(sent)

    row = step(key, "beta-step")
    assert (row.process_state, row.failure_count, row.locked_by, toy.BETA.performed) == ("Pending", 0, None, [])
    assert row.not_before is not None
    assert "is paused" in str(kit.events(key)[-1].why)


def test_a_claim_that_is_no_longer_ours_gives_its_slot_back():
    limit(capacity=1)
    key = submit("toy-plain", {"n": 1})
    kit.go(schedule())
    ((place, claims),) = schedule()
    kit.fetch("UPDATE supervision_stepstate SET attempt = attempt + 1 WHERE run_id = %s AND position = 1", [run_of(key).pk])

    kit.go([(place, claims)])

    assert (Slot.objects.count(), toy.BETA.performed, admission._permits) == (0, [], {})


def test_a_failed_call_gives_its_slot_back_and_its_error_is_shown_at_the_resource():
    limit(capacity=1)

    toy.BETA.on_perform = kit.raising(TransientFailure("the bank says: not now"))
    kit.ran()

    resource = Resource.objects.get(name="beta")
    assert (Slot.objects.count(), resource.last_error) == (0, "the bank says: not now")
    assert resource.last_error_at is not None


def test_the_first_step_of_a_new_order_waits_for_room_too():
    limit("alpha", capacity=1)
    keys = submit_many("toy-plain", [{"n": n} for n in range(3)])

    sent = [claim for _, claims in schedule() for claim in claims]

    assert len(sent) == 1
    assert sorted(step(key, "alpha-step").process_state for key in keys) == ["Pending", "Pending", "Processing"]


def test_undo_calls_keep_to_the_limits_as_well(tuned):
    tuned(LINGER_SECONDS=1.0)
    from_cancel = [kit.started("toy-plain")[0] for _ in range(4)]
    run_until_idle()
    limit("alpha", capacity=2)
    gauge = toy.ALPHA.on_compensate = Gauge()
    for key in from_cancel:
        operator_verbs.cancel(key, by="operator", reason="changed their minds")
    for _ in range(20):
        kit.expire_and_sweep()
        kit.again()
        if all(run_of(key).process_state == "Cancelled" for key in from_cancel):
            break

    assert {run_of(key).process_state for key in from_cancel} == {"Cancelled"}
    assert gauge.most <= 2
