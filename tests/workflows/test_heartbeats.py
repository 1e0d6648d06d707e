"""Long work: a heartbeat extends the claim up to the step's longest time, and an agent that does not beat is recovered."""

from __future__ import annotations

import os
import signal
import sys
import threading
from datetime import timedelta
from functools import partial

import pytest
from django.db import connection
from django.db.models.functions import Now

from chaos.look import until
from supervision import OutcomeUnknown, Step, TransientFailure, Workflow, testing
from supervision.agent import StepRequest
from supervision.errors import DefinitionError
from supervision.execution import agents_process, extension
from supervision.governance import circuit_breaker
from supervision.models import Resource, Run, Slot, StepState, StrayReply
from supervision.operations import operator_verbs
from supervision.plans import registry
from supervision.recovery import supervisor
from supervision.retry import RetryPolicy
from supervision.store.runs import attempts
from tests.engine.kit import ROOT
from tests.support import forked, toy

about = partial(pytest.approx, abs=3)  # seconds; a busy machine takes its time
BUDGET, LONGEST = timedelta(seconds=30), timedelta(seconds=100)


@pytest.fixture(autouse=True)
def every_beat_is_written(monkeypatch):
    monkeypatch.setattr(extension, "SHARE", 0.0)


def long(**fields):
    facts = {"complete_within": BUDGET, "longest": LONGEST, "retry": RetryPolicy(threshold=3), **fields}
    return Step("alpha-step", agent="alpha", **facts)


def beats(*pauses, told=None):
    """An agent that lets so many seconds pass and a supervisor sweep, then beats, for each pause; notes what is left."""

    def work(request):
        for seconds in pauses:
            testing.let_pass(seconds)
            supervisor.sweep_once()
            wanted = request.heartbeat()
            if told is not None:
                told.append((round(request.remaining), wanted))

    return work


def step():
    return StepState.objects.get(name="alpha-step", direction="do")


def test_a_heartbeat_extends_the_claim_by_the_steps_budget(sas, flow):
    flow(long())
    told = []
    toy.ALPHA.on_perform = beats(20, 20, 20, told=told)
    run = sas.start("waiting")

    assert (run.state, sas.performed, told) == ("Processed", ["alpha-step"], [(about(30), True)] * 3)
    assert (step().attempt, step().failure_count) == (1, 0)
    sas.assert_healthy()


def test_the_longest_time_ends_every_extension_and_the_supervisor_takes_the_step_back(sas, flow):
    flow(long(complete_within=timedelta(seconds=300), longest=timedelta(seconds=600)))
    told, near = [], partial(pytest.approx, abs=40)
    toy.ALPHA.on_perform = beats(200, 200, 150, 60, told=told)
    run = sas.start("waiting")

    assert told == [(near(300), True), (near(200), True), (near(50), True)]
    assert (step().process_state, step().failure_count, run.state) == ("Pending", 1, "Processing")
    stray = StrayReply.objects.get()
    assert "no longer ours" in stray.detail

    toy.ALPHA.on_perform = beats(200, 200)
    sas.advance("5m")
    assert (run.state, step().attempt) == ("Processed", 2)
    sas.assert_healthy()


@pytest.mark.parametrize("swept", [True, False])
def test_an_agent_whose_claim_is_lost_is_told_and_its_answer_changes_nothing(sas, flow, swept):
    flow(long())
    raised = []

    def work(request):
        testing.let_pass(31)
        if swept:
            supervisor.sweep_once()
        try:
            request.heartbeat()
        except TransientFailure as error:
            raised.append(str(error))
        return {"late": True}

    toy.ALPHA.on_perform = work
    sas.start("waiting")

    assert raised == ["this claim is no longer ours"]
    supervisor.sweep_once()
    assert (step().process_state, step().result) == ("Pending", None)
    assert StrayReply.objects.count() == 1


def test_a_heartbeat_is_capped_by_the_time_that_the_order_has_left(sas, flow):
    flow(long(longest=timedelta(seconds=45)), complete_within=timedelta(seconds=50))
    told = []

    def work(request):
        Run.objects.update(complete_by=Now() + timedelta(seconds=33))
        beats(10, told=told)(request)

    toy.ALPHA.on_perform = work
    sas.start("waiting")

    assert told == [(about(23), True)]


