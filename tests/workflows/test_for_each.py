"""A step that starts a run for each item of a list: bounded, each once, one resubmitted alone, each undone on its own."""

from __future__ import annotations

import pytest

from supervision import ForEach, OnPermanent, PermanentFailure, RetryPolicy
from supervision.models import Alert, Child, Run, StepState
from supervision.testkit.run import Run as Seen
from tests.engine import kit
from tests.support import toy
from tests.workflows.conftest import ALPHA, BETA, paid
from tests.workflows.test_children import GAMMA, family

__all__ = ["family"]


def each(**fields):
    return ForEach("parcels", workflow="packing", **{"retry": toy.RETRY, "items": lambda facts: facts.payload["items"], **fields})


def item(run, index):
    return Seen(f"{run.key}:parcels[{index}]:child")


def states():
    return sorted(Child.objects.values_list("state", flat=True))


def unfinished():
    return Run.objects.filter(parent_key__isnull=False, finished_at=None).count()


@pytest.mark.parametrize("items", [["one"], ["same", "same", "same"], list(range(300))])
def test_a_run_is_started_for_each_item_and_their_results_are_gathered(sas, family, items):
    family(ALPHA, each(parent=lambda facts: {"to": facts.payload["to"]}), GAMMA)
    sas.fake("beta-step", does=lambda request: {"n": request.payload["item"]})
    run = sas.start("waiting", {"items": items, "to": "Rome"})
    run.assert_state("Processed")
    assert run.results["parcels"] == {"items": len(items), "results": [{"beta-step": {"n": one}} for one in items]}
    assert Run.objects.get(key=item(run, 0).key).payload == {"item": items[0], "index": 0, "parent": {"to": "Rome"}}
    assert Run.objects.count() == len(items) + 1
    assert sas.performed.count("parcels") <= 12  # not once for each item
    sas.assert_healthy()


def test_no_item_is_no_step(sas, family):
    family(ALPHA, each(), GAMMA)
    run = sas.start("waiting", {"items": []})
    run.assert_state("Processed")
    assert run.steps == {"alpha-step": "Processed", "parcels": "Skipped", "gamma-step": "Processed"}
    assert "its list is empty" in "".join(run.history)
    assert not Alert.objects.exists()
    sas.assert_healthy()


@pytest.mark.parametrize(
    ("items", "at_once", "why"),
    [
        ("text", 10, "the items of parcels are no list but str"),
        ({"a": 1}, 10, "the items of parcels are no list but dict"),
        (None, 10, "the items of parcels are no list but NoneType"),
        ([0] * 10_001, 10, "parcels has 10,001 items, at most 10,000 are allowed"),
        ([0] * 5_001, 1, "parcels has 5,001 items, at most 5,000 are allowed"),
    ],
)
def test_a_list_that_is_none_stops_the_step(sas, family, items, at_once, why):
    family(ALPHA, each(at_once=at_once))
    run = sas.start("waiting", {"items": items})
    run.assert_state("Error")
    assert StepState.objects.get(run__key=run.key, name="parcels").last_error == why
    assert not Child.objects.exists()


def test_the_list_is_asked_for_once(sas, family):
    asked = []
    family(each(items=lambda facts: asked.append(1) or facts.payload["items"], at_once=2))
    for at in ("agent.before_call", "agent.after_finish"):
        sas.kill("parcels", at)
    run = sas.start("waiting", {"items": [1, 2, 3, 4, 5]})
    sas.advance("10m")
    run.assert_state("Processed")
    assert (len(asked), Run.objects.count()) == (1, 6)
    sas.assert_nothing_left()
    sas.assert_healthy()


@pytest.mark.parametrize("at_once", [1, 3, 7])
def test_so_many_are_unfinished_at_once(sas, family, at_once):
    seen = []
    family(each(at_once=at_once))
    sas.fake("beta-step", does=lambda _request: seen.append(unfinished()) or {})
    run = sas.start("waiting", {"items": list(range(20))})
    run.assert_state("Processed")
    assert max(seen) <= at_once
    sas.assert_healthy()


