"""The crash matrix of branches, waits and children: a real process is killed at each failpoint, and the orders still end right.

The slice runs with all other tests. `./run chaos matrix` runs the whole matrix.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from django.db import connection

from supervision import testing
from supervision.models import Child, Run, Signal, StepState
from supervision.signals.sending import NewSignal, send_all
from tests.crash.graph_cases import GraphCase, cases
from tests.support import forked
from tests.support.shop import until
from tests.support.workers import registries_kept

ROOT = Path(__file__).resolve().parents[2]
ORDERS = 2


@pytest.fixture(scope="module")
def server() -> Iterator[forked.Server]:
    """The processes to kill are forked from one that has loaded the application."""
    warm = forked.Server(
        {**os.environ, "LOG_LEVEL": "CRITICAL", "ALLOW_FAILPOINTS": "1", "SUPERVISION_LOCAL_PICKUP": "0"}, warm="tests.crash.graphs"
    )
    yield warm
    warm.close()


@pytest.fixture
def graphs(sas) -> Iterator[ModuleType]:
    """The module of the processes, whose workflows are also known here, because a sender checks the signals' names."""
    with registries_kept():
        module = import_module("tests.crash.graphs")
        module.declare()
        yield module


@pytest.mark.parametrize("case", [pytest.param(case, id=str(case), marks=[] if case.in_slice else pytest.mark.nightly) for case in cases()])
def test_orders_with_branches_waits_and_children_end_right_when_a_process_dies(sas, graphs, server, tmp_path, case: GraphCase):
    marks, calls = tmp_path / "reached", tmp_path / "calls"
    calls.touch()
    payload = {"undone": case.undoing, "fails": case.fails}
    keys = testing.submit_many(graphs.CHANGED if case.changed else graphs.NAME, [payload for _ in range(ORDERS)])
    if not case.changed:
        send_all([NewSignal(run=key, name="captured", key="k") for key in keys])  # before any step waits for it

    if case.expires:
        die(server, calls, keys, marks, "agent.before_call", case.step, 1)
    die(server, calls, keys, marks, case.point, case.step, case.time)
    other = process(server, calls)
    until(lambda: pay(keys) or over(keys), what="the end of all orders")
    other.kill()
    other.wait()

    if case.changed:
        check_changed(sas, keys, graphs.calls_of(calls))
    else:
        check(sas, graphs, keys, graphs.calls_of(calls), undone=case.undoing)


@pytest.mark.parametrize("time", [1, 2])
@pytest.mark.parametrize("point", ["verb.before_commit", "verb.after_commit"])
def test_orders_that_are_cancelled_without_undo_end_once_and_undo_nothing_when_the_operators_process_dies(
    sas, graphs, server, tmp_path, point: str, time: int
):
    marks, calls = tmp_path / "reached", tmp_path / "calls"
    calls.touch()
    keys = testing.submit_many(graphs.LEFT, [{"undone": False, "fails": None} for _ in range(ORDERS)])

    die(server, calls, keys, marks, point, "", time)
    other = process(server, calls)
    until(lambda: over(keys), what="the end of all orders")
    other.kill()
    other.wait()

    assert set(Run.objects.filter(key__in=keys).values_list("process_state", flat=True)) == {"Cancelled"}
    undos = StepState.objects.filter(run__key__in=keys, direction="undo")
    assert list(undos.values_list("process_state", "result")) == [("Skipped", {"left": True})] * 2 * ORDERS
    assert set(graphs.calls_of(calls)) == {f"{key}:{step}:do:1" for key in keys for step in ("ask", "tell", "never")}
    sas.assert_healthy()


