"""Graphs as definitions, and what operators see of branches: several failed steps, and why a run waits."""

from __future__ import annotations

import json
import re
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from supervision import PermanentFailure, Step, WaitForSignal, Workflow, parallel, plan
from supervision.errors import DefinitionError
from supervision.insight import directory
from supervision.insight.waiting import why_waiting
from supervision.models import Run
from supervision.plans import registry
from supervision.testkit.run import Run as Told
from tests.shopping import a_client, an_account
from tests.support.people import operator
from tests.workflows.conftest import HOUR
from tests.workflows.test_branches import B2, C2, A, B, C, D, begin, fail

__all__ = ["operator"]


# ------------------------------------------------------------------------------------------------------- definitions


def after(*steps):
    """What each step comes after, by name, as the workflow reads it; and its branch."""
    workflow = Workflow("graph", steps)
    shape = workflow.shape
    assert shape is not None
    names = [step.name for step in steps]
    return {
        name: ([names[place] for place in before], branch) for name, before, branch in zip(names, shape.after, shape.branch, strict=True)
    }


def test_a_plan_says_what_each_step_comes_after():
    assert after(*plan(A, parallel([B, B2], [C, C2]), D)) == {
        "a": ([], 0), "b": (["a"], 0), "b2": (["b"], 0), "c": (["a"], 1), "c2": (["c"], 1), "d": (["b2", "c2"], 0),
    }  # fmt: skip
    assert after(*plan(parallel(A, [B, parallel(B2, C)]), D)) == {
        "a": ([], 0), "b": ([], 1), "b2": (["b"], 1), "c": (["b"], 2), "d": (["a", "b2", "c"], 0),
    }  # fmt: skip


def test_a_plan_without_branches_is_the_list_itself():
    assert Workflow("list", plan(A, [B, C], parallel(D))).shape is None
    assert Workflow("list", plan(A, parallel(), B)).shape is None
    assert Workflow("list", (A, B)).shape is None
    assert [step.after for step in plan(A, B)] == [(), ("a",)]


def test_a_step_without_after_comes_after_the_one_before_it():
    assert after(A, Step("x", agent="beta", after=()), B) == {"a": ([], 0), "x": ([], 1), "b": (["x"], 1)}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: (A, Step("x", agent="beta", after=("y",))), "step 'x' comes after 'y', which is no earlier step"),
        (lambda: (Step("x", agent="beta", after=("x",)),), "step 'x' comes after 'x', which is no earlier step"),
        (lambda: plan(A, parallel(B, Step("x", agent="beta", reads=("b",)))), "step 'x' reads 'b', which may run beside it; name it in"),
        (lambda: plan(A, parallel(B, B)), "two steps are named 'b'"),
        (lambda: plan(A, "b"), "a plan consists of steps, lists of steps and parallel"),
        (lambda: plan(A, parallel(B, 7)), "got 7"),
    ],
)
def test_a_graph_that_cannot_be_is_refused_and_the_error_names_the_step(make, says):
    with pytest.raises(DefinitionError, match=re.escape(says)):
        Workflow("graph", make())


def test_another_graph_under_the_same_version_is_a_difference_that_is_named():
    here, there = (registry.definition_of(Workflow("graph", plan(*parts))) for parts in ((A, parallel(B, C), D), (A, parallel(B, C), D)))
    assert registry.first_difference(here, there) == ""
    other = registry.definition_of(Workflow("graph", plan(A, B, parallel(C, D))))
    assert registry.first_difference(here, other) == "after of step 3 (c) is a in this code and b in the registered plan"
    as_list = registry.definition_of(Workflow("graph", (A, B, C, D)))
    assert registry.first_difference(here, as_list) == "after of step 3 (c) is a in this code and b in the registered plan"


# ------------------------------------------------------------------------------------------------------------- doors


@pytest.fixture
def broken(transactional_db, sas, flow, monkeypatch):
    """A run of which two branches have failed."""
    monkeypatch.setattr(directory, "_used", [directory.Directory()])
    flow(*plan(A, parallel([B, B2], [C, C2]), D))
    key, b, c = begin()
    fail(*b)
    fail(*c)
    return Told(key)


