"""A connection that is cut between a commit and its answer: the engine recognises its own commit and counts no failure."""

from __future__ import annotations

import pytest

from supervision.execution import runner
from supervision.postgres import db
from supervision.store import claiming, step_verbs
from supervision.testing import run_until_idle, schedule, step, submit
from tests.engine import kit
from tests.engine.cutting import by_a_way_that_can_be_cut
from tests.support import toy
from tests.support.history import rewrite

pytestmark = pytest.mark.usefixtures("engine")

DONE = "SELECT EXISTS (SELECT FROM supervision_stepstate WHERE direction = 'do' AND position = {} AND process_state = 'Processed')"
BEGUN = "SELECT EXISTS (SELECT FROM supervision_stepstate WHERE started_at IS NOT NULL)"
CLAIMED = "SELECT EXISTS (SELECT FROM supervision_stepstate WHERE process_state = 'Processing')"
UNDONE = "SELECT EXISTS (SELECT FROM supervision_stepstate WHERE direction = 'undo' AND process_state = 'Processed')"


@pytest.fixture
def lose():
    """`lose(statement)`: drop the first answer that arrives after this SELECT returns true."""
    with kit.another_connection(autocommit=True) as observe, by_a_way_that_can_be_cut(observe) as lose:
        yield lose


def strays() -> int:
    return int(kit.fetch("SELECT count(*) FROM supervision_strayreply")[0][0])


def calls(key: str) -> list[str]:
    return [request.step for agent in (toy.ALPHA, toy.BETA, toy.GAMMA) for request in agent.performed if request.run_key == key]


@pytest.mark.parametrize("workflow", ["toy", "toy-plain"])
@pytest.mark.parametrize("position", [0, 1, 2])
def test_an_order_goes_on_though_the_answer_to_a_finish_was_lost(lose, workflow, position):
    runner.process.serve(f"agent.{name}" for name in ("alpha", "beta", "gamma"))
    key = submit(workflow, {"n": 1})
    sent = schedule()
    way = lose(DONE.format(position))

    kit.go(sent)

    assert way.cuts == 1
    assert (kit.state(key), strays()) == ("Processed", 0)
    assert calls(key) == ["alpha-step", "beta-step", "gamma-step"]
    assert toy.TOLD["processed"] in ([key], [])
    assert kit.fetch("SELECT max(failure_count), max(dispatch_count), max(attempt) FROM supervision_stepstate") == [(0, 0, 1)]
    assert kit.healthy()


def test_claims_that_were_handed_over_in_a_lost_answer_are_handed_on(lose):
    key, place, items = kit.started()
    way = lose(DONE.format(0))

    handed = kit.finish(place, items, {"by": 1})

    assert way.cuts == 1
    assert [(claim.run_id, claim.attempt) for claim in handed.claims] == [(items[0].run_id, 1)]
    assert (handed.stale, strays()) == ([], 0)
    assert step_verbs.start(place.following, handed.claims)[0].key == key


def test_a_lost_answer_to_a_start_begins_the_call_and_counts_nothing(lose):
    key, place, claims = kit.claimed()
    way = lose(BEGUN)

    kit.go([(place, claims)])
    run_until_idle()

    assert way.cuts == 1
    assert kit.state(key) == "Processed"
    assert step(key, "alpha-step").failure_count == 0
    assert calls(key).count("alpha-step") == 1


def test_a_lost_answer_to_a_claim_costs_time_and_counts_no_failure(lose):
    key = submit("toy-plain", {"n": 1})
    kit.supervisor.scheduler.consuming.consume_batch(born=False)
    way = lose(CLAIMED)

    assert schedule() == []  # after the lost answer the process cannot tell these claims from those of its other threads

    assert way.cuts == 1
    kit.expire_and_sweep(key)
    assert kit.idle_state(key) == "Processed"
    assert (step(key, "alpha-step").failure_count, step(key, "alpha-step").dispatch_count) == (0, 1)


def test_a_transactional_agents_order_goes_on_and_its_work_is_done_once(lose, monkeypatch):
    done = []

    def perform_many(requests):
        done.extend(request.run_key for request in requests)
        return [{} for _ in requests]

    monkeypatch.setattr(type(toy.ALPHA), "transactional", property(lambda self: self.name == "alpha"), raising=False)
    monkeypatch.setattr(toy.ALPHA, "perform_many", perform_many, raising=False)
    key, place, claims = kit.claimed()
    way = lose(DONE.format(0))

    kit.go([(place, claims)])
    run_until_idle()

    assert way.cuts == 1
    assert (kit.state(key), done, strays()) == ("Processed", [key], 0)
    assert kit.fetch("SELECT max(failure_count), max(dispatch_count) FROM supervision_stepstate") == [(0, 0)]


def test_a_lost_answer_to_an_undo_is_no_stray_reply(lose):
    key, _place, _items = kit.at_step(1, "toy-undo")
    kit.fetch("UPDATE supervision_stepstate SET complete_by = now() + interval '1 h' WHERE process_state = 'Processing'")
    kit.failures.fail(_place, [(_items[0].claim, kit.refusal())])
    way = lose(UNDONE)

    run_until_idle()

    assert way.cuts == 1
    assert (kit.state(key), strays()) == ("Cancelled", 0)


def test_what_another_process_finished_is_not_taken_for_our_own(lose):
    """A late duplicate on a connection that is cut: its answer is still a stray reply."""
    key, place, items = kit.started()
    kit.finish(place, items)
    rewrite("UPDATE supervision_stepevent SET actor = 'another process' WHERE to_state = 'Processed'")
    way = lose("SELECT true")

    handed = kit.finish(place, items)

    assert way.cuts == 1
    assert (handed.claims, len(handed.stale), strays()) == ([], 1, 1)
    assert kit.states(key)[1] == "Processing"


def test_a_successor_that_was_claimed_anew_meanwhile_is_not_performed_twice(lose):
    key, place, items = kit.started()
    way = lose(DONE.format(0))
    original = db.with_lost

    def later(*arguments):
        """Between the lost answer and the repetition the successor has expired and was claimed again."""
        kit.fetch("UPDATE supervision_stepstate SET complete_by = now() - interval '1 s' WHERE process_state = 'Processing'")
        kit.failures.sweep(10)
        claiming.claim(10)
        return original(*arguments)

    db.with_lost = later
    try:
        handed = kit.finish(place, items)
    finally:
        db.with_lost = original

    assert way.cuts == 1
    assert (handed.claims, handed.stale, strays()) == ([], [], 0)
    assert step(key, "beta-step").attempt == 2