def test_the_deadline_of_an_attempt_never_moves_back(sas, flow):
    flow(long())

    def work(request):
        StepState.objects.update(complete_by=Now() + timedelta(seconds=90))  # more than this code's budget
        request.heartbeat()
        assert round(request.remaining) == about(90)

    toy.ALPHA.on_perform = work
    assert sas.start("waiting").state == "Processed"


def cancel():
    operator_verbs.cancel(Run.objects.get().key, by="ada", reason="changed my mind")


def test_the_agent_of_a_cancelled_order_is_told_and_may_stop(sas, flow):
    flow(long())
    told = []

    def work(request):
        told.append(request.heartbeat())
        cancel()
        told.append(request.heartbeat())
        raise OutcomeUnknown("stopped, because the order is being undone")

    toy.ALPHA.on_perform = work
    run = sas.start("waiting")
    sas.advance("5m")

    assert (told, run.state, sas.performed, sas.undone) == ([True, False], "Cancelled", ["alpha-step"], ["alpha-step"])


def test_a_step_without_a_longest_time_takes_no_heartbeat_and_says_what_to_write(sas, flow):
    flow(long(longest=None))
    raised = []

    def work(request):
        try:
            request.heartbeat()
        except DefinitionError as error:
            raised.append(str(error))

    toy.ALPHA.on_perform = work
    assert sas.start("waiting").state == "Processed"
    assert raised == ["step 'alpha-step' takes no heartbeat: give its Step the longest time that it may take (`longest`)"]


def test_a_request_made_by_hand_takes_heartbeats(sas):
    request = StepRequest(
        run_id=1,
        run_key="k",
        step="s",
        payload={},
        idempotency_key="k",
        perform_key="k",
        attempt=1,
        generation=1,
        deadline=0.0,
    )
    assert request.heartbeat()


def test_an_undo_may_beat(sas, flow):
    flow(long(), toy.steps()[1])
    told = []
    toy.ALPHA.on_compensate = beats(20, 20, told=told)
    toy.BETA.on_perform = lambda request: cancel()
    run = sas.start("waiting")
    sas.advance("5m")

    assert (run.state, told) == ("Cancelled", [(about(30), True)] * 2)


def test_heartbeats_are_written_ten_times_in_a_budget_at_most(sas, flow, monkeypatch):
    monkeypatch.setattr(extension, "SHARE", 0.1)
    flow(long())
    written = []
    extend = attempts.extend
    monkeypatch.setattr(attempts, "extend", lambda calls: written.append(len(calls)) or extend(calls))
    toy.ALPHA.on_perform = lambda request: [request.heartbeat() for _ in range(1000)] and None
    assert sas.start("waiting").state == "Processed"
    assert written == [1]


def test_of_many_that_beat_at_once_only_those_whose_claim_is_lost_are_told_so(sas, flow, monkeypatch):
    flow(long())
    together, sizes, told = threading.Barrier(9, timeout=20), [], {}
    commit = agents_process.notes.commit
    monkeypatch.setattr(agents_process.notes, "commit", lambda batch: sizes.append(len(batch)) or commit(batch))

    def work(request):
        if together.wait() == 0:
            StepState.objects.filter(run__payload__n__lt=3).update(complete_by=Now() - timedelta(seconds=1))
        together.wait()
        try:
            request.heartbeat()
            told[request.payload["n"]] = round(request.remaining)
        except TransientFailure as error:
            told[request.payload["n"]] = str(error)
            raise

    toy.ALPHA.on_perform = work
    runs = [sas.submit("waiting", {"n": n}) for n in range(9)]
    sas.run()

    assert told == {n: "this claim is no longer ours" if n < 3 else about(30) for n in range(9)}
    assert sum(sizes) == 9
    assert [run.state for run in runs[3:]] == ["Processed"] * 6
    assert StrayReply.objects.count() == 3


# ------------------------------------------------------------------------------------------------------- slots


