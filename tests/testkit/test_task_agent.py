"""Celery tasks that a project already has, as the work of steps."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from celery import Task, current_app
from celery.exceptions import Ignore

import supervision
from supervision import Step, Workflow, testing
from supervision.agent import registered
from supervision.errors import DefinitionError
from supervision.execution import extension
from supervision.execution.task_agent import TaskAgent
from supervision.intake.consuming import consume_batch
from supervision.models import StepState
from supervision.recovery import supervisor
from supervision.states import ATTEMPTS_PER_EPOCH
from supervision.workflow import _newest, _workflows
from tests.support import toy

SEEN: list[tuple] = []
DO = {}


class Broken(Exception):
    """The card is refused."""


@current_app.task(bind=True, name="tests.reserve", max_retries=1, default_retry_delay=40)
def reserve(self, sku, quantity=1, *more):
    SEEN.append((self.request.id, self.request.retries, sku, quantity, 0 < self.request.timelimit[0] <= 30))
    return DO["reserve"](self) if "reserve" in DO else {"shelf": 4}


@current_app.task(name="tests.release")
def release(sku, result):
    SEEN.append(("release", sku, result))


@current_app.task(name="tests.log")
def log(**fields):
    SEEN.append(("log", fields))
    return 3


@pytest.fixture
def shelves(sas, monkeypatch):
    SEEN.clear()
    DO.clear()
    agents = (TaskAgent("shelves", reserve, undo=release, refusals=(Broken,)), TaskAgent("logs", log))
    steps = (Step("reserve", agent="shelves", retry=toy.RETRY), Step("log", agent="logs"))
    for agent in agents:
        monkeypatch.setitem(registered, agent.name, agent)
    workflow = Workflow("shelves", steps)
    monkeypatch.setitem(_workflows, ("shelves", 1), workflow)
    monkeypatch.setitem(_newest, "shelves", workflow)
    return sas


def test_a_task_gets_its_parameters_from_the_payload_and_the_steps_key_for_its_id(shelves):
    run = shelves.start("shelves", {"sku": "MUG", "colour": "blue"})

    run.assert_state("Processed")
    assert run.results == {"reserve": {"shelf": 4}, "log": {"result": 3}}
    assert [(f"{run.key}:reserve:do:1", 0, "MUG", 1, True), ("log", {"sku": "MUG", "colour": "blue"})] == SEEN


def test_a_retry_waits_as_long_as_the_task_says_and_is_not_sent_to_a_broker(shelves, broker_is_silent):
    DO["reserve"] = lambda task: task.retry(countdown=20) if not task.request.retries else {}
    run = shelves.start("shelves", {"sku": "MUG"})

    shelves.advance("19s")
    assert len(SEEN) == 1
    shelves.advance("5s")

    run.assert_state("Processed")
    assert [call[:2] for call in SEEN[:2]] == [(f"{run.key}:reserve:do:1", 0), (f"{run.key}:reserve:do:1", 1)]


def test_the_tasks_own_delay_holds_and_the_steps_policy_ends_the_attempts(shelves):
    DO["reserve"] = lambda task: task.retry()
    shelves.others_succeed("reserve")
    run = shelves.start("shelves", {"sku": "MUG"})
    shelves.advance("39s")
    assert len(SEEN) == 1

    shelves.advance("10m")

    run.assert_state("Error")
    assert [call[1] for call in SEEN] == [0, 1, 2], "max_retries is 1, the policy's threshold 3"


@pytest.mark.parametrize(("does", "state"), [(Broken("stolen"), "Error"), (Ignore(), "Processed")])
def test_refusals_stop_at_once_and_ignore_is_an_answer(shelves, does, state):
    def act(task):
        raise does

    DO["reserve"] = act
    shelves.start("shelves", {"sku": "MUG"}).assert_state(state)


def test_an_error_of_its_own_leaves_the_outcome_unknown_and_is_tried_again_with_the_same_key(shelves):
    DO["reserve"] = lambda task: 1 / task.request.retries
    run = shelves.start("shelves", {"sku": "MUG"})
    shelves.advance(timedelta(minutes=5))

    run.assert_state("Processed")
    assert run.results["reserve"] == {"result": 1.0}


def test_an_undo_gets_what_the_task_returned(shelves):
    shelves.fake("log", raises=Broken("down"))
    run = shelves.start("shelves", {"sku": "MUG"})
    shelves.advance("1h")
    run.assert_state("Error")

    run.compensate()
    shelves.run()

    run.assert_state("Cancelled")
    assert SEEN[-1] == ("release", "MUG", {"shelf": 4})


def test_a_missing_argument_is_named(shelves):
    run = shelves.start("shelves", {"colour": "blue"})

    with pytest.raises(AssertionError, match=r"tests\.reserve needs sku, and the payload has no such field"):
        run.assert_state("Processed")
    assert SEEN == []


def test_a_result_that_is_no_json_is_told(shelves):
    DO["reserve"] = lambda task: {"price": Decimal(3)}
    run = shelves.start("shelves", {"sku": "MUG"})

    with pytest.raises(AssertionError, match=r"the result of tests\.reserve is no JSON: Object of type Decimal"):
        run.assert_state("Processed")


def test_retries_count_from_nought_again_in_a_new_epoch(shelves):
    run = shelves.submit("shelves", {"sku": "MUG"})
    consume_batch(born=False)
    StepState.objects.filter(name="reserve").update(attempt=ATTEMPTS_PER_EPOCH)
    shelves.run()

    run.assert_state("Processed")
    assert SEEN[0][1] == 0


def test_arguments_can_be_made_from_the_request(shelves, monkeypatch):
    agent = TaskAgent("logs", log, arguments=lambda request: {"key": request.run_key})
    monkeypatch.setitem(registered, "logs", agent)
    run = shelves.start("shelves", {"sku": "MUG"})

    assert SEEN[-1] == ("log", {"key": run.key})
    assert agent.undoable is False


def test_something_that_is_no_task_is_refused():
    with pytest.raises(DefinitionError, match=r"agent 'logs': expected a Celery task, got 'tests.log'"):
        TaskAgent("logs", "tests.log")


@pytest.fixture
def broker_is_silent(monkeypatch):
    """Fails the test if a task is sent."""
    sent = []
    monkeypatch.setattr(Task, "apply_async", lambda *args, **kwargs: sent.append(args))
    yield
    assert sent == []


@pytest.mark.parametrize("beats", [True, False])
def test_a_long_task_that_beats_keeps_its_claim_beyond_its_budget(shelves, monkeypatch, beats):
    budget = timedelta(seconds=30)
    steps = (Step("reserve", agent="shelves", complete_within=budget, longest=timedelta(minutes=2), retry=toy.RETRY),)
    workflow = Workflow("shelves", steps)
    monkeypatch.setitem(_workflows, ("shelves", 1), workflow)
    monkeypatch.setitem(_newest, "shelves", workflow)
    monkeypatch.setattr(extension, "SHARE", 0.0)
    wanted = []

    def work(_task):
        for _ in range(4):
            testing.let_pass(20)
            supervisor.sweep_once()
            if beats:
                wanted.append(supervision.beat())
        DO.clear()
        return {"shelf": 4}

    DO["reserve"] = work
    run = shelves.start("shelves", {"sku": "MUG"})
    assert wanted == ([True] * 4 if beats else [])
    shelves.advance("5m")
    run.assert_state("Processed")
    assert StepState.objects.get(run__key=run.key).attempt == (1 if beats else 2)
    shelves.assert_healthy()


def test_a_beat_of_a_step_without_a_longest_time_says_what_is_missing_and_outside_of_steps_it_does_nothing(shelves):
    said = []

    def work(_task):
        try:
            supervision.beat()
        except DefinitionError as problem:
            said.append(str(problem))

    DO["reserve"] = work
    shelves.start("shelves", {"sku": "MUG"})
    assert "give its Step the longest time that it may take" in said[0]
    assert supervision.beat() is True
