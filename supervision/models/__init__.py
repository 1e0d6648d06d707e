"""The tables of the engine. Only `store` and its neighbours write runs, steps and events."""

from supervision.models.archive import ArchivedRun
from supervision.models.audience import Audience
from supervision.models.inbound import Receipt
from supervision.models.journal import JournalEntry, JournalFile, WriterLease
from supervision.models.outbound import Delivery, ReplyToken, WebhookEndpoint
from supervision.models.resources import CachedResult, Pause, Resource, ResourceRoute, Slot
from supervision.models.states import (
    Alert,
    DeadLetter,
    Heartbeat,
    LeaderLease,
    Notification,
    Run,
    StepEvent,
    StepState,
    StrayReply,
    Submission,
)

__all__ = [
    "Alert",
    "ArchivedRun",
    "Audience",
    "CachedResult",
    "DeadLetter",
    "Delivery",
    "Heartbeat",
    "JournalEntry",
    "JournalFile",
    "LeaderLease",
    "Notification",
    "Pause",
    "Receipt",
    "ReplyToken",
    "Resource",
    "ResourceRoute",
    "Run",
    "Slot",
    "StepEvent",
    "StepState",
    "StrayReply",
    "Submission",
    "WebhookEndpoint",
    "WriterLease",
]
