"""Processes with different code at the same time: each performs what the rows say, or leaves it to another process."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from supervision import Step, Workflow, tasks, workflow
from supervision.dispatch import scheduler
from supervision.errors import DefinitionError
from supervision.execution import runner
from supervision.plans import registry, unknown_versions
from supervision.recovery import supervisor
from supervision.testing import expire, make_due, run_of, run_until_idle, schedule, step, submit
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")

FIRST = Step("first", agent="alpha")
SECOND = Step("second", agent="beta")
THIRD = Step("third", agent="gamma")


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`code({1: (FIRST, SECOND)})`: from now on this process knows these versions of the workflow `changing`."""

    def deploy(versions: dict[int, tuple[Step, ...]]) -> None:
        monkeypatch.setattr(workflow, "_workflows", {})
        monkeypatch.setattr(workflow, "_newest", {})
        for version, steps in versions.items():
            workflow.register(Workflow("changing", steps, intake=toy.INTAKE, version=version))

    return deploy


def asked() -> list[tuple[str, str]]:
    """Every call of an agent: the agent's name and the idempotency key without the order's part."""
    calls = [(agent.name, request) for agent in (toy.ALPHA, toy.BETA, toy.GAMMA) for request in agent.performed]  # type: ignore[attr-defined]
    return [(name, request.idempotency_key.partition(":")[2]) for name, request in calls]


def under_way(code: Any) -> tuple[str, Any]:
    """An order of version 1 whose first step is claimed, and the scheduler's messages for it."""
    code({1: (FIRST, SECOND)})
    return submit("changing", {"n": 1}), schedule()


def goes_on(code: Any, key: str) -> None:
    """Check that a process with the first code performs each step of the order that is left, once."""
    code({1: (FIRST, SECOND)})
    assert (kit.idle_state(key), asked()) == ("Processed", [("alpha", "first:do:1"), ("beta", "second:do:1")])
    assert kit.healthy()


# ------------------------------------------------------------------ code with another definition of the same version


def test_a_process_whose_code_has_swapped_two_steps_calls_no_agent(code):
    key, sent = under_way(code)

    code({1: (SECOND, FIRST)})
    kit.go(sent)

    assert asked() == []
    row = step(key, "first")
    assert (row.process_state, row.attempt, row.failure_count, row.dispatch_count, row.effect) == ("Pending", 1, 0, 1, "none")
    assert kit.events(key)[-1].why == "its step is first by agent alpha; the code of this process means second by agent beta"
    make_due()
    goes_on(code, key)


def test_a_claim_that_is_given_back_again_and_again_waits_longer_each_time_and_raises_an_alert(code):
    key, sent = under_way(code)
    waits = []
    for _ in range(5):
        code({1: (SECOND, FIRST)})
        kit.go(sent)
        waits.append(round(kit.fetch("SELECT extract(epoch FROM not_before - now()) FROM supervision_stepstate WHERE position = 0")[0][0]))
        code({1: (FIRST, SECOND)})
        make_due()
        sent = schedule()

    assert waits == [1, 2, 4, 8, 16]
    assert kit.alerts(key) == ["lost-dispatch"]


@pytest.mark.parametrize("other", [replace(SECOND, name="other"), replace(SECOND, agent="gamma")], ids=["name", "agent"])
def test_a_successor_that_is_not_what_this_code_expects_becomes_due_for_others(code, other):
    key, sent = under_way(code)

    runner.process.serve({"agent.alpha", "agent.beta", "agent.gamma"})  # this process would perform the next step itself
    code({1: (FIRST, other)})
    kit.go(sent)

    assert asked() == [("alpha", "first:do:1")]
    row = step(key, "second")
    assert (row.process_state, row.attempt, row.locked_by, row.started_at) == ("Pending", 0, None, None)
    goes_on(code, key)


def test_a_run_with_a_step_more_than_the_code_knows_of_is_not_closed(code):
    key, sent = under_way(code)

    code({1: (FIRST,)})
    kit.go(sent)

    assert (kit.state(key), kit.states(key)) == ("Processing", ["Processed", "Pending"])
    goes_on(code, key)


# ------------------------------------------------------------------------------ versions that this code does not know


@pytest.fixture
def beyond(code) -> str:
    """An order of version 2, which another process has registered and this one does not know."""
    code({1: (FIRST, SECOND), 2: (THIRD, FIRST)})
    key = submit("changing", {"n": 2})
    scheduler.schedule_once(lambda place, claims: None)
    kit.expire_and_sweep()
    code({1: (FIRST, SECOND)})
    return key


