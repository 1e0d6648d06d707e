"""Scheduler-Agent-Supervisor for Django: the names an application needs to define its workflows, free of the ORM."""

from __future__ import annotations

from supervision.agent import Agent, StepRequest, register_agent
from supervision.effects import EffectOutcome, Intention, Operation
from supervision.errors import (
    OutcomeUnknown,
    PermanentFailure,
    Postpone,
    TransientFailure,
    UnreadableSubmission,
)
from supervision.retry import OnExhausted, OnPermanent, RetryPolicy
from supervision.workflow import AcceptedRun, ClosedRun, Intake, NewRun, Step, Workflow, register

__all__ = [
    "AcceptedRun",
    "Agent",
    "ClosedRun",
    "EffectOutcome",
    "Intake",
    "Intention",
    "NewRun",
    "OnExhausted",
    "OnPermanent",
    "Operation",
    "OutcomeUnknown",
    "PermanentFailure",
    "Postpone",
    "RetryPolicy",
    "Step",
    "StepRequest",
    "TransientFailure",
    "UnreadableSubmission",
    "Workflow",
    "register",
    "register_agent",
]
