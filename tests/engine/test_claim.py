"""CLAIM: exclusive, exactly as many as asked for, never too early, and in fair turns, so that no order waits for ever."""

from __future__ import annotations

from collections import Counter

import pytest

from supervision.intake import consuming
from supervision.intake.fair_turns import FairTurns, fair_turns
from supervision.models import Run, StepEvent, StepState
from supervision.operations import operator_verbs
from supervision.recovery import failures
from supervision.store import claiming, step_verbs
from supervision.testing import make_due, run_of, run_until_idle, submit
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("engine")


@pytest.mark.parametrize(("processes", "runs"), [(4, 1000)])
def test_real_processes_claim_each_waiting_run_exactly_once(processes, runs):
    kit.waiting(runs)
    workers = [kit.Process("claim", "7") for _ in range(processes)]

    for worker in [worker.ready() for worker in workers]:
        worker.begin()
    claimed = [worker.answer() for worker in workers]

    times = Counter(run_id for mine in claimed for run_id in mine)
    assert len(times) == runs
    assert set(times.values()) == {1}
    assert sum(1 for mine in claimed if mine) > 1
    assert StepEvent.objects.filter(to_state="Processing").count() == runs
    assert set(StepState.objects.filter(position=0).values_list("attempt", flat=True)) == {1}
    assert kit.seqs_are_gapless()


@pytest.mark.parametrize("limit", [1, 7, 50])
def test_a_claim_takes_exactly_as_many_as_it_may(limit):
    kit.waiting(60)

    claimed = sum(len(claims) for claims in claiming.claim(limit).values())

    assert claimed == limit
    assert StepState.objects.filter(process_state="Processing").count() == limit


def test_a_claim_raises_the_attempt_by_one_and_names_its_owner_and_deadline():
    key, _place, claims = kit.claimed()
    bystander = submit("toy-plain", {"n": 2})
    kit.fetch("UPDATE supervision_stepstate SET process_state = 'Pending', locked_by = NULL WHERE run_id = %s", [claims[0].run_id])

    (again,) = claiming.claim(1).values()

    assert [claim.attempt for claim in again] == [2]
    row = StepState.objects.get(run__key=key, position=0)
    assert row.locked_by == step_verbs.me()
    assert row.complete_by > row.not_before
    assert not StepState.objects.filter(run__key=bystander).exists()


def test_a_step_is_not_claimed_before_its_time():
    early, due = kit.waiting(2)
    kit.fetch(
        "UPDATE supervision_stepstate s SET not_before = now() + interval '1 hour' FROM supervision_run r"
        " WHERE r.id = s.run_id AND r.key = %s AND position = 0",
        [early],
    )

    assert sum(len(claims) for claims in claiming.claim(10).values()) == 1
    assert (kit.states(early)[0], kit.states(due)[0]) == ("Pending", "Processing")
    make_due(early)
    assert sum(len(claims) for claims in claiming.claim(10).values()) == 1


def test_a_later_step_is_not_claimed_before_its_predecessor_is_done():
    kit.claimed()

    assert claiming.claim(10) == {}


def test_a_locked_row_sends_the_second_scheduler_to_other_work():
    first, second = kit.waiting(2)
    with kit.another_connection() as other:
        other.execute(
            "SELECT 1 FROM supervision_stepstate s JOIN supervision_run r ON r.id = s.run_id WHERE r.key = %s FOR UPDATE OF s",
            [first],
        )

        claiming.claim(10)

        assert (kit.states(first)[0], kit.states(second)[0]) == ("Pending", "Processing")


def test_an_undo_waits_until_the_running_step_of_its_order_has_ended():
    key, place, items = kit.at_step(1)
    operator_verbs.cancel(key, by="customer", reason="no")

    before = claiming.claim(10)
    kit.finish(place, items)
    after = claiming.claim(10)

    assert before == {}
    assert [(there.direction, there.position) for there in after] == [("undo", 1)]


def test_nothing_is_claimed_beyond_what_may_be_in_flight(tuned):
    tuned(IN_FLIGHT=3, COHORT=2)
    kit.waiting(5)

    running = StepState.objects.filter(process_state="Processing")
    claimed = [running.count() for _ in range(4) if kit.schedule() is not None]

    assert claimed == [3, 3, 3, 3]
    assert claiming.in_flight.count() == 3


