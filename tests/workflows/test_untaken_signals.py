"""Signals that tell of an effect and that no step has taken: an undo hears of them, also for a step that has not begun."""

from __future__ import annotations

import pytest

from supervision import PermanentFailure
from supervision.operations import previews
from tests.support import toy
from tests.workflows.conftest import ALPHA, BETA


@pytest.fixture
def evidence(monkeypatch):
    """The beta agent may wait for `told` and `asked`; the first one is evidence of an effect."""
    monkeypatch.setattr(toy.BETA, "signals", ("told", "asked"), raising=False)
    monkeypatch.setattr(toy.BETA, "evidence", ("told",), raising=False)


@pytest.fixture
def stopped(sas, flow, evidence):
    """A run in Error before the step of the beta agent."""

    def refuses(request):
        raise PermanentFailure("no")

    toy.ALPHA.on_perform = refuses
    flow(ALPHA, BETA)
    return sas.start("waiting")


def test_an_undo_hears_of_evidence_that_no_step_has_taken(sas, stopped):
    heard = []

    def undo(request):
        heard.append((request.perform_key, request.performed, request.untaken("told"), request.untaken("asked")))
        return {}

    toy.BETA.on_compensate = undo
    for number in (1, 2):
        stopped.signal("told", {"n": number})
    planned = [(one.name, one.direction, one.action) for one in previews.plan(stopped.key, "cancel").steps]
    assert ("beta-step", "undo", "run") in planned

    stopped.cancel()
    sas.run()

    stopped.assert_state("Cancelled")
    assert heard == [(f"{stopped.key}:beta-step:do:1", None, [{"n": 1}, {"n": 2}], [])]
    sas.assert_healthy()


def test_a_signal_that_is_no_evidence_lets_an_untouched_step_end(sas, stopped):
    stopped.signal("asked")
    stopped.cancel()

    stopped.assert_state("Cancelled")
    assert "undo:beta-step" not in stopped.steps
