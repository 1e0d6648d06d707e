"""`manage.py workflows`: the registered versions, the orders in flight of each, and which ones may be removed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.management import call_command

from supervision import Step, Workflow, workflow
from supervision.plans import registry
from supervision.store import step_verbs
from supervision.testing import run_until_idle, schedule, submit
from tests.engine import kit
from tests.engine.conftest import engine, store_database  # noqa: F401
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`code(1, 2)` makes this process know these versions of the workflow `changing`."""

    def deploy(*versions: int) -> None:
        monkeypatch.setattr(workflow, "_workflows", {})
        monkeypatch.setattr(workflow, "_newest", {})
        for version in versions:
            steps = tuple(Step(f"step-{number}", agent="alpha") for number in range(version))
            workflow.register(Workflow("changing", steps, intake=toy.INTAKE, version=version))

    return deploy


def listed(capsys: Any) -> list[dict[str, Any]]:
    call_command("workflows", "--json")
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return rows


def test_it_lists_versions_with_their_unfinished_orders_and_what_may_go(code, capsys):
    code(1)
    submit("changing", {"n": 1})
    run_until_idle()
    code(1, 2)
    for n in range(3):
        submit("changing", {"n": n})
    [(place, claims)] = schedule()
    kit.fetch("UPDATE supervision_stepstate SET process_state = 'Pending', locked_by = NULL WHERE run_id = %s", [claims[0].run_id])
    step_verbs.start(place, claims)

    rows = listed(capsys)

    assert [
        (row["name"], row["version"], row["in_flight"], row["waiting"], row["known"], row["newest"], row["removable"]) for row in rows
    ] == [("changing", 1, 0, 0, True, False, True), ("changing", 2, 3, 1, True, True, False)]
    assert rows[0]["fingerprint"] == registry.fingerprint(registry.definition_of(workflow.version_of("changing", 1)))
    assert rows[0]["registered"].endswith("Z")


def test_a_version_with_unfinished_orders_may_not_go_and_one_that_the_code_lacks_is_listed(code, capsys):
    code(1)
    submit("changing", {"n": 1})
    schedule()
    code(1, 2)
    assert [(row["version"], row["in_flight"], row["removable"]) for row in listed(capsys)] == [(1, 1, False), (2, 0, False)]

    code(2)

    assert [(row["version"], row["known"], row["removable"]) for row in listed(capsys)] == [(1, False, False), (2, True, False)]


def test_a_version_that_new_orders_may_choose_may_not_go(code, capsys):
    code(1)
    steps = (Step("step-0", agent="alpha"),)
    workflow.register(Workflow("changing", steps, intake=toy.INTAKE, version=2, by_choice=True))

    assert [(row["version"], row["newest"], row["by_choice"], row["removable"]) for row in listed(capsys)] == [
        (1, True, False, False),
        (2, False, True, False),
    ]
    call_command("workflows")
    assert "no: new orders may choose it" in capsys.readouterr().out


def test_what_no_process_has_registered_yet_is_listed_too(code, capsys):
    code(1)

    assert [(row["version"], row["registered"]) for row in listed(capsys)] == [(1, None)]


def test_people_get_a_table_and_are_told_of_code_that_does_not_start(code, capsys):
    code(1, 2)
    registry.confirm()
    workflow._workflows["changing", 1] = Workflow("changing", (Step("other", agent="alpha"),), intake=toy.INTAKE)

    call_command("workflows")

    said = capsys.readouterr()
    assert [line.split()[:2] for line in said.out.splitlines()[1:]] == [["changing", "1"], ["changing", "2"]]
    assert "no: new orders run it" in said.out
    assert said.err.startswith("this code does not start: workflow changing version 1: step 1 is other in this code")
