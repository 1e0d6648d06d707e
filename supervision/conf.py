"""The settings in `settings.SUPERVISION` with types and defaults, read once; in tests also after Django's `setting_changed`.

Every number says its unit in its name here; the dictionary's keys are documented in `docs/operations.md`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.signals import setting_changed

DEFAULTS: dict[str, Any] = {
    "SWEEP_SECONDS": 5.0,
    "COMPLETE_WITHIN": None,  # seconds; overrides every step's budget
    "FAILURE_THRESHOLD": 5,
    "ON_EXHAUSTED": None,  # overrides every step's policy
    "ON_PERMANENT": None,
    "LONG_WAIT": 300.0,
    "COHORT": 200,  # most orders one message carries
    "IN_FLIGHT": 4000,  # most steps claimed at once, over all processes; the rest waits as Pending rows
    "AGENT_THREADS": 32,  # calls side by side in one agents process
    "LINGER_SECONDS": 0.005,  # how long a cohort waits for its slower members before it moves on
    "HOLD_OFF_SECONDS": 0.02,  # pause between two batches of submissions under load, so that cohorts grow
    "LOCAL_PICKUP": True,  # an idle agents process schedules and performs new orders itself, without a message
    "HINT_SECONDS": 0.005,  # at most one hint to a queue in this time, per process
    "DISPATCH_SECONDS": 30.0,  # how long a claim may wait for an agent to start it
    "SWEEP_BATCH": 500,
    "PICKUP_SECONDS": 300.0,  # a released step, or a submission, that no process picks up in this time counts as starving
    "RELAY_SECONDS": 2.0,  # the relay hints again at a submission that no scheduler consumed for this long
    "LEASE_SECONDS": 10.0,  # how long a supervisor leads without renewing
    "CANARY_SECONDS": 10.0,  # how often every queue gets a canary; a worker that receives nothing for 3.5 of these ends itself
    "PARTITIONS": {},  # agent name -> over how many queues its work is spread
    "OPERATOR_EMAILS": (),
    "INCIDENT_CRITICAL_ORDERS": 10,  # an incident that holds at least this many orders is critical
    "INCIDENT_REOPEN_SECONDS": 1800.0,  # a cause that returns within this time reopens its incident
    "APPROVAL_ABOVE": {},  # currency -> amount; "": all other currencies. A verb on more money needs a second operator. Empty: off
    "APPROVAL_SECONDS": 86_400.0,  # a request that no operator decides within this time expires
    "LIVENESS_SECONDS": 900.0,  # an order that stands still for longer without an explanation is named by `audit`
    "PAUSE_BOUND": 14_400.0,  # seconds; a pause without an end that holds orders for longer is an incident
    "TRACE_URL": "",  # the address of a trace in the tool that shows them, with {trace_id} in it
    "ARCHIVE_DAYS": 90,  # orders that ended this long ago are archived every night; None: never
    "EXCHANGE_DAYS": 14,  # requests to services and their answers are kept for this long; 0: none is recorded
    "REQUEST_LOG_DAYS": 14,  # what API clients changed, and what they were refused, is listed for this long; 0: nothing is recorded
    "REQUEST_LOG_ROWS": 500_000,  # at most so many of these requests are kept
    "KEY_DAYS": 90,  # a client's idempotency key is kept for at least this long
    "DEAD_LETTER_DAYS": 90,  # the bytes of dead letters that were settled this long ago are erased; None: never
    "RECORD_DAYS": 3650,  # the archive, notes, decisions and closed incidents are deleted this long after their end; None: never
    "JOB_KEEP_DAYS": 30,  # bulk jobs that have been done or stopped for this long are deleted
    "JOURNAL_DIR": "var/journal",  # the directory of the journal's files; each supervisor's machine may have its own
    "JOURNAL_FLUSH_SECONDS": 5.0,  # an event waits no longer than this for its flush
    "JOURNAL_FLUSH_ENTRIES": 500,  # this many waiting events are flushed at once
    "JOURNAL_LEASE_SECONDS": 10.0,  # how long a writer that died or froze keeps a key
    "JOURNAL_KEEP_DAYS": 90,  # written events stay rows for this long after their file was closed; None: for ever
    "JOURNAL_FILE_BYTES": 100_000_000,  # a file of this size is followed by another one, as it is every day
}

RENAMED = {"IDLE_AGENTS_CONSUME": "LOCAL_PICKUP"}  # the old names still work; a check names the new ones


@dataclass(frozen=True)
class Conf:
    """The engine's settings with their types."""

    sweep_every: timedelta
    complete_within: timedelta | None
    failure_threshold: int
    on_exhausted: str | None
    on_permanent: str | None
    long_wait: timedelta
    cohort: int
    in_flight: int
    agent_threads: int
    linger_seconds: float
    hold_off_seconds: float
    local_pickup: bool
    hint_seconds: float
    dispatch_within: timedelta
    sweep_batch: int
    pickup_within: timedelta
    relay_after: timedelta
    lease: timedelta
    canary_every: timedelta
    partitions: Mapping[str, int]
    operator_emails: tuple[str, ...]
    incident_critical_orders: int
    incident_reopen: timedelta
    approval_above: Mapping[str, Decimal]
    approval_within: timedelta
    liveness: timedelta
    pause_bound: timedelta
    trace_url: str
    archive_after: timedelta | None
    keep_keys: timedelta
    keep_letters: timedelta | None
    keep_records: timedelta | None
    job_keep: timedelta
    keep_exchanges: timedelta
    keep_requests: timedelta
    request_log_rows: int
    journal_dir: Path
    journal_flush: timedelta
    journal_flush_entries: int
    journal_lease: timedelta
    journal_file_bytes: int
    journal_keep: timedelta | None


