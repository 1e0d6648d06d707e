"""Real processes that are killed with SIGKILL while orders are in several branches at once, wait, fail and are cancelled."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from supervision import testing
from supervision.errors import Refused
from supervision.models import Run, Signal, StepState
from supervision.operations import operator_verbs
from supervision.signals.sending import NewSignal, send_all
from tests.engine import kit
from tests.support.shop import until
from tests.support.soak import sized
from tests.support.workers import registries_kept, two_workers

ORDERS, KILLS = 40, sized(4, 10)
FINAL = ("Processed", "Cancelled")


@pytest.fixture
def branching(sas):
    """The module of the workers, whose workflow is also known here, because a sender checks the signals' names."""
    sys.modules.pop("tests.workflows.branching", None)  # a second import registers again
    with registries_kept():
        yield import_module("tests.workflows.branching")


@pytest.mark.nightly
def test_branches_survive_kills_and_are_done_and_undone_in_their_order(sas, branching, tmp_path):
    keys = testing.submit_many(branching.NAME, [{"n": n} for n in range(ORDERS)])
    calls = tmp_path / "calls"
    calls.touch()
    deadlocks = kit.fetch("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    waiting, cancelled = list(enumerate(keys)), set()
    for kill in range(KILLS + 1):
        with two_workers("tests.workflows.branching", calls) as workers:
            size = len(waiting) // (KILLS - kill) if kill < KILLS else len(waiting)
            part, waiting = waiting[:size], waiting[size:]
            send_all([NewSignal(run=key, name="paid", key="k", payload={"n": n}) for n, key in part])
            for n, key in part:
                if n % 9 == 4:
                    cancelled |= cancel(key)
            if kill < KILLS:
                moved = begun()
                until(lambda moved=moved: begun() > moved + 3 or ended(), within=60, told=open_steps)
            else:
                until(ended, within=100, told=open_steps)
            assert [worker.poll() for worker in workers] == [None, None], "a worker has ended by itself"

    assert kit.fetch("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == deadlocks
    assert not Signal.objects.filter(
        taken_by__isnull=True, run_key__in=Run.objects.filter(process_state="Processed").values("key")
    ).exists()
    undone = {key for n, key in enumerate(keys) if branching.is_undone(n)} | cancelled
    lines = calls.read_text().split()
    for n, key in enumerate(keys):
        run = Run.objects.get(key=key)
        assert run.process_state == ("Cancelled" if key in undone else "Processed"), (n, run.process_state)
        mine = [line.removeprefix(f"{key}:") for line in lines if line.startswith(f"{key}:")]
        assert all(line.endswith(":1") for line in mine), "a step got a second key"
        check_order(branching.STEPS, mine)
    sas.assert_healthy()


def cancel(key: str) -> set[str]:
    try:
        operator_verbs.cancel(key, by="test", reason="no longer wanted")
    except Refused:
        return set()
    return {key}


def begun() -> int:
    """How many steps have had an attempt."""
    return StepState.objects.filter(attempt__gt=0).count()


def open_steps() -> list[tuple]:
    """The unfinished steps of the runs that have not ended."""
    rows = StepState.objects.exclude(run__process_state__in=FINAL).filter(process_state__in=("Pending", "Processing", "Error"))
    return list(rows.values_list("run_id", "name", "direction", "process_state", "attempt", "not_before", "complete_by", "last_error"))


def ended() -> bool:
    return Run.objects.filter(process_state__in=FINAL).count() == ORDERS


def check_order(steps, calls) -> None:
    """A step is called after those that it comes after, and undone before them; no step is called after an undo."""
    undos = [place for place, call in enumerate(calls) if ":undo:" in call]
    assert not any(":do:" in call for call in calls[min(undos, default=len(calls)) :])
    first = {call: place for place, call in reversed(list(enumerate(calls)))}
    last = {call: place for place, call in enumerate(calls)}
    for position, step in enumerate(steps):
        for earlier in step.after:
            if f"{earlier}:do:1" in first and f"{step.name}:do:1" in first:
                assert first[f"{earlier}:do:1"] < first[f"{step.name}:do:1"], position
            if f"{earlier}:undo:1" in first and f"{step.name}:undo:1" in first:
                assert last[f"{step.name}:undo:1"] < first[f"{earlier}:undo:1"], (position, calls)
