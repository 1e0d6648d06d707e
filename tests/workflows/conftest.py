"""A workflow for each test, and the steps that most of them have."""

from __future__ import annotations

from datetime import timedelta

import pytest

from supervision import Step, WaitForSignal, Workflow
from supervision.agent import WAIT, WaitAgent, registered
from supervision.models import StepState
from supervision.workflow import _newest, _workflows
from tests.support import toy

ALPHA, BETA = (Step(f"{name}-step", agent=name, retry=toy.RETRY) for name in ("alpha", "beta"))
HOUR = timedelta(hours=1)


@pytest.fixture
def flow(sas, monkeypatch):
    """Registers a workflow of these steps for the test."""
    toy.reset()

    def register(*steps, name="waiting", **fields):
        workflow = Workflow(name, steps, **fields)
        monkeypatch.setitem(registered, WAIT, WaitAgent())
        monkeypatch.setitem(_workflows, (name, 1), workflow)
        monkeypatch.setitem(_newest, name, workflow)
        return workflow

    return register


def paid(**fields):
    return WaitForSignal("paid", within=HOUR, **fields)


def asleep():
    return StepState.objects.filter(process_state="Pending", not_before__isnull=False, turn_at__isnull=True).count()
