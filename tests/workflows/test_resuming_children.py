"""Runs that go back over a step that starts other runs: the children are undone, and new ones get what the new results say."""

from __future__ import annotations

import re

import pytest

from supervision import ChildRun, ForEach, PermanentFailure, testing
from supervision.children import work
from supervision.errors import Refused
from supervision.models import Child, Run
from supervision.operations import completing, operator_verbs
from supervision.signals.sending import send_signal
from tests.engine import kit
from tests.workflows.test_moving import PAID, A, B, C, move, version
from tests.workflows.test_resuming_earlier import back

__all__ = ["version"]


@pytest.fixture
def twice(sas):
    """Let step `a` return this first and then that, and let step `c` fail once."""

    def fake(first, second):
        sas.fake("a", returns=second, times=1)
        sas.fake("a", returns=first, times=1)
        sas.fake("c", raises=PermanentFailure("no"), times=1)

    return fake


def children(run):
    return Run.objects.filter(parent_key=run.key).order_by("pk")


def test_a_new_child_gets_the_payload_that_the_new_results_say(sas, version, twice):
    version(1, B, name="kid")
    version(1, A, ChildRun("wrap", workflow="kid", reads=("a",), payload=lambda facts: {"rate": facts.results["a"]["rate"]}), C)
    twice({"rate": 9}, {"rate": 5})
    run = sas.start("moved")
    back(run, "a")
    sas.run()
    run.assert_state("Processed")
    assert [child.payload for child in children(run)] == [{"rate": 9}, {"rate": 5}]
    assert run.results["wrap"]["child"] == f"{run.key}:wrap:2:child"
    sas.assert_healthy()


@pytest.mark.parametrize(("first", "second"), [([1, 2], [7]), ([1], [2, 3]), ([1], []), ([], [1])])
def test_a_new_list_makes_new_children(sas, version, twice, first, second):
    version(1, B, name="kid")
    version(1, A, ForEach("each", workflow="kid", reads=("a",), items=lambda facts: facts.results["a"]["items"]), C)
    twice({"items": first}, {"items": second})
    run = sas.start("moved")
    back(run, "a")
    sas.run()
    run.assert_state("Processed")
    done = children(run).filter(process_state="Processed")
    assert [child.payload["item"] for child in done] == second
    assert children(run).filter(process_state="Cancelled").count() == len(first)
    assert run.results.get("each", {}).get("items", 0) == len(second)
    sas.assert_healthy()


def test_a_child_that_is_not_awaited_is_named_by_its_new_key(sas, version, twice):
    version(1, B, name="kid")
    version(1, A, ChildRun("wrap", workflow="kid", waits=False), C)
    twice({}, {})
    run = sas.start("moved")
    back(run, "wrap")
    sas.run()
    run.assert_state("Processed")
    assert run.results["wrap"] == {"child": children(run).last().key}
    sas.assert_healthy()


def test_a_run_goes_back_while_its_child_is_under_way(sas, version):
    version(1, B, PAID, name="kid")
    version(1, A, ChildRun("wrap", workflow="kid"), C)
    run = sas.start("moved")
    assert back(run, "a") == "Compensating"
    sas.run()
    send_signal(children(run).last().key, "paid", {})
    sas.run()
    run.assert_state("Processed")
    assert [child.process_state for child in children(run)] == ["Cancelled", "Processed"]
    sas.assert_healthy()


@pytest.mark.parametrize("step", ["a", "each"])
def test_a_run_of_which_a_child_was_cancelled_goes_back_and_undoes_the_others(sas, version, step):
    version(1, B, PAID, name="kid")
    version(1, A, ForEach("each", workflow="kid", items=lambda _facts: [1, 2]), C)
    run = sas.start("moved")
    one, two = children(run)
    send_signal(one.key, "paid", {})
    operator_verbs.cancel(two.key, by="olga", reason="r")
    sas.run()
    run.assert_state("Error")
    back(run, step)
    sas.run()
    for child in children(run)[2:]:
        send_signal(child.key, "paid", {})
    sas.run()
    run.assert_state("Processed")
    assert [child.process_state for child in children(run)] == ["Cancelled", "Cancelled", "Processed", "Processed"]
    sas.assert_healthy()


