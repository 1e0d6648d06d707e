"""Scheduler-Agent-Supervisor for Django: the names an application needs to define its workflows, free of the ORM."""

from __future__ import annotations

from supervision.agent import Agent, StepRequest, register_agent
from supervision.effects import EffectOutcome, Intention, Operation
from supervision.errors import (
    AwaitSignal,
    OutcomeUnknown,
    PermanentFailure,
    Postpone,
    TransientFailure,
    UnreadableSubmission,
)
from supervision.retry import OnExhausted, OnPermanent, RetryPolicy
from supervision.signals.waits import OnTimeout, Timer, WaitForSignal
from supervision.workflow import AcceptedRun, ClosedRun, Facts, Intake, NewRun, Step, Workflow, register

__all__ = [
    "AcceptedRun",
    "Agent",
    "AwaitSignal",
    "ClosedRun",
    "EffectOutcome",
    "Facts",
    "Intake",
    "Intention",
    "NewRun",
    "OnExhausted",
    "OnPermanent",
    "OnTimeout",
    "Operation",
    "OutcomeUnknown",
    "PermanentFailure",
    "Postpone",
    "RetryPolicy",
    "Step",
    "StepRequest",
    "Timer",
    "TransientFailure",
    "UnreadableSubmission",
    "WaitForSignal",
    "Workflow",
    "register",
    "register_agent",
]
