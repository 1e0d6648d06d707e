"""A pause stops claims and nothing else: orders are accepted, running steps finish, waiting steps go on afterwards."""

from __future__ import annotations

import pytest

from supervision.dispatch import scheduler
from supervision.models import Pause
from supervision.operations import operator_verbs
from supervision.recovery import supervisor
from supervision.testing import make_due, run_of, run_until_idle, schedule, step, submit
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


def pause(scope, name="", **fields):
    return Pause.objects.create(scope=scope, name=name, reason="stocktaking", paused_by="operator", **fields)


def lift(row):
    kit.fetch("UPDATE supervision_pause SET lifted_at = now() WHERE id = %s", [row.pk])


@pytest.mark.parametrize("scope", ["all", "workflow", "agent", "order"])
def test_a_paused_order_is_accepted_shown_as_pending_and_goes_on_afterwards(scope):
    key = submit("toy-plain", {"n": 1})
    row = pause(scope, {"all": "", "workflow": "toy-plain", "agent": "alpha", "order": key}[scope])

    run_until_idle()
    supervisor.sweep_once()

    assert (run_of(key).process_state, step(key, "alpha-step").process_state, toy.ALPHA.performed) == ("Pending", "Pending", [])
    assert not scheduler.due()
    lift(row)
    assert kit.idle_state(key) == "Processed"
    assert kit.healthy()


@pytest.mark.parametrize("scope", ["all", "workflow", "agent", "order"])
def test_a_running_step_finishes_and_the_next_is_not_claimed(scope):
    key, place, items = kit.started("toy-plain")
    row = pause(
        scope,
        {"all": "", "workflow": "toy-plain", "agent": "beta", "order": key}[scope],
        run_id=items[0].run_id if scope == "order" else None,
    )

    handed = kit.finish(place, items)

    assert (handed.claims, kit.states(key)) == ([], ["Processed", "Pending", "Pending"])
    assert step(key, "beta-step").not_before is not None
    assert schedule() == []
    lift(row)
    assert kit.idle_state(key) == "Processed"
    assert kit.seqs_are_gapless()


def test_others_are_not_held_up():
    paused, free = submit("toy-plain", {"n": 1}), submit("toy-plain", {"n": 2})
    pause("order", paused)
    other = submit("toy-five", {"n": 3})

    assert kit.idle_state(paused) == "Pending"
    assert {run_of(key).process_state for key in (free, other)} == {"Processed"}


def test_a_pause_of_one_workflow_leaves_the_others_alone():
    pause("workflow", "toy-plain")
    held, free = submit("toy-plain", {"n": 1}), submit("toy-five", {"n": 2})

    assert (kit.idle_state(held), run_of(free).process_state) == ("Pending", "Processed")


def test_a_pause_ends_by_itself():
    key = submit("toy-plain", {"n": 1})
    row = pause("all", until="2999-01-01T00:00:00Z")
    assert kit.idle_state(key) == "Pending"

    kit.fetch("UPDATE supervision_pause SET until = now() - interval '1 ms' WHERE id = %s", [row.pk])
    assert kit.idle_state(key) == "Processed"


def test_undo_waits_for_a_paused_agent_too():
    key, *_ = kit.at_step(1)
    operator_verbs.cancel(key, by="operator", reason="not wanted")
    row = pause("agent", "alpha")
    kit.expire_and_sweep()
    make_due()
    assert (kit.idle_state(key), toy.ALPHA.undone) == ("Compensating", [])

    lift(row)
    assert kit.idle_state(key) == "Cancelled"


def test_an_agents_worker_that_goes_on_by_itself_stops_before_a_paused_step():
    kit.runner.process.serve({"agent.alpha", "agent.beta", "agent.gamma"})
    pause("agent", "beta")
    key = kit.ran()

    assert kit.states(key) == ["Processed", "Pending", "Pending"]
    assert toy.BETA.performed == []
