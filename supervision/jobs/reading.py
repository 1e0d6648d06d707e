"""What became of a job, for API, console and commands."""

from __future__ import annotations

from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery

from supervision.insight.queries import iso
from supervision.jobs import job_sql
from supervision.jobs.selection import MOST_GROUPS, Group, Preview
from supervision.models import Job, JobResult, Run
from supervision.postgres import db
from supervision.states import RunState


def in_error_again(job: Job) -> int:
    """How many orders the job has set going that stand in Error now."""
    return int(db.run(job_sql.IN_ERROR_AGAIN, {"job": job.pk})[0][0])


def results(job: Job, *, outcome: str = "", again: bool = False) -> QuerySet[JobResult]:
    """The job's orders by number; only those with this outcome, or only those that it set going and that are in Error now."""
    rows = JobResult.objects.filter(job=job).order_by("number")
    if outcome:
        rows = rows.filter(outcome=outcome)
    if again:
        rows = rows.filter(outcome=JobResult.Outcome.DONE, run__in=Run.objects.filter(process_state=RunState.ERROR))
    return rows.annotate(now=Subquery(Run.objects.filter(pk=OuterRef("run_id")).values("process_state")[:1]))


def facts(job: Job) -> dict[str, Any]:
    """One job as a JSON object; keys and their order are stable."""
    return {
        "id": job.pk,
        "verb": job.verb,
        "filter": job.filter,
        "changes": job.changes,
        "reason": job.reason,
        "started_by": job.started_by,
        "state": job.state,
        "total": job.total,
        "done": job.done,
        "failed": job.failed,
        "waiting": job.total - job.position,
        "held": [{"amount": amount, "currency": currency} for amount, currency in job.held],
        "started_at": iso(job.started_at),
        "worked_at": iso(job.worked_at),
        "stopped_at": iso(job.stopped_at),
        "stopped_by": job.stopped_by or None,
        "stop_reason": job.stop_reason or None,
        "approval": job.approval,
        "finished_at": iso(job.finished_at),
    }


def result_facts(row: Any) -> dict[str, Any]:
    """The result of one order of `results` as a JSON object. `process_state`: of its run now; None where it is archived."""
    return {
        "number": row.number,
        "order": row.key,
        "step": row.step or None,
        "attempt": row.attempt,
        "outcome": row.outcome,
        "code": row.code or None,
        "message": row.message or None,
        "acted_at": iso(row.acted_at),
        "process_state": row.now,
    }


def preview_facts(shown: Preview) -> dict[str, Any]:
    """A preview as a JSON object."""
    return {
        "orders": shown.orders,
        "left_out": shown.left_out,
        "held": money_facts(shown.held),
        "differ": [_group(group) for group in shown.differ[:MOST_GROUPS]],
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "orders": group.orders,
        "workflow": group.workflow,
        "version": group.version,
        "process_state": group.process_state,
        "direction": group.direction,
        "steps": list(group.steps),
        "key_reused": group.key_reused,
        "error_code": group.error_code or None,
        "held": money_facts(group.held),
    }


def money_facts(held: Any) -> list[dict[str, str]]:
    """Amounts by currency as JSON objects."""
    return [{"amount": str(amount), "currency": currency} for currency, amount in held]