def test_a_scheduler_claims_nothing_of_a_version_it_does_not_know_and_everything_else(beyond):
    own = kit.ran("changing")

    assert not scheduler.due()  # otherwise the scheduler would try for ever
    assert (kit.state(own), run_of(own).version) == ("Processed", 1)
    row = step(beyond, "third")
    assert (row.process_state, row.attempt) == ("Pending", 1)


def test_those_who_know_it_go_on_with_it(beyond, code):
    code({2: (THIRD, FIRST)})

    assert (kit.idle_state(beyond), asked()) == ("Processed", [("alpha", "first:do:1"), ("gamma", "third:do:1")])


def test_a_supervisor_sweeps_nothing_of_a_version_it_does_not_know(beyond, code):
    code({2: (THIRD, FIRST)})
    schedule()
    expire()
    code({1: (FIRST, SECOND)})

    assert supervisor.sweep_once().overdue == 0

    assert step(beyond, "third").process_state == "Processing"
    code({2: (THIRD, FIRST)})
    assert supervisor.sweep_once().overdue == 1


def leads(workflows: Any) -> None:
    kit.fetch(
        "INSERT INTO supervision_leaderlease (name, holder, expires_at) VALUES ('supervisor', 'leader', now() + interval '1 min');"
        "INSERT INTO supervision_heartbeat (incarnation, role, detail) VALUES ('leader', 'supervisor', %s)",
        [json.dumps({"queues": ["supervisor"], "workflows": workflows})],
    )


@pytest.mark.parametrize(("leaders", "swept"), [({"changing": [1]}, 1), ({"changing": [1, 2]}, 0), (None, 0)], ids=["no", "yes", "silent"])
def test_a_supervisor_that_does_not_lead_sweeps_what_the_leader_does_not_know(beyond, code, monkeypatch, leaders, swept):
    counted: list[tuple[str, int]] = []
    counter = SimpleNamespace(add=lambda decision, number: counted.append((decision, number)))
    monkeypatch.setattr(supervisor.measures, "RECOVERED", counter)
    code({1: (FIRST, SECOND), 2: (THIRD, FIRST)})
    submit("changing", {"n": 2})
    code({1: (FIRST, SECOND)})
    own = submit("changing", {"n": 1})
    schedule()
    code({1: (FIRST, SECOND), 2: (THIRD, FIRST)})
    schedule()
    expire()
    leads(leaders)

    assert supervisor.sweep_for_the_leader() == swept

    assert counted == [("redispatched", 1)] * swept
    assert kit.states(own) == ["Processing", "Pending"]
    assert step(beyond, "third").process_state == ("Pending" if swept else "Processing")


def claimed_by_others(code, *, overdue: bool = False) -> tuple[str, Any, Any]:
    code({1: (FIRST, SECOND), 2: (THIRD, FIRST)})
    key = submit("changing", {"n": 2})
    [(place, claims)] = schedule()
    if overdue:
        kit.fetch("UPDATE supervision_run SET complete_by = now() - interval '1 s'")
    code({1: (FIRST, SECOND)})
    return key, place, [list(claim) for claim in claims]


@pytest.mark.parametrize("overdue", [False, True], ids=["in time", "overdue"])
def test_an_agents_process_gives_claims_of_an_unknown_version_back_and_counts_nothing(code, overdue):
    key, place, claims = claimed_by_others(code, overdue=overdue)

    assert tasks.perform(claims, *place) is None

    row = step(key, "third")
    assert (row.process_state, row.failure_count, row.dispatch_count, row.last_error) == ("Pending", 0, 0, None)
    assert kit.events(key)[-1].why == "left to a process that knows changing version 2"
    assert kit.fetch("SELECT count(*) FROM supervision_deadletter") == [(0,)]
    assert kit.healthy()


def test_a_message_of_a_version_that_nobody_has_registered_is_still_nonsense(code):
    _, place, claims = claimed_by_others(code)
    kit.fetch("DELETE FROM supervision_workflowversion WHERE version = 2")
    registry.forget()

    with pytest.raises(DefinitionError):
        tasks._cohort(claims, *place)


def test_a_message_is_no_nonsense_while_the_database_cannot_say_whether_it_is(code, monkeypatch):
    _, place, claims = claimed_by_others(code)

    def away(*_: Any, **__: Any) -> Any:
        raise registry.OperationalError("gone")

    monkeypatch.setattr(registry.db, "run", away)

    here, cohort = tasks._cohort(claims, *place)

    assert (here, len(cohort)) == (place, 1)
    assert not here.is_known


