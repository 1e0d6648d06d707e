"""Real processes that are killed with SIGKILL while orders wait, and signals that come early, twice and meanwhile."""

from __future__ import annotations

import random

import pytest

from supervision import testing
from supervision.agent import WAIT, registered
from supervision.models import Alert, Run, Signal, StepState
from supervision.signals.sending import NewSignal, Sent, send_all
from tests.support.shop import until
from tests.support.soak import sized
from tests.support.workers import registries_kept, two_workers

ORDERS, KILLS = 60, sized(5, 12)


@pytest.fixture
def killed(sas):
    """The workflow of the worker, also known here, because a sender checks the signals' names."""
    waits = WAIT in registered
    with registries_kept():
        __import__("tests.workflows.worker")
        yield sas
    assert WAIT not in registered or waits


@pytest.mark.nightly
def test_orders_that_wait_survive_kills_and_take_each_signal_once(killed, tmp_path):
    keys = testing.submit_many("killed", [{"n": n} for n in range(ORDERS)])
    calls, dice, waiting = tmp_path / "calls", random.Random(7), []
    for number, key in enumerate(keys):
        waiting += [(key, "paid", {"n": number})] * 2
        waiting += [(key, "captured", {"n": number})] * 2 if number % 2 == 0 else []
    dice.shuffle(waiting)
    sent: list[Sent] = []

    for kill in range(KILLS + 1):
        with two_workers("tests.workflows.worker", calls):
            size = len(waiting) // (KILLS - kill) if kill < KILLS else len(waiting)
            part, waiting = waiting[:size], waiting[size:]
            for key, name, payload in part:
                sent += send_all([NewSignal(run=key, name=name, key="k", payload=payload)])
            if kill < KILLS:
                moved = StepState.objects.filter(attempt__gt=0).count()
                until(lambda moved=moved: StepState.objects.filter(attempt__gt=0).count() > moved or not open_runs(), within=60)
            else:
                until(lambda: not open_runs() and Run.objects.count() == ORDERS, within=100)

    assert set(Run.objects.values_list("process_state", flat=True)) == {"Processed"}
    assert (sent.count(Sent.ACCEPTED), sent.count(Sent.REPEATED)) == (ORDERS * 3 // 2, ORDERS * 3 // 2)
    assert not Signal.objects.filter(taken_by__isnull=True).exists()
    assert not Alert.objects.filter(kind="error").exists()
    for number, key in enumerate(keys):
        steps = {step.name: step for step in StepState.objects.filter(run__key=key)}
        assert steps["paid"].result == {"came": True, "payload": {"n": number}}
        assert steps["ship"].result["read"] == steps["paid"].result
        if number % 2:
            assert steps["capture"].process_state == "Skipped"
        else:
            assert steps["capture"].result["signal"] == {"n": number}
    assert len(set(calls.read_text().split())) == ORDERS * 2 + ORDERS // 2, "every attempt has the step's key"
    killed.assert_healthy()


def open_runs() -> bool:
    return Run.objects.exclude(process_state="Processed").exists() or Run.objects.count() < ORDERS
