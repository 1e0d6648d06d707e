"""Scheduler-Agent-Supervisor for Django: the names an application needs to define its workflows, to submit runs and to await their results.

Definitions are free of the ORM. The verbs that use the database are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from supervision.agent import Agent, StepRequest, register_agent
from supervision.children.steps import ChildRun, ForEach
from supervision.effects import EffectOutcome, Intention, Operation
from supervision.errors import (
    AwaitSignal,
    OutcomeUnknown,
    PermanentFailure,
    Postpone,
    TransientFailure,
    UnreadableSubmission,
)
from supervision.plans.functions import step
from supervision.plans.parallel import parallel, plan
from supervision.retry import OnExhausted, OnPermanent, RetryPolicy
from supervision.signals.waits import OnTimeout, Timer, WaitForSignal
from supervision.workflow import AcceptedRun, ByHand, ClosedRun, Facts, Intake, KeptSignal, NewRun, Step, Workflow, register

if TYPE_CHECKING:
    from supervision.execution.task_agent import beat
    from supervision.insight.results import RunResult, aresult, astate, result, state
    from supervision.intake.submitting import submit
    from supervision.signals.sending import send_signal

__all__ = [
    "AcceptedRun",
    "Agent",
    "AwaitSignal",
    "ByHand",
    "ChildRun",
    "ClosedRun",
    "EffectOutcome",
    "Facts",
    "ForEach",
    "Intake",
    "Intention",
    "KeptSignal",
    "NewRun",
    "OnExhausted",
    "OnPermanent",
    "OnTimeout",
    "Operation",
    "OutcomeUnknown",
    "PermanentFailure",
    "Postpone",
    "RetryPolicy",
    "RunResult",
    "Step",
    "StepRequest",
    "Timer",
    "TransientFailure",
    "UnreadableSubmission",
    "WaitForSignal",
    "Workflow",
    "aresult",
    "astate",
    "beat",
    "parallel",
    "plan",
    "register",
    "register_agent",
    "result",
    "send_signal",
    "state",
    "step",
    "submit",
]

_VERBS = {
    **dict.fromkeys(("RunResult", "aresult", "astate", "result", "state"), "supervision.insight.results"),
    "beat": "supervision.execution.task_agent",
    "send_signal": "supervision.signals.sending",
    "submit": "supervision.intake.submitting",
}


def __getattr__(name: str) -> Any:
    if name in _VERBS:
        return getattr(import_module(_VERBS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