def post(client, run, verb, **body):
    return client.post(f"/api/v1/orders/{run.key}/{verb}/", json.dumps({"reason": "a test", **body}), content_type="application/json")


def test_the_api_settles_each_failed_branch_by_its_name(sas, broken):
    olga = a_client(an_account("olga", "operator"))
    refused = post(olga, broken, "skip")
    assert (refused.status_code, refused.json()["code"]) == (409, "step_required")
    assert post(olga, broken, "resubmit", step="d").json()["code"] == "not_in_error"
    assert post(olga, broken, "skip", step="b").status_code == 202
    broken.assert_state("Error")
    assert post(olga, broken, "resubmit", step="c").status_code == 202
    sas.run()
    broken.assert_state("Processed")
    assert (broken.steps["b"], broken.steps["c"]) == ("Skipped", "Processed")


def test_the_commands_settle_each_failed_branch_by_its_name(sas, broken):
    def manage(*words):
        call_command(*words, broken.key, "--reason", "a test", stdout=StringIO(), stderr=StringIO())

    with pytest.raises(CommandError):
        manage("skip")
    manage("skip", "--step", "c")
    manage("resubmit", "--step", "b")
    sas.run()
    broken.assert_state("Processed")
    assert broken.steps["c"] == "Skipped"


def test_the_console_asks_which_failed_step_is_meant(sas, broken, operator):
    pk = Run.objects.get(key=broken.key).pk
    page = operator.get(reverse("admin:supervision_run_change", args=[pk])).content.decode()
    assert "after b2, c2" in page

    address = reverse("admin:supervision_run_operate", args=[pk, "skip"])
    page = operator.get(address).content.decode()
    assert re.findall(r'<option value="([^"]*)"', page) == ["b", "c"]
    hidden = dict(re.findall(r'name="(plan_version|attempt)" value="([^"]*)"', page))
    assert operator.post(address, {**hidden, "reason": "without it"}).status_code == 200  # no step was chosen
    assert operator.post(address, {**hidden, "reason": "without it", "step": "c"}).status_code == 302
    assert (broken.state, broken.steps["c"]) == ("Error", "Skipped")

    address = reverse("admin:supervision_run_operate", args=[pk, "resubmit"])
    page = operator.get(address).content.decode()
    assert "<option" not in page  # one step is left
    hidden = dict(re.findall(r'name="(plan_version|attempt)" value="([^"]*)"', page))
    assert operator.post(address, {**hidden, "reason": "again"}).status_code == 302
    sas.run()
    broken.assert_state("Processed")


def test_the_console_resubmits_all_failed_steps_at_once(sas, broken, operator):
    pk = Run.objects.get(key=broken.key).pk
    address = reverse("admin:supervision_run_operate", args=[pk, "resubmit"])
    page = operator.get(address).content.decode()
    assert re.findall(r'<option value="([^"]*)"', page) == ["", "b", "c"]
    hidden = dict(re.findall(r'name="(plan_version|attempt)" value="([^"]*)"', page))
    assert operator.post(address, {**hidden, "reason": "again", "step": ""}).status_code == 302
    sas.run()
    broken.assert_state("Processed")


def test_why_a_run_waits_names_the_failed_branch_before_the_one_that_waits_and_that_before_the_one_at_work(sas, flow):
    flow(*plan(A, parallel(WaitForSignal("paid", within=HOUR, label="the bank's answer"), [C, C2]), D))
    sas.lose_message("c")
    run = sas.start("waiting")
    [why] = why_waiting([Run.objects.get(key=run.key).pk]).values()
    assert why is not None
    assert why.startswith("paid waits for the bank's answer until ")
    sas.fake("c", raises=PermanentFailure("no"))
    sas.advance("20m")
    [why] = why_waiting([Run.objects.get(key=run.key).pk]).values()
    assert why == "c is in error and waits for an operator."
