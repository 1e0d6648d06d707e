"""The log names each run that ends or goes to Error, runs of one commit on one line, and no steps on the way."""

from __future__ import annotations

import logging

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from supervision import PermanentFailure, Step, parallel, plan
from supervision.store import run_verbs
from tests.support import toy
from tests.workflows.conftest import ALPHA, BETA


@pytest.fixture
def ends(caplog):
    """The lines about runs so far."""
    caplog.set_level(logging.INFO, logger="supervision")
    return lambda: [(it.levelname, it.getMessage()) for it in caplog.records if it.name == run_verbs.__name__]


def line(run, state):
    return ("INFO", f"run {run.key} is {state}")


def branching():
    steps = (Step(f"{name}-step", agent=name, retry=toy.RETRY) for name in ("alpha", "beta", "gamma"))
    first, left, right = steps
    return plan(first, parallel(left, right))


@pytest.mark.parametrize("shape", [lambda: (ALPHA, BETA), branching], ids=["a list", "branches"])
def test_each_run_that_ends_is_named_once(sas, flow, ends, shape):
    flow(*shape())
    runs = [sas.submit("waiting") for _ in range(3)]
    sas.run()
    told = " ".join(message for _, message in ends())
    assert [told.count(run.key) for run in runs] == [1, 1, 1]
    assert {level for level, _ in ends()} == {"INFO"}


def test_runs_that_end_in_one_commit_share_a_line(sas, flow, ends):
    flow(ALPHA, BETA)
    runs = [sas.submit("waiting") for _ in range(3)]
    sas.run()
    ((_, told),) = ends()
    assert told.startswith("3 runs (")
    assert told.endswith(") are Processed")
    assert all(run.key in told for run in runs)


@pytest.mark.parametrize("shape", [lambda: (ALPHA, BETA), branching], ids=["a list", "branches"])
def test_a_run_in_error_is_one_line_and_its_end_another(sas, flow, ends, shape):
    flow(*shape())
    sas.fake("beta-step", raises=PermanentFailure("no"))
    run = sas.start("waiting")
    assert ends() == [line(run, "Error")]
    run.compensate()
    sas.run()
    assert ends() == [line(run, "Error"), line(run, "Cancelled")]


def test_a_run_whose_time_is_over_and_one_that_is_skipped_to_its_end_are_lines(sas, flow, ends):
    flow(ALPHA, BETA)
    sas.fake("beta-step", raises=PermanentFailure("no"))
    run = sas.start("waiting")
    run.skip()
    assert ends() == [line(run, "Error"), line(run, "Processed")]


def test_a_change_that_is_rolled_back_is_no_line(sas, flow, ends, monkeypatch):
    flow(ALPHA, BETA)
    sas.fake("beta-step", raises=PermanentFailure("no"))
    run = sas.start("waiting")
    monkeypatch.setattr(run_verbs, "_release_sessions", _fails)
    with pytest.raises(RuntimeError):
        run.cancel()
    assert ends() == [line(run, "Error")]


def _fails(changed):
    raise RuntimeError("later in the same transaction")


@pytest.mark.parametrize("level", [logging.INFO, logging.ERROR])
def test_the_lines_cost_no_statement(sas, flow, caplog, level):
    flow(ALPHA, BETA)
    sas.start("waiting")
    counts = []
    for chosen in (level, logging.CRITICAL):
        caplog.set_level(chosen, logger="supervision")
        with CaptureQueriesContext(connection) as made:
            sas.start("waiting").assert_state("Processed")
        counts.append(len(made))
    assert counts[0] == counts[1]
