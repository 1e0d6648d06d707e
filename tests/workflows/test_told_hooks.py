"""A workflow hears of signals and of results by hand in the transaction that keeps them, and may refuse them."""

from __future__ import annotations

import pytest

from supervision import PermanentFailure, WaitForSignal
from supervision.errors import Refused
from supervision.models import Signal, StepState
from supervision.operations import completing, operator_verbs
from supervision.signals.sending import NewSignal, Sent, send_all, send_signal
from supervision.testkit.run import Run
from tests.workflows.conftest import ALPHA, paid


def by_hand(run: Run, result: dict[str, object], **options: object) -> str:
    return completing.complete(run.key, by="olga", reason="by phone", result=result, **options)


def test_a_workflow_hears_of_each_signal_that_is_kept_for_its_steps_once(sas, flow):
    heard = []
    flow(paid(), ALPHA, on_signal=heard.append)
    run, early = sas.start("waiting"), sas.submit("waiting")
    sent = [NewSignal(run=key, name="paid", key="k", payload={"of": key}) for key in (run.key, early.key, run.key, "unknown")]
    assert send_all(sent) == [Sent.ACCEPTED, Sent.ACCEPTED, Sent.REPEATED, Sent.UNKNOWN_RUN]
    assert send_signal(run.key, "paid", {"of": run.key}, key="k") == Sent.REPEATED

    [told] = heard
    assert [(one.key, one.name, one.payload) for one in told] == [
        (run.key, "paid", {"of": run.key}), (early.key, "paid", {"of": early.key}),
    ]  # fmt: skip


def test_a_workflow_refuses_a_signal(sas, flow):
    def refuse(_signals: object) -> None:
        raise Refused("not so much", "too_much")

    flow(paid(), ALPHA, on_signal=refuse)
    run = sas.start("waiting")
    with pytest.raises(Refused, match="not so much"):
        send_signal(run.key, "paid", {})
    sas.run()
    run.assert_state("Processing")
    assert not Signal.objects.exists()


def test_a_workflow_hears_of_a_result_by_hand_and_of_an_undo_by_hand(sas, flow):
    heard = []
    flow(ALPHA, paid(), WaitForSignal("paid-again"), on_completed_by_hand=heard.append)
    sas.fake("undo:alpha-step", raises=PermanentFailure("gone"))
    run = sas.start("waiting", {"n": 1})
    by_hand(run, {"id": 7}, step="paid")
    operator_verbs.cancel(run.key, by="olga", reason="over")
    sas.run()
    by_hand(run, {"undone": True})
    sas.run()

    run.assert_state("Cancelled")
    assert [(one.key, one.payload, one.step, one.direction, one.result) for one in heard] == [
        (run.key, {"n": 1}, "paid", "do", {"id": 7}), (run.key, {"n": 1}, "alpha-step", "undo", {"undone": True}),
    ]  # fmt: skip


def test_a_workflow_refuses_a_result_by_hand(sas, flow):
    def refuse(_done: object) -> None:
        raise Refused("the amount is missing", "invalid_result")

    flow(ALPHA, paid(), on_completed_by_hand=refuse)
    run = sas.start("waiting")
    with pytest.raises(Refused, match="the amount is missing"):
        by_hand(run, {})
    run.assert_state("Processing")
    assert StepState.objects.get(run__key=run.key, name="paid").result is None
    operator_verbs.cancel(run.key, by="olga", reason="over")
    sas.run()
    run.assert_state("Cancelled")
