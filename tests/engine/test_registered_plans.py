"""The database keeps one definition of each version, and a process whose code has another one does not start."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from supervision import ChildRun, ForEach, OnExhausted, OnPermanent, RetryPolicy, Step, WaitForSignal, Workflow, workflow
from supervision.agent import Agent, registered
from supervision.errors import PlanChanged
from supervision.intake import consuming
from supervision.models import Run, WorkflowVersion
from supervision.plans import comparison, guard, registry
from supervision.testing import run_until_idle, submit
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")

FIRST = Step("first", agent="alpha")
SECOND = Step("second", agent="beta")
THIRD = Step("third", agent="gamma")
PACK, PACK_EACH = (kind("pack", workflow="packing") for kind in (ChildRun, ForEach))
GO_ON = WaitForSignal("paid", on_timeout="go on")


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`code(FIRST, SECOND)`: the steps of version 1 of the workflow `changing` in a process that starts now."""

    def deploy(*steps: Step, version: int = 1, **fields: Any) -> Workflow:
        monkeypatch.setattr(workflow, "_workflows", {})
        monkeypatch.setattr(workflow, "_newest", {})
        registry.forget()
        return workflow.register(Workflow("changing", steps, intake=toy.INTAKE, version=version, **fields))

    return deploy


@pytest.fixture
def swapped(code: Any) -> None:
    """The plan of version 1 is registered, and this process's code has its two steps the other way round."""
    code(FIRST, SECOND)
    registry.confirm()
    code(SECOND, FIRST)


def refusal() -> str:
    with pytest.raises(PlanChanged) as refused:
        registry.confirm()
    return str(refused.value)


class Indelible(Agent):
    """Like alpha, but without an undo."""

    name = "alpha"
    undoable = False

    def perform(self, request: Any) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((FIRST, SECOND, THIRD), "step 3 (third) is not in the registered plan"),
        ((FIRST,), "step 2 (second) of the registered plan is missing in this code"),
        ((SECOND, FIRST), "step 1 is second in this code and first in the registered plan"),
        ((FIRST, replace(SECOND, name="other")), "step 2 is other in this code and second in the registered plan"),
        ((FIRST, replace(SECOND, agent="gamma")), "agent of step 2 (second) is gamma in this code and beta in the registered plan"),
        (
            (FIRST, replace(SECOND, retry=RetryPolicy(on_exhausted=OnExhausted.SKIP))),
            "on_exhausted of step 2 (second) is skip in this code and error in the registered plan",
        ),
        (
            (replace(FIRST, retry=RetryPolicy(on_permanent=OnPermanent.COMPENSATE)), SECOND),
            "on_permanent of step 1 (first) is compensate in this code and error in the registered plan",
        ),
    ],
    ids=["added", "removed", "swapped", "renamed", "another agent", "on_exhausted", "on_permanent"],
)
def test_a_definition_that_changes_under_its_version_is_refused_and_the_first_difference_is_named(code, steps, words):
    code(FIRST, SECOND)
    registry.confirm()

    code(*steps)

    assert refusal() == f"workflow changing version 1: {words}; give the new definition a new version"


def test_a_step_that_starts_another_workflow_is_another_plan(code):
    code(FIRST, ChildRun("pack", workflow="packing"))
    registry.confirm()

    code(FIRST, ChildRun("pack", workflow="gift-packing"))

    assert "starts of step 2 (pack) is gift-packing in this code and packing in the registered plan" in refusal()


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (PACK, PACK_EACH, "many of step 2 (pack) is yes in this code and no in the registered plan"),
        (PACK_EACH, PACK, "many of step 2 (pack) is no in this code and yes in the registered plan"),
        (PACK, replace(PACK, waits=False), "waits of step 2 (pack) is no in this code and yes in the registered plan"),
        (GO_ON, replace(GO_ON, on_timeout="error"), "on_timeout of step 2 (paid) is error in this code and go on in the registered plan"),
        (replace(GO_ON, on_timeout="error"), GO_ON, "on_timeout of step 2 (paid) is go on in this code and error in the registered plan"),
    ],
    ids=["a run for each item", "one run", "goes on at once", "stops", "goes on without a signal"],
)
def test_what_a_wait_or_a_step_that_starts_runs_leads_to_is_a_part_of_the_plan(code, before, now, words):
    code(FIRST, before)
    registry.confirm()

    code(FIRST, now)

    assert words in refusal()


@pytest.mark.parametrize("step", [PACK, PACK_EACH, GO_ON], ids=["one run", "a run for each item", "a signal"])
def test_a_plan_that_an_older_release_has_registered_without_these_parts_goes_on(code, step):
    new = registry.definition_of(code(FIRST, step))
    registry.confirm()
    [row] = WorkflowVersion.objects.all()
    for part in ("starts", "many", "waits", "on_timeout"):
        row.definition["steps"][1].pop(part, None)
    row.fingerprint = registry.fingerprint(row.definition)
    row.save()
    registry.forget()

    registry.confirm()

    assert WorkflowVersion.objects.get().fingerprint == row.fingerprint != registry.fingerprint(new)
    assert registry.first_difference(row.definition, new) == ""  # the older release beside this one goes on, too


def test_an_agent_whose_work_can_no_longer_be_undone_is_another_plan(code, monkeypatch):
    code(FIRST)
    registry.confirm()
    monkeypatch.setitem(registered, "alpha", Indelible())

    code(FIRST)

    assert "undoable of step 1 (first) is no in this code and yes in the registered plan" in refusal()


