"""The supervisor's other duties: orders past their deadline, bad orders that do not stop the others, lost hints."""

from __future__ import annotations

import pytest

from supervision import workflow as definitions
from supervision.intake import consuming
from supervision.models import Notification
from supervision.operations import operator_verbs
from supervision.recovery import supervisor
from supervision.runtime import failpoints
from supervision.testing import expire, make_due, step, submit, submit_many
from supervision.wakeup import hints
from supervision.workflow import Workflow
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")
sweep = supervisor.sweep_once


def overdue(key: str) -> None:
    kit.fetch("UPDATE supervision_run SET complete_by = now() - interval '1 s' WHERE key = %s", [key])


def test_an_order_whose_own_time_is_over_while_it_waits_stops_in_error():
    key, bystander = submit_many("toy", [{"n": 1}, {"n": 2}])
    consuming.consume_batch(born=False)
    overdue(key)

    report = sweep()

    assert (report.errors, kit.state(key), kit.open_alerts(key)) == (1, "Error", ["error"])
    assert kit.incidents() == ["step_error:toy:alpha-step:do:alpha:overdue"]
    assert toy.TOLD["error"] == [key]
    assert kit.state(bystander) == "Pending"
    assert kit.healthy()


def test_an_order_whose_own_time_is_over_is_not_retried_when_its_step_expires():
    key, *_ = kit.started()
    overdue(key)
    expire(key)

    sweep()

    assert (kit.state(key), step(key, "alpha-step").effect) == ("Error", "unknown")


def test_an_order_whose_own_time_is_over_may_finish_the_step_it_is_at():
    key, place, items = kit.at_step(2)
    overdue(key)
    sweep()

    kit.finish(place, items)

    assert kit.state(key) == "Processed"


@pytest.mark.parametrize("verb", [operator_verbs.resubmit, operator_verbs.skip])
def test_an_order_whose_time_was_over_gets_its_whole_time_again_from_an_operator(verb):
    (key,) = kit.waiting()
    overdue(key)
    sweep()

    verb(key, by="operator", reason="the customer still wants it")

    assert sweep().errors == 0
    assert kit.idle_state(key) == "Processed"


def test_undoing_goes_on_though_the_orders_own_time_is_over():
    key = kit.undoing(1)
    overdue(key)

    sweep()
    assert kit.idle_state(key) == "Cancelled"


def test_an_order_whose_workflow_the_code_no_longer_knows_stops_nobodys_recovery():
    kit.define(Workflow("forgotten", toy.steps(), intake=toy.INTAKE))
    lost, *_ = kit.started("forgotten")
    other, *_ = kit.started("toy-plain")
    definitions._workflows.pop(("forgotten", 1))
    expire()

    sweep()

    assert (step(lost, "alpha-step").process_state, step(other, "alpha-step").failure_count) == ("Processing", 1)
    make_due()
    run_until_idle_but_for_the_forgotten()
    assert kit.state(other) == "Processed"


def run_until_idle_but_for_the_forgotten() -> None:
    supervisor.scheduler.schedule_once(lambda place, claims: kit.go([(place, claims)]) if place.workflow != "forgotten" else None)


def test_a_sweep_stopped_by_a_fault_before_its_commit_leaves_no_trace():
    key, *_ = kit.started()
    expire(key)
    failpoints.load({"FAILPOINTS": "supervisor.before_commit=raise", "ALLOW_FAILPOINTS": "1"})

    with pytest.raises(failpoints.Injected):
        sweep()

    assert (step(key, "alpha-step").failure_count, len(kit.events(key))) == (0, 2)


def test_the_supervisor_hints_again_at_orders_and_steps_nobody_picked_up(broker, monkeypatch):
    monkeypatch.setattr(hints, "enabled", True)
    kit.waiting()
    forgotten = submit("toy-plain", {"n": 2})
    hints.flush()
    broker("submissions"), broker("scheduler")
    kit.fetch("UPDATE supervision_submission SET created_at = now() - interval '1 min' WHERE public_id = %s", [forgotten])

    report = sweep()

    assert report.relayed == 2
    assert (len(broker("submissions")), len(broker("scheduler"))) == (1, 1)


def test_the_supervisor_hints_at_nothing_when_nothing_waits(broker, monkeypatch):
    monkeypatch.setattr(hints, "enabled", True)
    kit.claimed()
    hints.flush()

    assert sweep().relayed == 0
    assert Notification.objects.count() == 0
