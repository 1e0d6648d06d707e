"""Hazard 6: an operator resubmits a step whose successor was skipped by hand, alone or beside others that run."""

from __future__ import annotations

import pytest

from supervision import PermanentFailure, Step, plan, testing
from supervision.errors import Refused
from supervision.operations import operator_verbs
from tests.engine import kit
from tests.support import toy
from tests.workflows.conftest import ALPHA, BETA, flow
from tests.workflows.test_children import GAMMA

__all__ = ["flow"]


def fails(*names):
    def work(request):
        if request.step in names:
            raise PermanentFailure("refused")
        return {"by": request.step}

    return work


def test_a_step_is_not_resubmitted_once_its_successor_was_skipped_and_the_run_has_ended(sas, flow):
    """The first failure is settled by a skip, then the second one: nothing is left that could be resubmitted."""
    flow(ALPHA, BETA, GAMMA)
    for step in ("alpha-step", "beta-step"):
        sas.fake(step, does=fails("alpha-step", "beta-step"), times=1)
    run = sas.start("waiting")
    operator_verbs.resubmit(run.key, by="olga", reason="try again")
    sas.run()
    assert run.steps == {"alpha-step": "Processed", "beta-step": "Error", "gamma-step": "Pending"}
    operator_verbs.skip(run.key, by="olga", reason="not needed")
    sas.run()

    run.assert_state("Processed")
    assert run.steps == {"alpha-step": "Processed", "beta-step": "Skipped", "gamma-step": "Processed"}
    with pytest.raises(Refused):
        operator_verbs.resubmit(run.key, step="alpha-step", by="olga", reason="once more")
    assert sas.performed == ["alpha-step", "alpha-step", "beta-step", "gamma-step"]
    sas.assert_healthy()


def test_a_failed_branch_is_resubmitted_although_the_step_beside_it_was_skipped_by_hand(sas, flow):
    """One branch fails and holds the other; it is skipped, the other one fails too, and is resubmitted. The join begins once."""
    toy.reset()
    flow(*plan(ALPHA, Step("left", agent="beta", after=("alpha-step",), retry=toy.RETRY),
               Step("right", agent="gamma", after=("alpha-step",), retry=toy.RETRY),
               Step("join", agent="alpha", after=("left", "right"), reads=("left", "right"), retry=toy.RETRY)))  # fmt: skip
    toy.BETA.on_perform = toy.GAMMA.on_perform = kit.raising(PermanentFailure("refused"))
    run = sas.start("waiting")
    assert sorted(run.steps.values()) == ["Error", "Pending", "Pending", "Processed"]
    first, second = ("left", "right") if run.steps["left"] == "Error" else ("right", "left")

    operator_verbs.skip(run.key, step=first, by="olga", reason="by hand")
    sas.run()
    assert run.steps == {"alpha-step": "Processed", first: "Skipped", second: "Error", "join": "Pending"}
    toy.BETA.on_perform = toy.GAMMA.on_perform = None
    operator_verbs.resubmit(run.key, step=second, by="olga", reason="repaired")
    sas.run()

    run.assert_state("Processed")
    assert run.steps == {"alpha-step": "Processed", first: "Skipped", second: "Processed", "join": "Processed"}
    joins = [request for request in toy.ALPHA.performed if request.step == "join"]
    assert [set(request.results) for request in joins] == [{second}]
    sas.assert_healthy()


@pytest.mark.parametrize("first", ["skip", "resubmit"])
def test_a_step_and_its_skipped_successor_are_settled_in_any_order_of_failure(sas, flow, first):
    """The undo meets the same: a failed undo of a successor that is skipped by hand lets the undo before it go on, once."""
    toy.reset()
    flow(ALPHA, BETA, GAMMA)
    toy.GAMMA.on_perform = kit.raising(PermanentFailure("refused"))
    toy.BETA.on_compensate = kit.raising(PermanentFailure("cannot"))
    run = sas.start("waiting")
    run.cancel()
    sas.run()
    assert run.state == "Error"
    if first == "resubmit":
        operator_verbs.resubmit(run.key, by="olga", reason="again")
        sas.run()
        assert run.state == "Error"
    operator_verbs.skip(run.key, by="olga", reason="undone by hand")
    sas.run()

    run.assert_state("Cancelled")
    assert [request.step for request in toy.ALPHA.undone] == ["alpha-step"]
    testing.run_until_idle()
    sas.assert_healthy()
