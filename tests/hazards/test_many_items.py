"""Hazard 7: a group of 10,000 items (1,000 in the suite) that are all equal. Each item is one run, is done once, and counts once."""

from __future__ import annotations

from collections import Counter

import pytest

from supervision import PermanentFailure
from supervision.models import Child, Run, StepState
from supervision.operations import operator_verbs
from tests.workflows.conftest import flow
from tests.workflows.test_children import family
from tests.workflows.test_for_each import each, item

__all__ = ["family", "flow"]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("most", [1_000, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_many_equal_items_are_each_done_once_and_one_that_fails_is_settled_alone(sas, family, most):
    family(each(at_once=500))
    calls, broken = Counter[int](), [777]

    def work(request):
        calls[request.payload["index"]] += 1
        if request.payload["index"] in broken:
            raise PermanentFailure("too heavy")
        return {"n": request.payload["index"]}

    sas.fake("beta-step", does=work)
    run = sas.submit("waiting", {"items": ["same"] * most})
    sas.run(rounds=2_000)

    assert (run.state, item(run, 777).state) == ("Processing", "Error")
    assert Child.objects.filter(state="Processed").count() == most - 1
    broken.clear()
    operator_verbs.resubmit(item(run, 777).key, by="olga", reason="repaired")
    sas.run(rounds=2_000)

    run.assert_state("Processed")
    assert Run.objects.filter(parent_key=run.key, process_state="Processed").count() == most
    assert calls == {**dict.fromkeys(range(most), 1), 777: 2}
    result = StepState.objects.get(run__key=run.key, name="parcels").result
    assert result["items"] == most
    sas.assert_healthy()
