"""Runs that go back over a step that was skipped while its effect was unknown: it is undone, and then done anew under a new key."""

from __future__ import annotations

import pytest

from supervision import OnPermanent, OutcomeUnknown, PermanentFailure, RetryPolicy, Step
from supervision.agent import registered
from supervision.operations import operator_verbs, resuming
from tests.engine import kit
from tests.support import toy
from tests.workflows.test_moving import A, C, version
from tests.workflows.test_resuming_earlier import Letters, back, keys, refused

__all__ = ["version"]


@pytest.fixture
def skipped(sas, version):
    """Starts a run whose second step was skipped after its answer had been lost, and whose third step has failed."""

    def start(second, policy=OnPermanent.ERROR):
        version(1, A, second, C)
        sas.fake("c", raises=PermanentFailure("no"), times=1)
        sas.fake(second.name, raises=PermanentFailure("closed"), times=1)
        sas.fake(second.name, raises=OutcomeUnknown("no answer"), times=1)
        run = sas.start("moved")
        sas.advance("1h")
        if policy is OnPermanent.ERROR:
            operator_verbs.skip(run.key, by="olga", reason="r")
            sas.run()
        step = kit.step(run.key, second.name)
        assert (run.state, step.process_state, step.effect) == ("Error", "Skipped", "unknown")
        return run

    return start


@pytest.mark.parametrize("policy", [OnPermanent.ERROR, OnPermanent.SKIP])
@pytest.mark.parametrize("to", ["a", "b"])
def test_what_it_may_have_done_is_undone_before_it_is_done_anew(sas, skipped, policy, to):
    run = skipped(Step("b", agent="beta", retry=RetryPolicy(on_permanent=policy)), policy)
    booked = {f"{run.key}:b:do:1"}  # its answer was lost, but the work was done
    sas.fake("undo:b", does=lambda request: booked.difference_update(request.perform_keys))
    sas.fake("b", does=lambda request: booked.add(request.idempotency_key))
    assert "b" in [each.name for each in resuming.plan(run.key, to).steps if each.direction == "undo"]
    back(run, to)
    sas.run()
    run.assert_state("Processed")
    assert sas.undone[0] == "b"
    assert (run.steps["b"], keys(run)[1], booked) == ("Processed", "b:do:2", {f"{run.key}:b:do:2"})
    sas.assert_healthy()


def test_without_an_undo_the_run_only_goes_back_to_a_later_step(sas, skipped, monkeypatch):
    monkeypatch.setitem(registered, "letters", Letters())
    run = skipped(Step("letter", agent="letters", retry=toy.RETRY))
    words = "What letter did before it was skipped is not known, and the agent letters has no undo: go back to a later step."
    assert refused(run, "a") == refused(run, "letter") == words
    assert back(run, "c") == "Processing"