def test_a_slot_lasts_as_long_as_the_claim_that_is_extended(sas, flow):
    flow(long())
    Resource.objects.create(name="alpha", capacity=1)
    circuit_breaker.forget()
    calls, both = [], []

    def work(request):
        calls.append(request.run_key)
        if len(calls) == 1:
            for _ in range(3):
                testing.let_pass(20)
                request.heartbeat()
                assert request.remaining > 25
                assert Slot.objects.filter(until__gt=Now() + timedelta(seconds=29)).count() == 1
                testing.run_until_idle()  # the other order finds no slot
                both.append(len(calls))

    toy.ALPHA.on_perform = work
    sas.submit("waiting")
    sas.submit("waiting")
    sas.run()
    sas.advance("1m")

    assert both == [1, 1, 1]
    assert (len(calls), len(set(calls)), Slot.objects.count()) == (2, 2, 0)
    assert set(StepState.objects.values_list("process_state", "failure_count")) == {("Processed", 0)}


def test_a_call_whose_slot_was_given_away_is_not_extended_and_its_effect_is_unknown(sas, flow):
    flow(long())
    Resource.objects.create(name="alpha", capacity=1)
    circuit_breaker.forget()

    def work(request):
        Slot.objects.update(until=Now() + timedelta(seconds=0.9))  # in the grace, after the call's own time
        request.heartbeat()

    toy.ALPHA.on_perform = work
    sas.start("waiting")

    assert (step().process_state, step().effect) == ("Pending", "unknown")
    assert "its slot at alpha was not extended in time" in step().last_error


# ------------------------------------------------------------------------------------------------- definitions


@pytest.mark.parametrize("longest", [timedelta(seconds=29), timedelta(days=2)])
def test_a_longest_time_outside_of_budget_and_workflow_is_refused(longest):
    with pytest.raises(DefinitionError, match="step 'alpha-step': longest must lie between its complete_within and its workflow's"):
        Workflow("odd", (long(longest=longest),))


def test_the_longest_time_is_no_part_of_the_fingerprint(sas):
    with_it, without = (Workflow("w", (long(longest=longest),)) for longest in (LONGEST, None))
    assert registry.fingerprint(registry.definition_of(with_it)) == registry.fingerprint(registry.definition_of(without))


# --------------------------------------------------------------------------------------------- real processes


def test_a_frozen_agent_that_does_not_beat_is_recovered_and_hears_of_it_when_it_wakes(sas, tmp_path, monkeypatch):
    """Two workers, each a process; the step works until a file appears, and beats ten times a second."""
    notes, done = tmp_path / "notes", tmp_path / "done"
    notes.touch()
    environ = {**os.environ, "LOG_LEVEL": "CRITICAL"}

    def worker():
        command = [sys.executable, "-m", "tests.workflows.beating", str(connection.settings_dict["NAME"]), str(notes), str(done)]
        return forked.Popen(command, cwd=ROOT, env=environ)

    def ends():
        return StepState.objects.values_list("attempt", "complete_by").get(name="long")

    def lines(word):
        return [line for line in notes.read_text().splitlines() if line.startswith(word)]

    first = worker()
    try:
        until(lambda: lines("ready"), within=30)
        key = testing.submit("beating", {"n": 1})
        until(lambda: len(lines("beat 1")) > 30, within=30)  # three times its budget of a second
        assert (ends()[0], StepState.objects.get(name="long").failure_count) == (1, 0)

        os.kill(first.pid, signal.SIGSTOP)
        second = worker()
        try:
            until(lambda: lines("beat 2"), within=30)
            os.kill(first.pid, signal.SIGCONT)
            until(lambda: lines("lost 1"), within=30)
            done.touch()
            until(lambda: Run.objects.filter(key=key, process_state="Processed").exists(), within=30)
        finally:
            second.kill()
            second.wait()
    finally:
        os.kill(first.pid, signal.SIGCONT)
        first.kill()
        first.wait()

    row = StepState.objects.get(name="long")
    assert (row.attempt, row.result, row.complete_by) == (2, {"attempt": 2}, None)
    assert StrayReply.objects.filter(attempt=1).count() == 1
    sas.assert_healthy()
