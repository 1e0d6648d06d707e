"""Undoing: in reverse order, once, each step that had or may have had an effect. A cancel at any moment has exactly one end."""

from __future__ import annotations

import pytest

from supervision.agent import register_agent
from supervision.errors import OutcomeUnknown, PermanentFailure, TransientFailure
from supervision.operations import operator_verbs
from supervision.postgres import db
from supervision.recovery import decisions, failures, supervisor
from supervision.store import run_verbs, step_verbs
from supervision.testing import make_due, run_of, run_until_idle, schedule, step
from supervision.workflow import Step, Workflow, register
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


class Mailer(toy.ToyAgent):
    """An agent without an undo."""

    undoable = False


MAILER = register_agent(Mailer("mailer"))
register(Workflow("mailing", (Step("mail", agent="mailer"), Step("ship", agent="alpha")), intake=toy.INTAKE))


def cancel(key: str) -> str:
    return operator_verbs.cancel(key, by="customer", reason="changed my mind")


refuse = kit.raising(PermanentFailure("no"))


def undone() -> list[str]:
    """The undone steps, in the order of their undos."""
    rows = kit.fetch("SELECT name FROM supervision_stepstate WHERE direction = 'undo' AND process_state = 'Processed' ORDER BY finished_at")
    return [row[0] for row in rows]


def test_what_was_done_is_undone_in_reverse_under_keys_of_its_own():
    toy.GAMMA.on_perform = refuse
    key = kit.ran("toy")

    operator_verbs.compensate(key, by="operator", reason="out of business")
    assert kit.idle_state(key) == "Cancelled"
    assert undone() == ["beta-step", "alpha-step"]
    (request,) = toy.BETA.undone
    assert (request.idempotency_key, request.perform_key) == (f"{key}:beta-step:undo:1", f"{key}:beta-step:do:1")
    assert request.performed == {"by": "beta"}
    assert toy.GAMMA.undone == []
    assert toy.TOLD["cancelled"] == [key]
    assert kit.healthy()


def test_a_step_of_unknown_effect_is_undone_as_if_it_had_been_done():
    toy.BETA.on_perform = lambda request: (_ for _ in ()).throw(OutcomeUnknown("reset"))
    key = kit.ran("toy")
    assert step(key, "beta-step").effect == "unknown"

    cancel(key)
    assert kit.idle_state(key) == "Cancelled"
    assert undone() == ["beta-step", "alpha-step"]
    assert toy.BETA.undone[0].performed is None


def test_a_running_step_is_awaited_and_then_undone():
    key, place, items = kit.at_step(1)

    assert cancel(key) == "Compensating"
    assert schedule() == []
    assert kit.states(key) == ["Processed", "Processing", "Cancelled"]
    kit.finish(place, items)
    assert kit.idle_state(key) == "Cancelled"
    assert undone() == ["beta-step", "alpha-step"]
    assert kit.healthy()


def test_a_running_step_that_expires_while_its_order_is_undone_is_not_run_again():
    key, _place, _items = kit.at_step(1)
    cancel(key)
    kit.expire_and_sweep(key)
    assert (kit.idle_state(key), kit.states(key)) == ("Cancelled", ["Processed", "Cancelled", "Cancelled"])
    assert undone() == ["beta-step", "alpha-step"]
    assert toy.BETA.performed == []
    assert kit.healthy()


@pytest.mark.parametrize("error", [TransientFailure("busy"), OutcomeUnknown("reset"), PermanentFailure("no")])
def test_a_running_step_that_fails_while_its_order_is_undone_is_not_run_again(error):
    key, place, items = kit.at_step(1)
    cancel(key)

    failures.fail(place, [(items[0].claim, decisions.as_failure(error))])
    assert (kit.idle_state(key), kit.alerts(key)) == ("Cancelled", [])
    assert toy.BETA.performed == []
    assert kit.healthy()


def test_what_cannot_be_undone_is_left_as_it_is():
    toy.ALPHA.on_perform = refuse
    key = kit.ran("mailing")

    cancel(key)
    assert (kit.idle_state(key), kit.states(key, "undo")) == ("Cancelled", [])
    assert MAILER.undone == []