def test_budgets_retries_and_overrides_change_without_a_new_version(code, tuned):
    code(FIRST, SECOND)
    registry.confirm()
    patient = RetryPolicy(threshold=9, first_delay=timedelta(seconds=9), long_wait=timedelta(hours=1))
    tuned(ON_EXHAUSTED="wait", ON_PERMANENT="skip", COMPLETE_WITHIN=7, FAILURE_THRESHOLD=2)

    code(replace(FIRST, complete_within=timedelta(hours=1), retry=patient, amendable=("colour",)), SECOND)

    registry.confirm()
    assert registry.differences() == []


def test_the_same_change_with_a_new_version_is_registered_beside_the_old_one(code):
    code(FIRST, SECOND)
    registry.confirm()

    code(SECOND, FIRST, version=2)
    registry.confirm()

    kept = WorkflowVersion.objects.order_by("version")
    assert [(row.version, [step["name"] for step in row.definition["steps"]]) for row in kept] == [
        (1, ["first", "second"]),
        (2, ["second", "first"]),
    ]
    assert kept[0].fingerprint != kept[1].fingerprint


def test_a_fingerprint_that_fits_no_definition_is_a_difference(code):
    here = code(FIRST, SECOND)
    registry.confirm()
    WorkflowVersion.objects.update(fingerprint="0123456789abcdef")
    registry.forget()

    assert registry.fingerprint(registry.definition_of(here)) in refusal()


def test_a_definition_written_before_a_release_that_says_more_is_no_difference(code):
    code(FIRST)
    registry.confirm()
    [row] = WorkflowVersion.objects.all()
    del row.definition["steps"][0]["undoable"]
    row.fingerprint = registry.fingerprint(row.definition)
    row.save()
    registry.forget()

    registry.confirm()


def test_what_is_confirmed_costs_nothing_until_the_code_is_another(code, monkeypatch):
    code(FIRST)
    registry.confirm()
    asked: list[str] = []
    monkeypatch.setattr(registry.db, "run", lambda statement, params: asked.append(statement) or [])

    registry.confirm()

    assert asked == []


def test_processes_that_start_at_once_with_different_code_agree_on_one_plan():
    one, other = (Workflow("changing", steps, intake=toy.INTAKE) for steps in ((FIRST, SECOND), (SECOND, FIRST)))

    kit.at_once(lambda: registry._register([one]), lambda: registry._register([other]))

    [row] = WorkflowVersion.objects.all()
    assert row.fingerprint in [registry.fingerprint(registry.definition_of(each)) for each in (one, other)]


def test_no_run_is_written_by_code_that_means_something_else(swapped, code):
    submit("changing", {"n": 1})

    with pytest.raises(PlanChanged):
        consuming.consume_batch()

    assert Run.objects.count() == 0
    code(FIRST, SECOND)
    run_until_idle()
    assert [run.process_state for run in Run.objects.all()] == ["Processed"]


# ------------------------------------------------------------------------------------------- the roles that refuse


def test_a_process_that_begins_with_other_plans_ends_with_one_line(code, capsys):
    code(FIRST, SECOND)
    guard.refuse_other_plans()
    code(SECOND, FIRST)

    with pytest.raises(SystemExit) as ended:
        guard.refuse_other_plans()

    assert ended.value.code == 1
    said = capsys.readouterr().err.splitlines()
    assert said == [f"refused: {refusal()}"]


def test_a_process_begins_while_the_database_is_away_and_each_heartbeat_asks_again(swapped, monkeypatch):
    ended: list[int] = []
    monkeypatch.setattr(guard.os, "_exit", ended.append)
    with monkeypatch.context() as away:
        away.setitem(connection.settings_dict, "PORT", "1")
        away.setitem(connection.settings_dict, "HOST", "127.0.0.1")
        connection.close()
        guard.refuse_other_plans()
    assert ended == []

    guard.keep_confirming()

    assert ended == [1]


def test_a_heartbeat_tells_which_versions_its_process_knows(code):
    code(FIRST)
    workflow.register(Workflow("changing", (FIRST, SECOND), intake=toy.INTAKE, version=3))

    assert guard.keep_confirming() == {"changing": [1, 3]}


def test_the_system_check_says_what_a_worker_would(code):
    code(FIRST, SECOND)
    registry.confirm()
    assert comparison.check_plans(None) == []

    code(SECOND, FIRST)

    [message] = comparison.check_plans(None)
    assert message.id == "supervision.E020"
    assert message.msg == f"W{refusal()[1:]}."


def test_the_system_check_registers_nothing(code):
    code(FIRST)

    assert comparison.check_plans(None) == []
    assert not WorkflowVersion.objects.filter(name="changing").exists()


def test_the_system_check_is_silent_without_its_table(code):
    code(FIRST)
    with kit.transaction.atomic():
        kit.fetch("ALTER TABLE supervision_workflowversion RENAME TO elsewhere")
    try:
        assert comparison.check_plans(None) == []
    finally:
        kit.fetch("ALTER TABLE elsewhere RENAME TO supervision_workflowversion")


@pytest.mark.parametrize(
    "command", [("schedule", "--once"), ("supervise", "--once"), ("cancel", "abc", "--reason", "r")], ids=lambda c: c[0]
)
def test_a_command_that_moves_orders_refuses_in_one_line(swapped, command):
    with pytest.raises(CommandError) as refused:
        call_command(*command, skip_checks=False)

    assert str(refused.value) == f"refused: {refusal()}"


def test_a_command_that_only_looks_still_looks(swapped, capsys):
    call_command("queue_depth", "--json", skip_checks=False)

    assert capsys.readouterr().out.startswith("[")