def test_a_signal_for_a_wait_that_is_to_come_again_is_not_called_late(sas, version):
    version(1, A, PAID, B)
    sas.fake("b", raises=PermanentFailure("no"), times=1)
    run = sas.start("moved")
    run.signal("paid", {"n": 1}, key="1")
    sas.run()
    assert send_signal(run.key, "paid", {}) == "late"
    back(run, "b")
    assert send_signal(run.key, "paid", {}) == "late"
    sas.run()
    run.assert_state("Processed")
    sas.fake("b", raises=PermanentFailure("no"), times=1)
    run = sas.start("moved")
    run.signal("paid", {"n": 1}, key="1")
    sas.run()
    back(run, "a")
    assert send_signal(run.key, "paid", {"n": 2}, key="2") == "accepted"
    sas.run()
    run.assert_state("Processed")
    assert run.results["paid"]["payload"] == {"n": 2}


# ------------------------------------------------------------------------------------- steps settled by hand


@pytest.fixture
def items(sas, version):
    """A run that waits for two of three items; its last step will fail once."""
    version(1, B, PAID, name="kid")
    version(1, A, ForEach("each", workflow="kid", items=lambda _facts: [1, 2, 3], at_once=2), C)
    sas.fake("c", raises=PermanentFailure("no"), times=1)
    return sas.start("moved")


def states(run):
    return list(Child.objects.filter(parent_key=run.key).order_by("generation", "number").values_list("state", flat=True))


def by_hand(run):
    return completing.complete(run.key, by="olga", reason="packed by hand", result={}, step="each")


@pytest.mark.parametrize("verb", ["complete", "complete in error", "skip"])
def test_children_under_way_of_a_step_settled_by_hand_are_undone_and_new_ones_are_made(sas, items, verb):
    if verb != "complete":
        operator_verbs.cancel(children(items)[0].key, by="olga", reason="r")
        sas.run()
    if verb == "skip":
        operator_verbs.skip(items.key, by="olga", reason="r")
    else:
        by_hand(items)
    sas.run()
    items.assert_state("Error")
    assert states(items) == ["Started" if verb == "complete" else "Cancelled", "Started", "Cancelled"]
    back(items, "a")
    sas.run()
    assert states(items) == ["Replaced"] * 3 + ["Started", "Started", "Waiting"]
    assert {child.process_state for child in children(items)[:2]} == {"Cancelled"}
    sas.assert_healthy()


def test_an_undo_is_not_recorded_by_hand_while_children_are_under_way(sas, items):
    by_hand(items)
    sas.run()
    one, two = children(items)
    send_signal(one.key, "paid", {})
    sas.run()
    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(work, "compensate", lambda requests: [PermanentFailure("no") for _ in requests])
        back(items, "a")
        sas.run()
    items.assert_state("Error")
    words = f"1 of the runs that each has started are under way, the first is {two.key}: cancel them, or resubmit the undo."
    with pytest.raises(Refused, match=re.escape(words)) as problem:
        by_hand(items)
    assert problem.value.code == "children_under_way"

    operator_verbs.cancel(two.key, by="olga", reason="r")
    sas.run()
    by_hand(items)  # the operator says that the child that is Processed was undone, too
    sas.run()
    assert states(items) == ["Replaced"] * 3 + ["Started", "Started", "Waiting"]
    sas.assert_healthy()


def test_a_step_whose_children_were_undone_may_start_others_in_a_newer_version(sas, version):
    version(1, PAID, name="kid")
    version(1, B, name="another")
    version(1, ChildRun("wrap", workflow="kid"))
    run = sas.start("moved")
    back(run, "wrap")
    while kit.step(run.key, "wrap").generation == 1:
        for place, claims in testing.schedule():
            testing.perform(place, claims)
    assert list(Child.objects.values_list("state", flat=True)) == ["Replaced"]

    version(2, ChildRun("wrap", workflow="another"))
    move(run)
    sas.run()

    run.assert_state("Processed")
    child = Run.objects.get(key=run.results["wrap"]["child"])
    assert (child.key, child.workflow) == (f"{run.key}:wrap:2:child", "another")
    sas.assert_healthy()