def test_an_order_whose_running_step_cannot_be_undone_is_closed_when_that_step_ends():
    key, place, items = kit.started("mailing")
    cancel(key)
    assert kit.state(key) == "Compensating"

    kit.finish(place, items)

    assert kit.state(key) == "Cancelled"
    assert kit.healthy()


def test_an_undone_order_whose_worker_died_before_closing_it_is_closed_by_the_supervisor():
    key, place, items = kit.started("mailing")
    bystander, *_ = kit.at_step(1)
    cancel(key)
    cancel(bystander)
    params = {
        **step_verbs.addressed(place, [items[0].claim]),
        "results": ["{}"],
        "me": "dead",
        "lease": 30.0,
        "fuse": False,
        "wait": False,
        "step": "beta-step",
        "agent": "beta",
        "workflow": "mailing",
    }
    db.run(step_verbs.step_sql.FINISH, params)
    assert kit.state(key) == "Compensating"

    supervisor.sweep_once()

    assert (kit.state(key), kit.state(bystander)) == ("Cancelled", "Compensating")


def test_an_undo_that_fails_stops_in_error_and_lower_steps_are_not_undone_before_it():
    toy.BETA.on_compensate = refuse
    key = kit.undoing(2, "toy")
    assert (kit.idle_state(key), kit.states(key, "undo")) == ("Error", ["Pending", "Error"])
    assert toy.ALPHA.undone == []
    assert kit.alerts(key) == ["error", "error"]
    toy.BETA.on_compensate = None
    operator_verbs.resubmit(key, by="operator", reason="service is back")
    assert kit.idle_state(key) == "Cancelled"
    assert undone() == ["beta-step", "alpha-step"]
    assert kit.healthy()


def test_an_undo_that_fails_for_now_is_retried_like_any_step():
    toy.ALPHA.on_compensate = lambda request: (_ for _ in ()).throw(TransientFailure("busy")) if request.attempt == 1 else None
    kit.others_succeed("alpha")
    key = kit.undoing(1)
    run_until_idle()
    assert step(key, "alpha-step", "undo").failure_count == 1
    make_due(key)

    assert kit.idle_state(key) == "Cancelled"
    assert {request.idempotency_key for request in toy.ALPHA.undone} == {f"{key}:alpha-step:undo:1"}


@pytest.mark.parametrize("workflow", ["toy-undo", "toy-skip", "toy-wait"])
def test_an_undo_that_is_exhausted_stops_in_error_whatever_the_policy_says(workflow):
    key = kit.in_error(1, "toy-plain")
    kit.fetch("UPDATE supervision_run SET workflow = %s WHERE key = %s", [workflow, key])
    operator_verbs.compensate(key, by="operator", reason="hopeless")

    for _ in range(3):
        make_due(key)
        kit.start_all()
        kit.expire_and_sweep(key)

    assert (kit.state(key), step(key, "alpha-step", "undo").process_state) == ("Error", "Error")


def test_an_undo_of_an_expired_attempt_is_answered_late_and_changes_nothing():
    key = kit.undoing(1)
    ((place, claims),) = schedule()
    items = step_verbs.start(place, claims)
    kit.expire_and_sweep(key)

    kit.finish(place, items)

    assert (kit.state(key), step(key, "alpha-step", "undo").process_state) == ("Compensating", "Pending")


def test_many_undo_steps_of_one_cohort_are_recorded_together():
    keys = [kit.in_error(1, "toy") for _ in range(6)]
    for key in keys:
        operator_verbs.compensate(key, by="operator", reason="hopeless")
    ((place, claims),) = schedule()
    assert len(claims) == 6

    step_verbs.finish_at(place)([(item, {"undone": True}) for item in step_verbs.start(place, claims)])

    assert {kit.state(key) for key in keys} == {"Cancelled"}
    assert sorted(toy.TOLD["cancelled"]) == sorted(keys)
    assert kit.seqs_are_gapless()


def test_cancelling_two_orders_at_once_in_opposite_order_deadlocks_nobody():
    first, second = kit.at_step(1)[0], kit.at_step(1)[0]
    ids = [run_of(key).pk for key in (first, second)]

    def lock_both(order: list[int]) -> int:
        return db.transact(lambda: len(run_verbs.lock(order).runs))

    assert kit.at_once(*[lambda: lock_both(ids), lambda: lock_both(ids[::-1])] * 4) == [2] * 8
