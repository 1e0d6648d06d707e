"""The fixture `sas` that applications test their workflows with: work, time, and everything that goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta

import pytest

from sasproject.roles import ROOT
from supervision import Intention, OutcomeUnknown, PermanentFailure, TransientFailure, WaitForSignal, Workflow
from supervision.agent import WAIT, WaitAgent, registered
from supervision.errors import UnreadableSubmission
from supervision.models import Effect, StrayReply
from supervision.store.bounds import searching
from supervision.workflow import _newest, _workflows
from tests.support import toy

STEPS = ["alpha-step", "beta-step", "gamma-step"]


@pytest.fixture(autouse=True)
def _toys(sas):
    toy.reset()


def test_a_run_is_performed_to_its_end(sas):
    run = sas.start("toy", {"n": 1})

    run.assert_state("Processed")
    assert sas.performed == STEPS
    assert run.steps == dict.fromkeys(STEPS, "Processed")
    assert run.results == {"alpha-step": {"by": "alpha"}, "beta-step": {"by": "beta"}, "gamma-step": {"by": "gamma"}}
    assert run.alerts == []
    sas.assert_healthy()


def test_a_workflow_that_is_not_registered_is_refused_at_once(sas):
    with pytest.raises(UnreadableSubmission, match="no workflow named 'toi' is registered, did you mean 'toy'"):
        sas.start("toi")


def test_an_operator_completes_a_step_by_hand_and_goes_back(sas):
    sas.fake("beta-step", raises=PermanentFailure("refused"), times=1)
    run = sas.start("toy", {"n": 1})
    run.complete({"by": "hand"})
    sas.run()
    run.assert_state("Processed")
    assert run.results["beta-step"] == {"by": "hand"}

    sas.fake("gamma-step", raises=PermanentFailure("refused"), times=1)
    run = sas.start("toy", {"n": 1})
    run.resume_from("beta-step")
    sas.run()
    run.assert_state("Processed")
    assert sas.undone == ["beta-step"]


def test_without_settings_the_fixture_says_what_to_set(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it(sas):\n    pass\n")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "DJANGO"))}
    env["PYTHONPATH"] = str(ROOT)
    options = ["-p", "supervision.testkit.plugin", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", os.devnull]
    command = [sys.executable, "-m", "pytest", *options, "test_it.py"]
    said = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)

    assert said.returncode == pytest.ExitCode.USAGE_ERROR
    assert "the fixture `sas` needs Django's settings: set DJANGO_SETTINGS_MODULE" in said.stdout + said.stderr
    assert "Traceback" not in said.stdout + said.stderr


def test_a_submission_waits_until_the_test_lets_it_run(sas):
    run = sas.submit("toy", {"n": 1}, session_key="s")

    assert (run.state, sas.performed) == ("Pending", [])
    sas.run()
    run.assert_state("Processed")


def test_time_brings_each_attempt_at_its_moment(sas):
    sas.fake("beta-step", raises=TransientFailure("busy"), times=2)
    run = sas.start("toy", {"n": 1})
    assert sas.performed == ["alpha-step", "beta-step"]

    sas.advance(timedelta(milliseconds=1))
    assert sas.performed == ["alpha-step", "beta-step"], "the wait is not over"
    sas.advance("1m")

    run.assert_state("Processed")
    assert sas.performed == ["alpha-step", *["beta-step"] * 3, "gamma-step"]


def test_a_slow_machine_changes_nothing(sas, monkeypatch):
    monkeypatch.setattr(searching, "SLOW_SECONDS", -1.0)  # each search for work counts as slow
    monkeypatch.setattr(searching, "SHARE", 1e-6)
    monkeypatch.setattr(searching, "WAIT_SECONDS", 600.0)  # for so long the next ones would begin near the newest row
    sas.fake("beta-step", raises=TransientFailure("busy"), times=1)
    sas.kill("beta-step")
    run = sas.start("toy", {"n": 1})

    sas.advance("1h")

    run.assert_state("Processed")


def test_a_refusal_undoes_what_was_done_in_reverse_order(sas):
    sas.fake("gamma-step", raises=PermanentFailure("no"))
    sas.fake("undo:beta-step", returns={"undone": True})

    run = sas.start("toy-undo", {"n": 1})

    run.assert_state("Cancelled")
    assert sas.undone == ["beta-step", "alpha-step"]
    assert [len(agent.undone) for agent in (toy.ALPHA, toy.BETA)] == [1, 0], "a fake answers instead of the agent"


def test_fakes_answer_calls_of_their_step_and_the_last_one_set_goes_first(sas):
    sas.fake("alpha-step", returns={"fake": 1})
    sas.fake("alpha-step", does=lambda request: {"n": request.payload["n"]}, times=1)

    first, second = sas.start("toy", {"n": 7}), sas.start("toy", {"n": 8})

    assert [run.results["alpha-step"] for run in (first, second)] == [{"n": 7}, {"fake": 1}]
    assert toy.ALPHA.performed == []


def test_a_faked_step_writes_nothing_to_the_ledger(sas, monkeypatch):
    opening = lambda agent, request: Intention("open", request.idempotency_key, "alpha") if agent is toy.ALPHA else None  # noqa: E731
    monkeypatch.setattr(toy.ToyAgent, "opens_with", opening, raising=False)
    sas.start("toy", {"n": 1})
    assert Effect.objects.count() == 1

    sas.fake("alpha-step", times=1)
    sas.start("toy", {"n": 1})
    assert Effect.objects.count() == 1

    sas.start("toy", {"n": 1})
    assert Effect.objects.count() == 2


def test_a_fake_of_an_unknown_step_names_the_one_that_was_meant(sas):
    with pytest.raises(ValueError, match=r"no registered workflow has a step 'alfa-step', did you mean 'alpha-step'\?"):
        sas.fake("alfa-step")


@pytest.mark.parametrize(
    ("at", "left", "calls"),
    [
        ("submit.before_commit", None, 1),
        ("submit.after_commit", "Pending", 1),
        ("agent.after_start", "Processing", 1),
        ("agent.before_call", "Processing", 1),
        ("agent.after_effect", "Processing", 2),
        ("agent.after_finish", "Processed", 1),
    ],
)
def test_a_process_that_is_killed_loses_nothing_and_repeats_with_the_same_key(sas, at, left, calls):
    keys = []
    sas.fake("beta-step", does=lambda request: keys.append(request.idempotency_key) or {})
    sas.kill("" if at.startswith("submit") else "beta-step", at)

    run = sas.start("toy", {"n": 1})
    assert run.steps.get("beta-step") == left
    sas.advance("10m")

    run.assert_state("Processed")
    assert (len(keys), len(set(keys))) == (calls, 1)
    sas.assert_healthy()


def test_a_process_that_is_killed_during_an_undo_repeats_it(sas):
    sas.fake("beta-step", raises=PermanentFailure("no"))
    sas.kill("undo:alpha-step")

    run = sas.start("toy-undo", {"n": 1})
    assert run.state == "Compensating"
    sas.advance("10m")

    run.assert_state("Cancelled")
    assert sas.undone == ["alpha-step", "alpha-step"]


def test_the_scheduler_can_be_killed_with_a_claim_in_its_hands(sas):
    sas.fake("alpha-step", raises=TransientFailure("busy"), times=1)
    sas.kill("alpha-step", "scheduler.after_claim")
    run = sas.start("toy", {"n": 1})

    sas.advance("2s")
    assert (run.steps["alpha-step"], sas.performed) == ("Processing", ["alpha-step"])
    sas.advance("10m")

    run.assert_state("Processed")


@pytest.mark.parametrize("supervisors", [1, 2])
def test_a_supervisor_can_be_killed(sas, supervisors):
    sas.supervisors = supervisors
    sas.kill("beta-step")
    sas.kill(at="supervisor.before_commit")

    run = sas.start("toy", {"n": 1})
    sas.advance("10m")

    run.assert_state("Processed")
    sas.assert_healthy()


def test_an_unknown_failpoint_is_refused(sas):
    with pytest.raises(ValueError, match=r"no failpoint is named 'agent.during'; known: .*agent.after_effect"):
        sas.kill("beta-step", "agent.during")


def test_a_lost_message_is_sent_again(sas):
    sas.lose_message("beta-step")
    run = sas.start("toy", {"n": 1})
    assert sas.performed == ["alpha-step"]

    sas.advance("5m")

    run.assert_state("Processed")
    assert sas.performed == STEPS


def test_an_answer_that_comes_late_changes_nothing(sas):
    answers = iter([{"answer": "late"}, {"answer": "in time"}])
    sas.fake("beta-step", does=lambda request: next(answers))
    sas.answer_late("beta-step")

    run = sas.start("toy", {"n": 1})
    sas.advance("10m")

    run.assert_state("Processed")
    assert run.results["beta-step"] == {"answer": "in time"}
    assert StrayReply.objects.count() == 1
    sas.assert_healthy()


def test_two_supervisors_recover_a_step_once(sas):
    sas.supervisors = 2
    assert len(sas.sweep()) == 2
    sas.kill("beta-step")
    run = sas.start("toy", {"n": 1})

    sas.advance("29s")
    assert sas.performed == ["alpha-step", "beta-step"]
    sas.advance("1m")

    run.assert_state("Processed")
    assert sas.performed == ["alpha-step", "beta-step", "beta-step", "gamma-step"]


def test_a_wrong_state_is_told_with_steps_and_history(sas):
    sas.fake("beta-step", raises=PermanentFailure("the card is stolen"))
    run = sas.start("toy", {"n": 1})

    with pytest.raises(AssertionError) as told:
        run.assert_state("Processed")

    text = str(told.value)
    assert "is Error, expected Processed" in text
    assert "  beta-step: Error  the card is stolen" in text
    assert "alpha-step: Processed" in text.partition("history:")[2]
    assert run.alerts == ["error"]


def test_an_unknown_outcome_stays_unknown(sas):
    sas.fake("beta-step", raises=OutcomeUnknown("no answer"), times=1)
    run = sas.start("toy", {"n": 1})
    sas.advance("10m")

    run.assert_state("Processed")


def test_a_time_is_read_or_refused(sas):
    with pytest.raises(ValueError, match="expected a time such as 90s, 15m or 3d, got '3 weeks'"):
        sas.advance("3 weeks")


def test_what_a_test_asked_for_has_to_happen(sas):
    sas.kill("gamma-step")
    sas.lose_message("beta-step")
    sas.answer_late("alpha-step")

    with pytest.raises(AssertionError, match=r"kill\('gamma-step', 'agent.after_effect'\), lose_message\('beta-step'\), answer_late"):
        sas.assert_nothing_left()

    sas.start("toy", {"n": 1})
    sas.advance("1h")
    sas.assert_nothing_left()


class TestDefinitions:
    """`sas.definitions` compares the registered workflows with a file under version control."""

    @pytest.fixture
    def kept(self, sas, tmp_path):
        file = tmp_path / "workflows.json"
        sas._record = True
        sas.definitions(file)
        sas._record = False
        return file

    def test_the_recorded_file_agrees(self, sas, kept):
        sas.definitions(kept)

        assert "toy 1" in json.loads(kept.read_text())

    def test_a_changed_definition_without_a_new_version_is_told(self, sas, kept, monkeypatch):
        monkeypatch.setitem(_workflows, ("toy", 1), Workflow("toy", toy.steps()[:2], intake=toy.INTAKE))

        with pytest.raises(AssertionError, match=r"workflow toy 1: step 3 \(gamma-step\) .* is missing .*\ngive .* a new version"):
            sas.definitions(kept)

    def test_a_new_version_has_to_be_recorded(self, sas, kept, monkeypatch):
        monkeypatch.setitem(_workflows, ("toy", 2), Workflow("toy", toy.steps()[:2], intake=toy.INTAKE, version=2))

        with pytest.raises(AssertionError, match="toy 2; run pytest with --record-workflows"):
            sas.definitions(kept)
        sas._record = True
        sas.definitions(kept)
        assert json.loads(kept.read_text())["toy 2"]["version"] == 2

    def test_a_version_that_is_gone_is_told(self, sas, kept, monkeypatch):
        monkeypatch.delitem(_workflows, ("toy-five", 1))

        with pytest.raises(AssertionError, match="not registered: toy-five 1"):
            sas.definitions(kept)


class TestHints:
    """What a failed assertion says about a run to which something has not happened yet."""

    def failed(self, run):
        with pytest.raises(AssertionError) as problem:
            run.assert_state("Cancelled")
        assert str(problem.value).splitlines()[1] in repr(run)
        return str(problem.value).splitlines()[1]

    def test_a_submission_that_nothing_has_taken_up(self, sas):
        assert self.failed(sas.submit("toy", {"n": 1})) == "it is only submitted: sas.run() is missing"

    def test_a_call_that_has_not_ended(self, sas):
        sas.kill("beta-step")
        assert self.failed(sas.start("toy", {"n": 1})).startswith("beta-step is still running: its call has not ended, or its process")

    def test_a_signal_that_came_and_a_run_that_ended(self, sas, monkeypatch):
        monkeypatch.setitem(registered, WAIT, WaitAgent())
        workflow = Workflow("hints", (WaitForSignal("paid"), *toy.steps()[:1]))
        monkeypatch.setitem(_workflows, ("hints", 1), workflow)
        monkeypatch.setitem(_newest, "hints", workflow)
        run = sas.start("hints")
        assert run._hints() == []
        run.signal("paid")
        assert self.failed(run) == "the signal paid has come: sas.run() is missing"
        sas.run()
        run.assert_state("Processed")
        assert run._hints() == []
