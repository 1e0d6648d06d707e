"""A step that starts another run and waits for it: started once, told of every end, cancelled and undone with its parent."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from supervision import ChildRun, PermanentFailure, Step, parallel, plan, testing
from supervision.agent import CHILD, ChildAgent, registered
from supervision.children import work
from supervision.intake import consuming
from supervision.models import Child, Run, Signal, StepState, Submission
from supervision.operations import completing
from supervision.store import step_verbs
from supervision.testkit.run import Run as Seen
from supervision.workflow import started_by_steps
from tests.engine import kit
from tests.support import toy
from tests.workflows.conftest import ALPHA, BETA, asleep, paid

GAMMA = Step("gamma-step", agent="gamma", retry=toy.RETRY)
PACK = ChildRun("pack", workflow="packing", retry=toy.RETRY)


@pytest.fixture
def family(flow, monkeypatch):
    """Registers `waiting`, the parent, of these steps, and `packing`, whose runs are its children."""
    monkeypatch.setitem(registered, CHILD, ChildAgent())

    def register(*steps, child=(BETA,), **fields):
        flow(*child, name="packing", **fields)
        started_by_steps.add("packing")
        return flow(*steps)

    yield register
    started_by_steps.discard("packing")


def child_of(run, step="pack"):
    return Seen(f"{run.key}:{step}:child")


def test_a_step_starts_a_run_and_ends_with_its_results(sas, family):
    family(ALPHA, PACK, GAMMA)
    sas.fake("beta-step", returns={"box": 7})
    run = sas.start("waiting", {"weight": 3})
    run.assert_state("Processed")
    child = child_of(run)
    child.assert_state("Processed")
    assert run.results["pack"] == {"child": child.key, "results": {"beta-step": {"box": 7}}}
    assert Run.objects.get(key=child.key).payload == {"weight": 3}
    assert Run.objects.get(key=child.key).parent_key == run.key
    assert Run.objects.get(key=run.key).parent_key is None
    sas.assert_healthy()
    kit.healthy()


def test_the_parent_sleeps_until_the_child_has_ended(sas, family):
    family(ALPHA, PACK, child=(paid(),))
    run = sas.start("waiting")
    assert (run.steps["pack"], asleep()) == ("Pending", 2)
    kit.healthy()
    child_of(run).signal("paid")
    sas.run()
    run.assert_state("Processed")
    assert Signal.objects.get(run_key=run.key).taken_by == "pack"
    assert sas.performed.count("pack") == 2
    sas.assert_healthy()


def test_the_time_of_the_wait_does_not_count_for_the_parent(sas, family):
    family(ALPHA, PACK, child=(paid(),))
    run = sas.start("waiting")
    before = Run.objects.get(key=run.key).complete_by - Run.objects.get(key=run.key).created_at
    sas.advance("30m")
    run.assert_state("Processing")
    child_of(run).signal("paid")
    sas.run()
    row = Run.objects.get(key=run.key)
    assert (before.days, (row.complete_by - row.created_at).days) == (3660, 1)
    kit.healthy()


def test_a_child_that_is_not_awaited_goes_on_by_itself(sas, family):
    family(ALPHA, ChildRun("pack", workflow="packing", waits=False), GAMMA, child=(paid(),))
    run = sas.start("waiting")
    run.assert_state("Processed")
    child = child_of(run)
    assert (run.results["pack"], child.state) == ({"child": child.key}, "Processing")
    child.signal("paid")
    sas.run()
    child.assert_state("Processed")
    assert not Signal.objects.filter(run_key=run.key).exists()
    sas.assert_healthy()


def test_the_payload_comes_from_the_parents_payload_and_results(sas, family):
    step = ChildRun(
        "pack", workflow="packing", payload=lambda facts: {"of": facts.payload["n"], "got": facts.results}, reads=("alpha-step",)
    )
    family(ALPHA, step)
    sas.fake("alpha-step", returns={"place": 9})
    run = sas.start("waiting", {"n": 4})
    assert Run.objects.get(key=child_of(run).key).payload == {"of": 4, "got": {"alpha-step": {"place": 9}}}


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (lambda _facts: [1], "the payload of pack is no JSON object but list"),
        (lambda facts: {"n": facts.payload["n"]}, "the payload of pack could not be found: KeyError: 'n'"),
        (lambda _facts: {"n": object()}, "workflow packing cannot read the payload of pack: TypeError"),
        (lambda _facts: {"n": "\0"}, "the payload of pack has a NUL character"),
        (lambda _facts: {"n": "\ud800"}, "workflow packing cannot read the payload of pack: UnicodeEncodeError"),
    ],
)
def test_a_payload_that_cannot_be_sent_stops_the_step(sas, family, payload, why):
    family(ALPHA, ChildRun("pack", workflow="packing", payload=payload))
    run = sas.start("waiting")
    run.assert_state("Error")
    assert why in StepState.objects.get(run__key=run.key, name="pack", direction="do").last_error
    assert not Child.objects.exists()
    kit.healthy()


def test_an_order_that_has_the_childs_key_already_is_not_taken_for_the_child(sas, family):
    family(ALPHA, PACK)
    run = sas.submit("waiting")
    sas.submit("packing", public_id=child_of(run).key)
    sas.run()
    run.assert_state("Error")
    assert "another order has the key" in StepState.objects.get(run__key=run.key, name="pack").last_error
    assert Run.objects.get(key=child_of(run).key).parent_key is None


@pytest.mark.parametrize("at", ["agent.after_start", "agent.before_call", "agent.after_effect", "agent.after_finish"])
def test_one_child_is_started_wherever_the_process_dies(sas, family, at):
    family(ALPHA, PACK, GAMMA)
    sas.kill("pack", at)
    run = sas.start("waiting")
    sas.advance("10m")
    run.assert_state("Processed")
    assert Submission.objects.count() == Run.objects.count() == 2
    assert sas.performed.count("beta-step") == 1
    sas.assert_nothing_left()
    sas.assert_healthy()


@pytest.mark.parametrize("at", ["agent.after_effect", "agent.after_finish", "submit.before_commit", "submit.after_commit"])
def test_the_parent_hears_of_the_end_wherever_the_childs_process_dies(sas, family, at):
    family(ALPHA, PACK)
    sas.kill("beta-step" if at.startswith("agent") else "", at)
    run = sas.start("waiting")
    sas.advance("10m")
    run.assert_state("Processed")
    sas.assert_nothing_left()
    sas.assert_healthy()


def test_a_result_that_is_too_long_is_a_reference(sas, family):
    family(ALPHA, PACK, child=(BETA, GAMMA))
    sas.fake("beta-step", returns={"text": "x" * 40_000})
    sas.fake("gamma-step", returns={"text": "x" * 40_000})
    run = sas.start("waiting")
    result = run.results["pack"]
    assert (result["child"], result["results"]) == (child_of(run).key, None)
    assert result["bytes"] > 80_000


# ------------------------------------------------------------------------------------- a child that does not succeed


def test_a_child_in_error_is_resubmitted_alone(sas, family):
    family(ALPHA, PACK)
    sas.fake("beta-step", raises=PermanentFailure("no box"), times=1)
    run = sas.start("waiting")
    child = child_of(run)
    assert (run.state, child.state, asleep()) == ("Processing", "Error", 1)
    child.resubmit()
    sas.run()
    run.assert_state("Processed")
    assert sas.performed.count("alpha-step") == 1
    sas.assert_healthy()


def test_a_child_that_is_cancelled_by_hand_stops_the_parent(sas, family):
    family(ALPHA, PACK, GAMMA, child=(ALPHA, paid()))
    run = sas.start("waiting")
    child_of(run).cancel()
    sas.run()
    child_of(run).assert_state("Cancelled")
    run.assert_state("Error")
    assert "was cancelled" in StepState.objects.get(run__key=run.key, name="pack").last_error
    kit.healthy()

    run.resubmit()
    sas.run()
    run.assert_state("Error")  # the same key means the same child

    run.resubmit(new_generation=True)
    sas.run()
    again = Seen(f"{run.key}:pack:2:child")
    again.signal("paid")
    sas.run()
    run.assert_state("Processed")
    assert run.results["pack"]["child"] == again.key
    sas.assert_healthy()


# ------------------------------------------------------------------------------------------------- undo and cancel


def test_cancelling_the_parent_cancels_a_child_that_waits(sas, family):
    family(ALPHA, PACK, child=(BETA, paid()))
    run = sas.start("waiting")
    run.cancel()
    sas.run()
    assert (run.state, child_of(run).state) == ("Cancelled", "Cancelled")
    assert sas.undone == ["pack", "beta-step", "pack", "alpha-step"]
    sas.assert_healthy()


def test_cancelling_the_parent_undoes_a_child_that_is_processed(sas, family):
    family(ALPHA, PACK, paid(), child=(BETA, GAMMA))
    run = sas.start("waiting")
    child_of(run).assert_state("Processed")
    run.cancel()
    sas.run()
    assert (run.state, child_of(run).state) == ("Cancelled", "Cancelled")
    assert sas.undone == ["pack", "gamma-step", "beta-step", "pack", "alpha-step"]
    assert Run.objects.get(key=child_of(run).key).finished_at is not None
    sas.assert_healthy()


def test_cancelling_the_parent_undoes_a_child_that_it_does_not_await(sas, family):
    family(ALPHA, ChildRun("pack", workflow="packing", waits=False), paid())
    run = sas.start("waiting")
    run.cancel()
    sas.run()
    assert (run.state, child_of(run).state) == ("Cancelled", "Cancelled")
    assert "beta-step" in sas.undone
    sas.assert_healthy()


def test_cancelling_the_parent_undoes_a_child_in_error(sas, family):
    family(ALPHA, PACK, child=(ALPHA, BETA))
    sas.fake("beta-step", raises=PermanentFailure("no box"))
    run = sas.start("waiting")
    run.cancel()
    sas.run()
    assert (run.state, child_of(run).state, child_of(run).alerts) == ("Cancelled", "Cancelled", [])
    sas.assert_healthy()


def test_a_child_that_cannot_be_undone_holds_the_parents_undo_until_an_operator_helps(sas, family):
    family(ALPHA, PACK, paid())
    sas.fake("undo:beta-step", raises=PermanentFailure("it is gone"), times=1)
    run = sas.start("waiting")
    run.cancel()
    sas.run()
    assert (run.state, child_of(run).state, asleep()) == ("Compensating", "Error", 1)
    kit.healthy()
    child_of(run).resubmit()
    sas.run()
    assert (run.state, child_of(run).state) == ("Cancelled", "Cancelled")
    sas.assert_healthy()


def test_the_parent_is_cancelled_before_the_child_is_consumed(sas, family):
    family(PACK, GAMMA)
    run = sas.submit("waiting")
    [(place, claims)] = kit.schedule()
    testing.perform(place, claims)
    assert not Run.objects.filter(key=child_of(run).key).exists()
    run.cancel()
    sas.run()
    assert (run.state, child_of(run).state) == ("Cancelled", "Cancelled")
    assert "beta-step" not in sas.performed
    sas.assert_healthy()


def test_the_parent_is_cancelled_while_a_consumer_has_the_child_in_hand(sas, family, monkeypatch):
    """The child has no run when the undo looks, and has one when the cancel has waited for it."""
    family(PACK, GAMMA)
    run = sas.submit("waiting")
    [(place, claims)] = kit.schedule()
    testing.perform(place, claims)
    real = work.operator_verbs.cancel

    def consumed_first(key, **given):
        if key == child_of(run).key:
            [(at, begun)] = testing.schedule()
            step_verbs.start(at, begun)
        return real(key, **given)

    run.cancel()
    with monkeypatch.context() as patch:
        patch.setattr(consuming, "consume_batch", lambda *_, **__: consuming.ConsumeReport())
        [(undo, claimed)] = testing.schedule()
    monkeypatch.setattr(work.operator_verbs, "cancel", consumed_first)
    testing.perform(undo, claimed)

    assert (run.state, child_of(run).state, Child.objects.get().state) == ("Compensating", "Compensating", "Undoing")
    testing.expire()
    sas.advance("1h")
    assert (run.state, child_of(run).state) == ("Cancelled", "Cancelled")
    sas.assert_healthy()


def test_the_parent_is_cancelled_while_the_child_works(sas, family):
    family(ALPHA, PACK)
    run = None

    def cancel(_request):
        run.cancel()
        return {}

    run = sas.submit("waiting")
    sas.fake("beta-step", does=cancel)
    sas.run()
    assert (run.state, child_of(run).state) == ("Cancelled", "Cancelled")
    assert sas.undone.count("beta-step") == 1
    sas.assert_healthy()


@pytest.mark.parametrize("at", ["agent.after_start", "undo.after_effect", "agent.after_finish"])
def test_a_child_is_undone_once_wherever_the_process_dies(sas, family, at):
    family(ALPHA, PACK, paid())
    run = sas.start("waiting")
    sas.kill("undo:pack", at)
    run.cancel()
    sas.run()
    sas.advance("10m")
    assert (run.state, child_of(run).state) == ("Cancelled", "Cancelled")
    assert sas.undone.count("beta-step") == 1
    sas.assert_nothing_left()
    sas.assert_healthy()


def test_a_run_that_has_no_parent_stays_processed(sas, family):
    family(ALPHA)
    run = sas.start("waiting")
    with pytest.raises(IntegrityError), transaction.atomic():
        Run.objects.filter(key=run.key).update(process_state="Compensating", direction="undo", finished_at=None)


def test_children_of_children_are_undone_with_them(sas, family, flow):
    family(ALPHA, PACK, paid(), child=(ChildRun("box", workflow="boxing", retry=toy.RETRY), BETA))
    flow(GAMMA, name="boxing")
    run = sas.start("waiting")
    box = Seen(f"{child_of(run).key}:box:child")
    assert (box.state, Child.objects.get(key=box.key).root_key) == ("Processed", run.key)
    run.cancel()
    sas.run()
    assert (run.state, child_of(run).state, box.state) == ("Cancelled",) * 3
    assert [name for name in sas.undone if name.endswith("-step")] == ["beta-step", "gamma-step", "alpha-step"]
    sas.assert_healthy()


def test_two_branches_each_have_a_child(sas, family):
    other = ChildRun("wrap", workflow="packing", retry=toy.RETRY)
    family(*plan(parallel([PACK], [other]), GAMMA))
    run = sas.start("waiting")
    run.assert_state("Processed")
    assert (child_of(run).state, child_of(run, "wrap").state) == ("Processed", "Processed")
    sas.assert_healthy()


def test_an_operator_who_completes_the_parents_step_leaves_the_child_alone(sas, family):
    family(ALPHA, PACK, paid(), child=(BETA, paid()))
    run = sas.start("waiting")
    completing.complete(run.key, by="test", reason="packed by hand", result={"results": {}})
    sas.run()
    assert (run.steps["pack"], child_of(run).state) == ("Processed", "Processing")
    sas.assert_healthy()
    child_of(run).signal("paid")
    sas.run()
    child_of(run).assert_state("Processed")
    run.cancel()
    sas.run()
    assert (run.state, child_of(run).state) == ("Cancelled", "Cancelled")
    sas.assert_healthy()
