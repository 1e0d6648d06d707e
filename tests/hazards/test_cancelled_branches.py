"""Hazard 3: an order is cancelled while one of its branches runs, one waits for a signal, and one is a child run that waits."""

from __future__ import annotations

import pytest

from supervision import ChildRun, parallel, plan, testing
from supervision.models import Run
from supervision.operations import operator_verbs
from supervision.states import Direction
from supervision.store import step_verbs
from tests.engine import kit
from tests.support import toy
from tests.workflows.conftest import ALPHA, BETA, asleep, flow, paid
from tests.workflows.test_children import GAMMA, child_of, family

__all__ = ["family", "flow"]

PACK = ChildRun("pack", workflow="packing", retry=toy.RETRY)


@pytest.mark.parametrize("ends", ["done", "dead"])
def test_a_cancel_reaches_a_branch_that_runs_one_that_waits_and_one_that_is_a_child(sas, family, ends):
    """The running call ends after the cancel, or its process dies. Nothing that was done outside is left."""
    family(*plan(parallel(ALPHA, paid(), PACK), GAMMA), child=(BETA, paid()))
    run = sas.submit("waiting")
    sent = testing.schedule()
    [(place, claims)] = [one for one in sent if one[0].step.name == "alpha-step"]
    running = step_verbs.start(place, claims)
    kit.go([one for one in sent if one[0] != place])
    sas.run()
    assert (run.steps["alpha-step"], asleep()) == ("Processing", 3)  # its wait, the parent's and the child's

    operator_verbs.cancel(run.key, by="olga", reason="no longer wanted")
    sas.run()
    assert run.state == "Compensating"
    if ends == "done":
        kit.finish(place, running)
    else:
        testing.expire(run.key)
        sas.sweep()
    for _ in range(3):
        sas.run()
        sas.advance("1m")

    run.assert_state("Cancelled")
    child_of(run).assert_state("Cancelled")
    assert not Run.objects.filter(finished_at=None).exists()
    assert "gamma-step" not in sas.performed
    assert {"alpha-step", "beta-step"} <= set(sas.undone)
    assert Run.objects.get(key=run.key).direction == Direction.UNDO
    assert asleep() == 0
    sas.assert_healthy()
