"""Code that changed while orders are in flight (H28): old orders finish on their own plan; unknown plans wait."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from supervision import workflow
from supervision.dispatch import scheduler
from supervision.models import DeadLetter
from supervision.recovery import decisions
from supervision.store import step_verbs
from supervision.testing import expire, run_until_idle, schedule, step, submit
from supervision.workflow import Intake, NewRun, Step, Workflow, register
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture
def versions(monkeypatch):
    """A workflow registry for this test: `versions(2, ...)` registers the code after a deployment."""
    monkeypatch.setattr(workflow, "_workflows", dict(workflow._workflows))
    monkeypatch.setattr(workflow, "_newest", dict(workflow._newest))

    def deploy(version: int, *names: str) -> None:
        steps = tuple(step for step in toy.steps() if step.agent in names)
        register(Workflow("toy-changing", steps, intake=toy.INTAKE, version=version))

    return deploy


def names(key: str) -> list[str]:
    return [str(row.name) for row in kit.StepState.objects.filter(run__key=key).order_by("position")]


def test_an_order_in_flight_finishes_on_its_own_plan_when_a_new_version_is_deployed(versions):
    versions(1, "alpha", "beta")
    old = submit("toy-changing", {"n": 1})
    scheduler.schedule_once(lambda place, claims: None)

    versions(2, "alpha", "beta", "gamma")
    new = submit("toy-changing", {"n": 2})
    expire()
    kit.supervisor.sweep_once()
    run_until_idle()

    assert [kit.state(key) for key in (old, new)] == ["Processed", "Processed"]
    assert names(old) == ["alpha-step", "beta-step"]
    assert names(new) == ["alpha-step", "beta-step", "gamma-step"]


class Asking(Intake):
    """An intake whose submissions may name the version that they want."""

    def read(self, body: str) -> NewRun:
        run = toy.INTAKE.read(body)
        return replace(run, version=run.payload.get("version"))


@pytest.mark.parametrize("together", [True, False])
def test_orders_of_two_versions_that_are_both_in_use_run_side_by_side_each_on_its_own_plan(versions, together):
    for version, agents in ((1, ("alpha", "beta")), (2, ("alpha", "beta", "gamma"))):
        steps = tuple(step for step in toy.steps() if step.agent in agents)
        register(Workflow("toy-changing", steps, intake=Asking(), version=version, by_choice=version == 2))
    keys = []
    for n, version in enumerate((None, 2, 1, 2)):
        keys.append(submit("toy-changing", {"n": n, "version": version}))
        if not together:
            scheduler.schedule_once(lambda place, claims: None)
    expire()
    kit.supervisor.sweep_once()
    run_until_idle()

    assert [kit.state(key) for key in keys] == ["Processed"] * 4
    assert [names(key)[2:] for key in keys] == [[], ["gamma-step"], [], ["gamma-step"]]
    assert kit.healthy()


def test_a_submission_that_asks_for_a_version_that_the_code_lacks_is_kept_and_harms_no_other(versions):
    steps = tuple(step for step in toy.steps() if step.agent == "alpha")
    register(Workflow("toy-changing", steps, intake=Asking()))
    lost = submit("toy-changing", {"n": 1, "version": 7})
    bystander = submit("toy-changing", {"n": 2})
    run_until_idle()

    [letter] = DeadLetter.objects.all()
    assert (letter.public_id, letter.reason) == (lost, "workflow 'toy-changing' version 7 is not registered in the running code")
    assert kit.state(bystander) == "Processed"


def test_an_order_whose_version_nobody_knows_is_left_as_it_is_and_goes_on_when_it_is_back(versions):
    versions(1, "alpha", "beta")
    key = submit("toy-changing", {"n": 1})
    bystander = submit("toy-plain", {"n": 2})
    scheduler.schedule_once(lambda place, claims: None)
    known = workflow._workflows.pop(("toy-changing", 1))

    for _ in range(decisions.LOST_DISPATCHES):
        expire()
        kit.supervisor.sweep_once()
        kit.again()

    left = step(key, "alpha-step")
    assert (left.process_state, left.attempt, left.failure_count, left.dispatch_count) == ("Processing", 1, 0, 0)
    assert (kit.state(bystander), kit.alerts(key)) == ("Processed", [])

    workflow._workflows["toy-changing", 1] = known
    kit.supervisor.sweep_once()
    run_until_idle()
    assert kit.state(key) == "Processed"
    assert kit.healthy()


def test_a_supervisor_that_is_upgraded_last_leaves_a_new_versions_longer_step_its_time(versions):
    slow = Step("alpha-step", agent="alpha", complete_within=timedelta(minutes=30))
    register(Workflow("toy-changing", (slow,), intake=toy.INTAKE, version=2))
    key = submit("toy-changing", {"n": 1})
    ((place, claims),) = schedule()
    step_verbs.start(place, claims)
    del workflow._workflows["toy-changing", 2]  # the supervisor's code knows only the version with shorter steps
    began = step(key, "alpha-step")

    for _ in range(decisions.LOST_DISPATCHES):
        kit.supervisor.sweep_once()

    now = step(key, "alpha-step")
    assert (now.process_state, now.attempt, now.failure_count) == ("Processing", 1, 0)
    assert now.complete_by == began.complete_by