def leave(sent: list, count: int) -> None:
    """Let this many of these claims fail for good, so that fewer are in flight."""
    places = [(place, claim) for place, claims in sent for claim in claims][:count]
    for place, claim in places:
        step_verbs.start(place, [claim])
        failures.fail(place, [(claim, kit.refusal())])


def test_at_the_limit_steps_are_claimed_in_cohorts_and_not_in_crumbs(tuned):
    tuned(IN_FLIGHT=40, COHORT=5)
    kit.waiting(60)
    sent = kit.schedule()
    assert claiming.in_flight.count() == 40

    leave(sent, 4)
    claiming.in_flight.forget()
    assert kit.schedule() == []
    leave(sent[1:], 1)
    claiming.in_flight.forget()

    assert sum(len(claims) for _, claims in kit.schedule()) == 5


def test_what_others_claim_is_counted_now_and_then_and_ones_own_at_once(tuned):
    tuned(IN_FLIGHT=100)
    kit.waiting(10)
    claiming.in_flight.forget()
    assert claiming.in_flight.room(1) == 100

    claiming.in_flight.add(3)
    assert claiming.in_flight.room(1) == 97
    claiming.claim(5)  # stands for a claim by another process

    assert kit.until(lambda: claiming.in_flight.room(1) == 95, within=5)


def test_a_claim_moves_its_run_on_and_a_bystander_stays():
    mine, other = kit.waiting(2)

    claiming.claim(1)

    assert (kit.state(mine), kit.state(other)) == ("Processing", "Pending")
    run_until_idle()


@pytest.fixture(autouse=True)
def _fresh():
    fair_turns.forget()


def claimed_order(count):
    """The keys in the order in which CLAIM takes them, one by one."""
    taken = [claims[0].run_id for _ in range(count) for claims in claiming.claim(1).values()]
    names = dict(Run.objects.filter(pk__in=taken).values_list("pk", "key"))
    return [names[run_id] for run_id in taken]


def test_one_clients_flood_does_not_starve_another(monkeypatch):
    monkeypatch.setattr(FairTurns, "SHARE_SECONDS", 1.0)  # also on a slow machine the flood is quicker than that
    flood = [submit("toy-plain", {"n": n}, client="flood") for n in range(150)]
    while consuming.consume_batch(born=False).consumed:
        pass
    guest = submit("toy-plain", {"n": 0}, client="guest")
    consuming.consume_batch(born=False)

    order = claimed_order(60)

    assert guest in order[:50], "the guest waits for the whole flood"
    assert [key for key in order if key != guest] == flood[:59]


def test_while_there_is_room_nobody_is_put_off():
    keys = [submit("toy-plain", {"n": n}, client="flood") for n in range(100)]

    report = consuming.consume_batch()

    assert sum(map(len, report.born.values())) == 100
    assert {run_of(key).process_state for key in keys} == {"Processing"}


def test_a_turn_is_never_put_off_further_than_one_step_of_priority():
    assert max(fair_turns.delays(["flood"] * 200_000)) == FairTurns.MOST_SECONDS
    assert fair_turns.delays(["flood", "guest"]) == [pytest.approx(FairTurns.MOST_SECONDS, abs=5), 0.0]


def test_high_overtakes_and_low_has_its_turn_within_its_bound_under_constant_high_load():
    """One step of priority is worth ten minutes: a low order waits for at most twenty minutes of high ones."""
    low = submit("toy-plain", {"n": 0, "priority": -1})
    consuming.consume_batch(born=False)
    waited = 0
    for minute in range(30):
        urgent = [submit("toy-plain", {"n": n, "priority": 1}, client=f"c{n}") for n in range(3)]
        consuming.consume_batch(born=False)
        order = claimed_order(3)  # there is room for three claims a minute, and three urgent orders come every minute
        if low in order:
            waited = minute
            break
        assert set(order) <= set(urgent) | set(Run.objects.values_list("key", flat=True))
        kit.fetch(
            "UPDATE supervision_stepstate SET turn_at = turn_at - interval '1 min', not_before = not_before - interval '1 min'"
            " WHERE process_state = 'Pending' AND not_before IS NOT NULL"
        )

    assert 15 <= waited <= 21
