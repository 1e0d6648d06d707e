"""Hazard 13: a parent is archived while a child that it does not await still runs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from supervision import ChildRun
from supervision.models import ArchivedRun, Child, Run, Signal
from supervision.operations import archive
from tests.support import toy
from tests.workflows.conftest import ALPHA, BETA, flow, paid
from tests.workflows.test_children import child_of, family

__all__ = ["family", "flow"]

FREE = ChildRun("pack", workflow="packing", retry=toy.RETRY, waits=False)


def archived() -> int:
    return sum(moved.runs for moved in archive.batches(timedelta(0)))


@pytest.mark.parametrize("end", ["Processed", "Cancelled"])
def test_a_child_that_runs_on_ends_as_usual_after_its_parent_was_archived(sas, family, end):
    family(ALPHA, FREE, child=(paid(), BETA))
    run = sas.start("waiting")
    child = child_of(run)
    run.assert_state("Processed")
    child.assert_state("Processing")

    assert archived() == 1
    assert list(ArchivedRun.objects.values_list("key", flat=True)) == [run.key]
    assert list(Run.objects.values_list("key", flat=True)) == [child.key]
    sas.assert_healthy()

    if end == "Processed":
        child.signal("paid")
    else:
        child.cancel()
    sas.run()
    sas.advance("2h")
    child.assert_state(end)
    assert not Signal.objects.filter(run_key=run.key).exists()  # the archived parent is told of nothing
    sas.assert_healthy()

    assert archived() == 1
    assert set(ArchivedRun.objects.values_list("key", flat=True)) == {run.key, child.key}
    assert not Child.objects.exists()
    assert not Run.objects.exists()
    sas.assert_healthy()