def die(server: forked.Server, calls: Path, keys: list[str], marks: Path, point: str, step: str, time: int) -> None:
    """Let a process work on the orders until it dies at this failpoint. What it held is expired afterwards."""
    fatal = {"FAILPOINTS": f"{point}=kill9@{time}", "FAILPOINT_STEP": step, "FAILPOINT_LOG": str(marks)}
    victim = process(server, calls, **fatal)
    until(lambda: pay(keys) or victim.poll() is not None, what=f"the death at {point}")
    assert marks.read_text().splitlines()[-1].startswith(f"{point} kill9 {time} ")
    testing.expire()


def process(server: forked.Server, calls: Path, **environ: str) -> subprocess.Popen[bytes]:
    """A process that schedules, performs and sweeps."""
    code = "import sys; from tests.crash import graphs; graphs.main(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(connection.settings_dict["NAME"]), str(calls)]
    env = {**os.environ, "LOG_LEVEL": "CRITICAL", "ALLOW_FAILPOINTS": "1", **environ}
    return forked.Popen(command, server=server, cwd=ROOT, env=env)


def pay(keys: list[str]) -> None:
    """Send the payment to the orders whose step waits for it, so that the signal wakes a step. An order is moved before it is paid."""
    asleep = StepState.objects.filter(run__key__in=keys, name="paid", awaits="paid", turn_at=None, not_before__isnull=False)
    if found := list(asleep.exclude(run__workflow="crash-changed", run__version=1).values_list("run__key", "generation")):
        send_all([NewSignal(run=key, name="paid", key=f"k{generation}") for key, generation in found])


def over(keys: list[str]) -> bool:
    """Whether every order is a run that has ended, and every child has ended, too."""
    return Run.objects.filter(key__in=keys).count() == ORDERS and not Run.objects.filter(finished_at=None).exists()


def check(sas, graphs, keys, calls, *, undone: bool) -> None:
    """Each step was called under one key; steps that were done are undone if the order was; nothing is left."""
    runs = Run.objects.filter(key__in=keys)
    assert set(runs.values_list("process_state", flat=True)) == {"Cancelled" if undone else "Processed"}
    children = Child.objects.filter(parent_key__in=keys)
    assert children.count() == ORDERS * (1 + graphs.ITEMS)
    assert set(children.values_list("state", flat=True)) == {"Cancelled" if undone else "Processed"}
    expected = {f"{key}:{step}:do:1" for key in keys for step in ("ask", "capture", "tell", "close")}
    packed = {f"{child}:pack" for child in Run.objects.filter(parent_key__in=keys).values_list("key", flat=True)}
    expected |= {f"{pack}:do:1" for pack in packed}
    if undone:
        expected |= {f"{key}:{step}:undo:1" for key in keys for step in ("ask", "capture", "tell")}
        expected |= {f"{pack}:undo:1" for pack in packed}
    assert set(calls) == expected
    assert not Signal.objects.filter(run_key__in=keys, taken_by=None).exists()
    sas.assert_healthy()


def check_changed(sas, keys, calls) -> None:
    """Each order has its new version. What it did before it went back was undone once and is done once again, under new keys."""
    runs = Run.objects.filter(key__in=keys)
    assert set(runs.values_list("process_state", "version")) == {("Processed", 2)}
    expected = {f"{key}:{step}:{what}" for key in keys for step in ("cut", "drill") for what in ("do:1", "undo:1", "do:2")}
    expected |= {f"{key}:join:do:{generation}" for key in keys for generation in (1, 2)}
    children = dict(Run.objects.filter(parent_key__in=keys).values_list("key", "process_state"))
    assert sorted(children.values()) == ["Cancelled"] * ORDERS + ["Processed"] * ORDERS
    expected |= {f"{child}:pack:do:1" for child in children}
    expected |= {f"{child}:pack:undo:1" for child, state in children.items() if state == "Cancelled"}
    assert set(calls) == expected
    # A parent that was just looking needs no signal of its child. Such a signal would only let a later child's wait look once more.
    assert not Signal.objects.filter(run_key__in=keys, taken_by=None).exclude(name__startswith="child:").exists()
    sas.assert_healthy()
