"""Steps that run only if a condition says so, and definitions that are refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction

from supervision import Agent, AwaitSignal, Facts, PermanentFailure, Step, Timer, TransientFailure, WaitForSignal, Workflow, testing
from supervision.agent import registered
from supervision.errors import DefinitionError
from supervision.models import Alert
from supervision.store.records import MOST_RESULT_BYTES
from tests.support import toy
from tests.workflows.conftest import ALPHA, HOUR


def test_a_step_whose_condition_is_not_met_is_skipped_without_a_call_or_an_alert(sas, flow):
    gift = lambda facts: not facts.payload["gift"]  # noqa: E731
    flow(ALPHA, Step("invoice", agent="beta", when=gift), Step("gamma-step", agent="gamma"))
    with_one, without = sas.start("waiting", {"gift": False}), sas.start("waiting", {"gift": True})

    assert (with_one.state, without.state) == ("Processed", "Processed")
    assert (with_one.steps["invoice"], without.steps["invoice"]) == ("Processed", "Skipped")
    assert len(toy.BETA.performed) == 1
    assert Alert.objects.count() == 0
    assert any("invoice: Skipped  not needed: its condition is not met (inputs " in line for line in without.history)
    sas.assert_healthy()


def test_a_condition_is_asked_once_and_its_answer_is_kept(sas, flow):
    asked = []
    answers = iter([True, False])

    def once(facts: Facts) -> bool:
        asked.append(facts.results)
        return next(answers)

    flow(ALPHA, Step("invoice", agent="beta", when=once, reads=("alpha-step",), retry=toy.RETRY))
    sas.fake("invoice", raises=TransientFailure("busy"), times=1)
    run = sas.start("waiting")
    sas.advance("1m")
    run.assert_state("Processed")
    assert run.steps["invoice"] == "Processed"
    assert asked == [{"alpha-step": {"by": "alpha"}}]


def test_a_result_that_the_step_does_not_read_is_named_with_what_to_do(sas, flow):
    def careless(request):
        return {"of": request.results["alpha-step"]}

    flow(ALPHA, Step("beta-step", agent="beta", retry=toy.RETRY))
    sas.fake("beta-step", does=careless)
    run = sas.start("waiting")

    assert "no result of 'alpha-step': the step has to name it in `reads`" in testing.step(run.key, "beta-step").last_error


def test_a_condition_that_raises_stops_the_run_and_says_so(sas, flow):
    flow(ALPHA, Step("invoice", agent="beta", when=lambda facts: facts.payload["missing"]))
    run = sas.start("waiting")
    run.assert_state("Error")
    [alert] = Alert.objects.all()
    assert (alert.code, alert.message) == ("condition_failed", "its condition failed: KeyError: 'missing'")
    run.skip()
    run.assert_state("Processed")


def test_a_condition_that_leaves_a_block_open_stops_its_run_and_no_other(sas, flow):
    """What its thread did next would have gone into that block, and would never have been committed."""

    def forgetful(facts: Facts) -> bool:
        if facts.payload["forgets"]:
            transaction.atomic().__enter__()
        return True

    flow(ALPHA, Step("invoice", agent="beta", when=forgetful))
    left, good = sas.start("waiting", {"forgets": True}), sas.start("waiting", {"forgets": False})

    assert not connection.in_atomic_block
    assert (left.state, good.state) == ("Error", "Processed")
    assert "left a transaction open" in Alert.objects.get().message


def test_a_cohort_is_split_by_its_condition_and_the_last_step_may_be_left_out(sas, flow):
    flow(ALPHA, Step("invoice", agent="beta", when=lambda facts: facts.payload["n"] % 2))
    runs = [sas.submit("waiting", {"n": n}) for n in range(6)]
    sas.run()
    assert [run.state for run in runs] == ["Processed"] * 6
    assert [run.steps["invoice"] for run in runs] == ["Skipped", "Processed"] * 3
    assert sorted(request.payload["n"] for request in toy.BETA.performed) == [1, 3, 5]


def test_a_step_that_was_left_out_is_not_undone_and_gives_no_result(sas, flow):
    flow(
        ALPHA,
        Step("invoice", agent="beta", when=lambda facts: False),
        Step("gamma-step", agent="gamma", reads=("alpha-step", "invoice"), retry=toy.RETRY),
    )
    sas.fake("gamma-step", raises=PermanentFailure("no"))
    run = sas.start("waiting")
    run.compensate()
    sas.run()
    run.assert_state("Cancelled")
    assert sas.undone == ["alpha-step"]


def test_definitions_that_cannot_wait_are_refused_with_the_step():
    with pytest.raises(DefinitionError, match=r"step 'a b': a signal's name has 1 to 100 letters, digits, -, _ and \., got 'a b'"):
        WaitForSignal("a b")
    with pytest.raises(DefinitionError, match="step 'paid': within must be positive"):
        WaitForSignal("paid", within=timedelta(0))
    for fields in ({}, {"lasts": HOUR, "until": lambda facts: datetime.now(UTC)}):
        with pytest.raises(DefinitionError, match="step 't': a timer has either lasts or until"):
            Timer("t", **fields)
    with pytest.raises(DefinitionError, match="step 't': lasts must be positive"):
        Timer("t", lasts=timedelta(0))
    with pytest.raises(DefinitionError, match="give one of them"):
        AwaitSignal("x")
    with pytest.raises(DefinitionError, match="step 'b' reads 'c', which is no earlier step"):
        Workflow("w", (Step("a", agent="alpha"), Step("b", agent="alpha", reads=("a", "c"))))


class Clerk(Agent):
    """Works in this database only."""

    name, transactional, undoable = "clerk", True, False

    def perform_many(self, requests):
        return [{"x": "y" * MOST_RESULT_BYTES} for _ in requests]


@pytest.mark.parametrize("agent", ["alpha", "clerk"])
def test_a_result_that_is_too_large_is_not_kept_and_the_step_ends_in_error(sas, flow, monkeypatch, agent):
    monkeypatch.setitem(registered, "clerk", Clerk())
    toy.ALPHA.on_perform = lambda request: {"x": "y" * MOST_RESULT_BYTES}
    flow(Step("big", agent=agent, retry=toy.RETRY))
    run = sas.start("waiting")
    sas.advance("10m")
    run.assert_state("Error")
    [alert] = Alert.objects.filter(kind="error")
    assert "the result has 65,545 bytes of JSON; at most 65,536 are kept" in alert.message
    assert testing.step(run.key, "big").effect == ("unknown" if agent == "alpha" else "none")