def _seconds(value: Any) -> timedelta:
    return value if isinstance(value, timedelta) else timedelta(seconds=float(value))


@cache
def get() -> Conf:
    """The settings in force. Code that replaces them in a running process calls `get.cache_clear`."""
    given: Mapping[str, Any] = getattr(settings, "SUPERVISION", {})
    value = {**DEFAULTS, **{RENAMED.get(key, key): it for key, it in given.items()}}
    return Conf(
        sweep_every=_seconds(value["SWEEP_SECONDS"]),
        complete_within=None if value["COMPLETE_WITHIN"] is None else _seconds(value["COMPLETE_WITHIN"]),
        failure_threshold=int(value["FAILURE_THRESHOLD"]),
        on_exhausted=value["ON_EXHAUSTED"] or None,
        on_permanent=value["ON_PERMANENT"] or None,
        long_wait=_seconds(value["LONG_WAIT"]),
        cohort=int(value["COHORT"]),
        in_flight=int(value["IN_FLIGHT"]),
        agent_threads=int(value["AGENT_THREADS"]),
        linger_seconds=float(value["LINGER_SECONDS"]),
        hold_off_seconds=float(value["HOLD_OFF_SECONDS"]),
        local_pickup=bool(value["LOCAL_PICKUP"]),
        hint_seconds=float(value["HINT_SECONDS"]),
        dispatch_within=_seconds(value["DISPATCH_SECONDS"]),
        sweep_batch=int(value["SWEEP_BATCH"]),
        pickup_within=_seconds(value["PICKUP_SECONDS"]),
        relay_after=_seconds(value["RELAY_SECONDS"]),
        lease=_seconds(value["LEASE_SECONDS"]),
        canary_every=_seconds(value["CANARY_SECONDS"]),
        partitions={str(name): int(count) for name, count in value["PARTITIONS"].items() if int(count) > 1},
        operator_emails=tuple(value["OPERATOR_EMAILS"]),
        incident_critical_orders=int(value["INCIDENT_CRITICAL_ORDERS"]),
        incident_reopen=_seconds(value["INCIDENT_REOPEN_SECONDS"]),
        approval_above={str(currency): Decimal(amount) for currency, amount in value["APPROVAL_ABOVE"].items()},
        approval_within=_seconds(value["APPROVAL_SECONDS"]),
        liveness=_seconds(value["LIVENESS_SECONDS"]),
        pause_bound=_seconds(value["PAUSE_BOUND"]),
        trace_url=str(value["TRACE_URL"]),
        archive_after=None if value["ARCHIVE_DAYS"] is None else timedelta(days=float(value["ARCHIVE_DAYS"])),
        keep_keys=timedelta(days=float(value["KEY_DAYS"])),
        keep_letters=None if value["DEAD_LETTER_DAYS"] is None else timedelta(days=float(value["DEAD_LETTER_DAYS"])),
        keep_records=None if value["RECORD_DAYS"] is None else timedelta(days=float(value["RECORD_DAYS"])),
        job_keep=timedelta(days=float(value["JOB_KEEP_DAYS"])),
        keep_exchanges=timedelta(days=float(value["EXCHANGE_DAYS"])),
        keep_requests=timedelta(days=float(value["REQUEST_LOG_DAYS"])),
        request_log_rows=int(value["REQUEST_LOG_ROWS"]),
        journal_dir=Path(value["JOURNAL_DIR"]),
        journal_flush=_seconds(value["JOURNAL_FLUSH_SECONDS"]),
        journal_flush_entries=int(value["JOURNAL_FLUSH_ENTRIES"]),
        journal_lease=_seconds(value["JOURNAL_LEASE_SECONDS"]),
        journal_file_bytes=int(value["JOURNAL_FILE_BYTES"]),
        journal_keep=None if value["JOURNAL_KEEP_DAYS"] is None else timedelta(days=float(value["JOURNAL_KEEP_DAYS"])),
    )


setting_changed.connect(lambda **_: get.cache_clear(), dispatch_uid="supervision.conf", weak=False)