def test_an_order_behind_one_of_an_unknown_workflow_in_its_session_waits_and_stops_no_pass(code):
    code({1: (FIRST, SECOND)})
    workflow.register(Workflow("added", (THIRD,), intake=toy.INTAKE))
    registry.confirm()
    session = {"session_key": "s1"}
    ahead, behind = submit("added", {"n": 1, **session}), submit("changing", {"n": 2, **session})
    other = submit("changing", {"n": 3})
    code({1: (FIRST, SECOND)})

    run_until_idle()

    waiting = kit.fetch("SELECT public_id FROM supervision_submission WHERE consumed_at IS NULL ORDER BY id")
    assert (kit.state(other), waiting) == ("Processed", [(ahead,), (behind,)])
    workflow.register(Workflow("added", (THIRD,), intake=toy.INTAKE))
    assert (kit.idle_state(ahead), kit.state(behind)) == ("Processed", "Processed")


def test_a_submission_of_a_workflow_that_only_other_code_knows_is_left_to_that_code(code):
    code({1: (FIRST, SECOND)})
    workflow.register(Workflow("added", (THIRD,), intake=toy.INTAKE))
    registry.confirm()
    key = submit("added", {"n": 1})
    code({1: (FIRST, SECOND)})
    own = submit("changing", {"n": 2})

    assert kit.idle_state(own) == "Processed"
    assert kit.fetch("SELECT consumed_at FROM supervision_submission WHERE public_id = %s", [key]) == [(None,)]
    assert kit.fetch("SELECT count(*) FROM supervision_deadletter") == [(0,)]
    workflow.register(Workflow("added", (THIRD,), intake=toy.INTAKE))
    assert kit.idle_state(key) == "Processed"


# ------------------------------------------------------------------------------------- no process knows the version


def process(name: str, queues: list[str], workflows: Any, *, age: float = 0.0) -> None:
    detail = {"queues": queues} if workflows is None else {"queues": queues, "workflows": workflows}
    kit.fetch(
        "INSERT INTO supervision_heartbeat (incarnation, role, detail, seen_at) VALUES (%s, 'r', %s, now() - %s * interval '1 s')",
        [name, json.dumps(detail), age],
    )


SCHEDULER, AGENTS, SUPERVISOR = ["scheduler", "submissions"], ["agent.alpha", "agent.beta"], ["supervisor"]
OLD, NEW = {"changing": [1]}, {"changing": [1, 2]}


def causes() -> list[tuple[str, int]]:
    return [(cause.key, cause.orders) for cause in unknown_versions.unknown_versions()]


@pytest.fixture
def waiting(beyond) -> str:
    """The same order, older than the time that the detector allows for a roll-out."""
    kit.fetch("UPDATE supervision_run SET created_at = now() - interval '2 min'")
    return beyond


def test_one_incident_tells_of_a_version_that_no_living_process_knows(waiting):
    process("s", SCHEDULER, NEW)
    process("a", AGENTS, OLD)
    process("dead", AGENTS, NEW, age=90)
    process("v", SUPERVISOR, NEW)

    [cause] = unknown_versions.unknown_versions()

    assert (cause.kind, cause.key, cause.orders) == ("unknown_version", "unknown_version:changing:2", 1)
    assert cause.title == "No running process (agents) knows changing version 2: its orders wait for one that does"


@pytest.mark.parametrize("role", [SCHEDULER, AGENTS, SUPERVISOR], ids=["scheduler", "agents", "supervisor"])
def test_every_role_is_needed(waiting, role):
    for number, queues in enumerate((SCHEDULER, AGENTS, SUPERVISOR)):
        process(f"p{number}", queues, OLD if queues is role else NEW)

    assert causes() == [("unknown_version:changing:2", 1)]


def test_nothing_is_told_while_one_process_of_each_role_knows_it(waiting):
    for number, queues in enumerate((SCHEDULER, AGENTS, SUPERVISOR)):
        process(f"old{number}", queues, OLD)
        process(f"new{number}", queues, NEW)

    assert causes() == []


def test_nothing_is_told_of_a_role_without_a_process_or_of_one_that_does_not_say(waiting):
    process("s", SCHEDULER, NEW)
    process("v", SUPERVISOR, None)

    assert causes() == []


def test_nothing_is_told_of_a_version_without_unfinished_runs_or_in_the_first_minute(waiting):
    process("a", AGENTS, OLD)
    kit.fetch("UPDATE supervision_run SET created_at = now()")
    assert causes() == []

    kit.fetch("DELETE FROM supervision_run")
    assert causes() == []