def test_one_failed_item_is_resubmitted_alone(sas, family):
    family(ALPHA, each(at_once=2), GAMMA)
    broken = [3]

    def work(request):
        if request.payload["index"] in broken:
            raise PermanentFailure("too heavy")
        return {}

    sas.fake("beta-step", does=work)
    run = sas.start("waiting", {"items": list(range(6))})
    assert (run.state, item(run, 3).state, states().count("Processed")) == ("Processing", "Error", 5)
    kit.healthy()
    broken.clear()
    calls = sas.performed.count("beta-step")
    item(run, 3).resubmit()
    sas.run()
    run.assert_state("Processed")
    assert sas.performed.count("beta-step") == calls + 1
    sas.assert_healthy()


def test_items_in_error_keep_their_places(sas, family):
    family(each(at_once=2))
    sas.fake("beta-step", raises=PermanentFailure("too heavy"), times=2)
    run = sas.start("waiting", {"items": list(range(5))})
    assert states() == ["Started", "Started", "Waiting", "Waiting", "Waiting"]
    item(run, 0).resubmit()
    sas.run()
    assert states() == ["Processed"] * 4 + ["Started"]
    item(run, 1).resubmit()
    sas.run()
    run.assert_state("Processed")
    sas.assert_healthy()


def test_a_cancelled_item_stops_the_step_and_a_new_generation_replaces_only_it(sas, family):
    family(each(at_once=2), child=(paid(), BETA))
    run = sas.start("waiting", {"items": list(range(3))})
    item(run, 0).cancel()
    sas.run()
    run.assert_state("Error")
    assert states() == ["Cancelled", "Started", "Waiting"]
    item(run, 1).signal("paid")
    sas.run()
    assert states() == ["Cancelled", "Processed", "Waiting"]  # nothing begins while the parent is in Error

    run.resubmit(new_generation=True)
    sas.run()
    Seen(f"{run.key}:parcels[0]:2:child").signal("paid")
    item(run, 2).signal("paid")
    sas.run()
    run.assert_state("Processed")
    assert run.results["parcels"]["items"] == 3
    sas.assert_healthy()


def test_no_further_item_begins_once_the_policy_has_skipped_the_step(sas, family):
    family(each(at_once=2, retry=RetryPolicy(on_permanent=OnPermanent.SKIP)), paid(), child=(paid(), BETA))
    run = sas.start("waiting", {"items": list(range(4))})
    item(run, 0).cancel()
    sas.run()
    assert (run.steps["parcels"], states()) == ("Skipped", ["Cancelled", "Cancelled", "Cancelled", "Started"])
    item(run, 1).signal("paid")
    sas.run()
    assert (states().count("Processed"), Run.objects.count(), sas.performed.count("beta-step")) == (1, 3, 1)

    run.signal("paid")
    sas.run()
    run.assert_state("Processed")
    sas.assert_healthy()


@pytest.mark.parametrize("at_once", [1, 4])
def test_each_item_is_undone_so_many_at_once(sas, family, at_once):
    seen = []
    family(ALPHA, each(at_once=at_once), paid())
    sas.fake("undo:beta-step", does=lambda _request: seen.append(unfinished()) or {})
    run = sas.start("waiting", {"items": list(range(12))})
    run.cancel()
    sas.run()
    run.assert_state("Cancelled")
    assert (states(), sas.undone.count("beta-step")) == (["Cancelled"] * 12, 12)
    assert max(seen) <= at_once
    sas.assert_healthy()


def test_cancelling_starts_no_further_item(sas, family):
    family(ALPHA, each(at_once=2), child=(BETA, paid()))
    run = sas.start("waiting", {"items": list(range(6))})
    item(run, 0).signal("paid")
    sas.run()
    run.cancel()
    sas.run()
    run.assert_state("Cancelled")
    assert (states(), sas.performed.count("beta-step"), sas.undone.count("beta-step")) == (["Cancelled"] * 6, 3, 3)
    assert Run.objects.count() == 4
    sas.assert_healthy()


def test_long_results_are_a_reference(sas, family):
    family(each())
    sas.fake("beta-step", returns={"text": "x" * 40_000})
    run = sas.start("waiting", {"items": [1, 2]})
    assert {**run.results["parcels"], "bytes": 0} == {"items": 2, "results": None, "bytes": 0}


def test_two_supervisors_change_nothing(sas, family):
    sas.supervisors = 2
    family(each(at_once=3))
    sas.kill("beta-step", "agent.after_effect")
    run = sas.start("waiting", {"items": list(range(9))})
    sas.advance("10m")
    run.assert_state("Processed")
    assert Run.objects.count() == 10
    sas.assert_healthy()
