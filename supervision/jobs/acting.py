"""One order of a job: the verb, and what became of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from supervision.approvals.gate import MoreAtStake
from supervision.errors import ChangedMeanwhile, Refused, UnknownRun
from supervision.models import Job, JobResult, Run, StepState
from supervision.operations import operator_verbs
from supervision.operations.audit_log import Actor
from supervision.operations.ending import abandoning
from supervision.postgres import db, json_safe
from supervision.states import Direction, ProcessState

log = logging.getLogger(__name__)
LONGEST_MESSAGE = 500
Outcome = JobResult.Outcome


class Became(NamedTuple):
    """What became of one order."""

    outcome: str
    process_state: str = ""
    code: str = ""
    message: str = ""


def why(job: Job) -> str:
    """The reason in each order's history, which names the job and its filter."""
    return f"{job.reason} (job {job.pk}: {in_words(job.filter)})"


def in_words(given: Mapping[str, str]) -> str:
    """A job's filter on one line, as `--where` takes it."""
    return " ".join(f"{name}={value}" for name, value in given.items()) or _("chosen one by one")


def act(job: Job, row: JobResult, by: Actor) -> Became:
    """Do the job's verb to one order, in the caller's transaction; a verb that is refused changes nothing.

    Raises faults of the database that pass (the caller repeats its transaction), and MoreAtStake, which stops the job.
    """
    try:
        return Became(Outcome.DONE, _VERBS[job.verb](job, row, by))
    except MoreAtStake:
        raise
    except (ChangedMeanwhile, UnknownRun) as changed:
        return Became(Outcome.CHANGED, "", changed.code, str(changed)[:LONGEST_MESSAGE])
    except Refused as refused:
        return Became(Outcome.REFUSED, "", refused.code, str(refused)[:LONGEST_MESSAGE])
    except Exception as error:
        if db.passes(error):
            raise
        log.exception("job %s could not act on order %s", job.pk, row.key)
        return Became(Outcome.FAILED, "", type(error).__name__, json_safe.text(str(error))[:LONGEST_MESSAGE])


def must_still_fail(key: str, attempt: int | None, step: str = "") -> None:
    """Raise ChangedMeanwhile if the step in Error that the operator saw is not in Error any more. `cancel` and `compensate`
    check no attempt, because they undo a running order at any step. step: its name, if it is known."""
    if attempt is None:
        return
    steps = StepState.objects.filter(run__key=key, process_state=ProcessState.ERROR, attempt=attempt)
    if not (steps.filter(name=step) if step else steps).exists():
        raise ChangedMeanwhile(str(_("The order changed meanwhile.")))


def _resubmit(job: Job, row: JobResult, by: Actor) -> str:
    return operator_verbs.resubmit(row.key, by=by, reason=why(job), amend=job.changes, **_seen(job, row))


def _skip(job: Job, row: JobResult, by: Actor) -> str:
    return operator_verbs.skip(row.key, by=by, reason=why(job), **_seen(job, row))


def _cancel(job: Job, row: JobResult, by: Actor) -> str:
    must_still_fail(row.key, row.attempt, row.step)
    if Run.objects.filter(key=row.key, direction=Direction.UNDO, resume_from=None).exists():  # `cancel` would do nothing
        raise ChangedMeanwhile(_("The order is being undone already."))
    return operator_verbs.cancel(row.key, by=by, reason=why(job))


def _compensate(job: Job, row: JobResult, by: Actor) -> str:
    must_still_fail(row.key, row.attempt, row.step)
    return operator_verbs.compensate(row.key, by=by, reason=why(job))


def _abandon(job: Job, row: JobResult, by: Actor) -> str:
    must_still_fail(row.key, row.attempt, row.step)
    return abandoning.abandon(row.key, by=by, reason=why(job))


_VERBS: dict[str, Callable[[Job, JobResult, Actor], Any]] = {
    "resubmit": _resubmit, "skip": _skip, "cancel": _cancel, "compensate": _compensate, "abandon": _abandon,
}  # fmt: skip


def _seen(job: Job, row: JobResult) -> dict[str, Any]:
    """What the job saw of the failed step: another one that fails later is not meant, even if it is at the same attempt.

    If the filter names a step, steps that have failed in other branches are not meant either.
    """
    return {"attempt": row.attempt, "seen_step": row.step or None, "step": row.step if "step" in job.filter else None}
