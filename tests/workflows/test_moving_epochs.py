"""Runs older than the database's epoch move to a newer version: what may be lost is looked for, and no step begins too early."""

from __future__ import annotations

import pytest

from supervision import parallel, plan
from supervision.models import Epoch
from supervision.operations import moving
from supervision.states import ATTEMPTS_PER_EPOCH
from supervision.store import epochs
from tests.engine import kit
from tests.support import toy
from tests.workflows.test_moving import PAID, A, B, C, X, move, version

__all__ = ["version"]


@pytest.fixture
def new_epoch(version):
    """Begins another epoch of the database, as after a restore."""
    Epoch.objects.all().delete()
    epochs.look()
    yield lambda: epochs.begin("restored", declared=True)
    Epoch.objects.all().delete()
    epochs.look()


def test_a_step_that_a_move_adds_to_an_order_older_than_the_epoch_looks_before_it_acts(sas, version, new_epoch):
    version(1, A, PAID)
    run = sas.start("moved")
    new_epoch()
    version(2, A, PAID, X)
    move(run)
    added = kit.step(run.key, "x")
    assert (added.attempt, added.effect) == (ATTEMPTS_PER_EPOCH, "unknown")
    sas.assert_healthy()
    run.signal("paid")
    sas.run()
    run.assert_state("Processed")
    assert toy.GAMMA.performed[-1].look_first
    sas.assert_healthy()


@pytest.mark.parametrize("graph", [False, True])
def test_of_two_branches_that_are_due_the_one_that_comes_later_in_the_new_version_waits(sas, version, new_epoch, graph):
    version(1, *plan(parallel(A, B), C))
    [key] = kit.waiting(1, "moved")
    new_epoch()
    version(2, *(plan(A, B, parallel(C, X)) if graph else (A, B, C)))

    assert moving.move(key, by="olga", reason="new law") == "Pending"

    assert [kit.step(key, name).not_before is not None for name in "abc"] == [True, False, False]
    kit.healthy()
    sas.run()
    assert (sas.performed[:2], set(sas.performed[2:])) == (["a", "b"], {"c", "x"} if graph else {"c"})
    assert kit.state(key) == "Processed"
    kit.healthy()
