"""The tables of the engine. Only the room `store` writes runs, steps and events."""

from supervision.models.archive import ArchivedRun
from supervision.models.history.rows import HistoryBatch, HistoryLink
from supervision.models.inbound import Child, ChildState, Receipt, ScheduleProgress, Signal
from supervision.models.incidents import Alert, Assignee, Incident, IncidentNote, Metric, Pulse, PulseTotal, RunNote
from supervision.models.jobs import Job, JobResult, SavedView
from supervision.models.journal import JournalEntry, JournalFile, WriterLease
from supervision.models.ledger import Effect, Epoch, Exchange
from supervision.models.outbound import Audience, Channel, Delivery, Notification, ReplyToken, Telling, WebhookEndpoint
from supervision.models.plans import WorkflowVersion
from supervision.models.reconciliation import Approval, Finding, Reconciliation
from supervision.models.requestlog.rows import ApiRequest
from supervision.models.resources import CachedResult, Closure, Pause, Resource, ResourceRoute, Slot, WriteProbe
from supervision.models.states import (
    DeadLetter,
    Heartbeat,
    LeaderLease,
    Run,
    StepEvent,
    StepState,
    StrayReply,
    Submission,
)

__all__ = [
    "Alert",
    "ApiRequest",
    "Approval",
    "ArchivedRun",
    "Assignee",
    "Audience",
    "CachedResult",
    "Channel",
    "Child",
    "ChildState",
    "Closure",
    "DeadLetter",
    "Delivery",
    "Effect",
    "Epoch",
    "Exchange",
    "Finding",
    "Heartbeat",
    "HistoryBatch",
    "HistoryLink",
    "Incident",
    "IncidentNote",
    "Job",
    "JobResult",
    "JournalEntry",
    "JournalFile",
    "LeaderLease",
    "Metric",
    "Notification",
    "Pause",
    "Pulse",
    "PulseTotal",
    "Receipt",
    "Reconciliation",
    "ReplyToken",
    "Resource",
    "ResourceRoute",
    "Run",
    "RunNote",
    "SavedView",
    "ScheduleProgress",
    "Signal",
    "Slot",
    "StepEvent",
    "StepState",
    "StrayReply",
    "Submission",
    "Telling",
    "WebhookEndpoint",
    "WorkflowVersion",
    "WriteProbe",
    "WriterLease",
]
