"""Carrying jobs out: a few seconds at a time, in batches, by any supervisor.

1. A process takes a job by a lease on its row. The job that has waited longest comes first, so that two jobs share the time.
2. A batch is one transaction: it locks the job's row, then its orders in the engine's usual order, acts on each, and writes
   their results and the job's counts. A process that is killed in it has done nothing; one that is killed after it has done all.
   So no order is forgotten and none is treated twice.
3. Between two batches it rests: five times as long as the batch took while the engine is at work, so that this keeps the
   processors, and half as long while it has little to do. The orders that it has set going count, too: it goes no faster than the agents.
4. After TURN_SECONDS it sends itself a hint and returns, so that sweeps and deliveries are not held up. If that hint is lost or
   the process dies, the next sweep of any supervisor finds the job (`relay`) once its lease is over.

The rows of a job are written when it starts, and walked by their numbers: an order that fails again is not picked up again.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

from django.contrib.auth import get_user_model
from django.db import InternalError, connection
from django.utils.translation import gettext as _

from supervision import conf
from supervision.approvals import gate
from supervision.jobs import job_sql, stake
from supervision.jobs.acting import Became, Outcome, act
from supervision.jobs.steering import may_act
from supervision.models import Job, JobResult
from supervision.operations.acting import holding
from supervision.operations.audit_log import Actor
from supervision.postgres import db, json_safe
from supervision.runtime import failpoints, tidying
from supervision.runtime.identity import me
from supervision.store import run_verbs
from supervision.wakeup import hints

log = logging.getLogger(__name__)

BATCH = 25  # orders that one transaction treats; their rows are locked for so long
TURN_SECONDS = 2.0
BUSY = 20  # steps that are claimed or running, and orders that wait to be begun
REST, SHORT_REST = 5.0, 0.5  # times the time that a batch took, while so many are and while they are fewer
FREEZE_SECONDS = 30.0  # a process that is frozen in a batch loses its transaction after so long
FROZEN = "25P03"  # the SQLSTATE of that
TELL_AFTER_SECONDS = 60.0  # the end of a job that took longer is mailed to the operator who started it
PAGE = 1000
MOST_ERROR = 400  # characters of an error's text
_at_work = threading.Lock()  # the lease is the process's, and its threads would share a job


def turn(seconds: float = TURN_SECONDS, rest: float | None = None) -> bool:
    """Work for so long on the job that has waited longest, and on others once it is done. True if there is more to do.

    rest: after each batch, in times of what it took; None: by how busy the engine is (`_rest`).
    False, too, if another thread of this process is at it: that one sends the next hint, and one of the two is enough.
    """
    if not _at_work.acquire(blocking=False):
        return False
    try:
        return _turn(time.monotonic() + seconds, rest)
    finally:
        _at_work.release()


def _rest() -> float:
    return REST if db.run(job_sql.BUSY, {"many": BUSY})[0][0] else SHORT_REST


def _turn(until: float, rest: float | None) -> bool:
    while (job := _take()) is not None:
        while time.monotonic() < until:
            began = time.monotonic()
            if not _batch(job):
                break
            took = time.monotonic() - began
            time.sleep(max(0.0, min(took * (_rest() if rest is None else rest), until - time.monotonic())))
        db.run(job_sql.GIVE_BACK, {"job": job, "me": me()})
        if time.monotonic() >= until:
            return bool(db.run(job_sql.STANDING, {"lease": _lease()})[0][0])
    return False


def relay() -> bool:
    """Send the hint again if a running job waits for a process: its last one was lost, or died. True if it does."""
    waits = bool(db.run(job_sql.STANDING, {"lease": _lease()})[0][0])
    if waits:
        hints.publish(hints.JOBS)
    return waits


def _take() -> int | None:
    rows = db.run(job_sql.TAKE, {"me": me(), "lease": _lease()})
    return int(rows[0][0]) if rows else None


def _lease() -> float:
    return conf.get().lease.total_seconds()


def _batch(pk: int) -> bool:
    """Treat the next orders of this job. False if nothing is left to do for this process."""
    try:
        more = db.transact(lambda: _work(pk))
    except Exception as error:
        if db.passes(error):
            raise
        if isinstance(error, InternalError) and getattr(error.__cause__, "sqlstate", "") == FROZEN:
            log.warning("job %s: this process stood still for too long and lost its batch", pk)
            connection.close()
            return False
        # It would come first again, and no other job would begin. Stopped without an operator it is an incident.
        log.exception("job %s: its next orders cannot be treated", pk)
        why = _("Its next orders cannot be treated: %(error)s") % {"error": json_safe.text(f"{type(error).__name__}: {error}")[:MOST_ERROR]}
        db.run(job_sql.STOP, _stopped(pk, why))
        return False
    failpoints.hit("job.after_commit")
    if more:
        hints.send(hints.SCHEDULE)
    return more


def _work(pk: int) -> bool:
    db.fetch(job_sql.BOUND, {"milliseconds": str(int(FREEZE_SECONDS * 1000))})
    job = Job.objects.select_for_update().filter(pk=pk, state=Job.State.RUNNING, leased_by=me()).first()
    if job is None:
        return False  # it was stopped, or another process has taken it
    by = _actor(job)
    if by is None:
        why = _("%(name)s may not act on orders any more.") % {"name": job.started_by}
        db.fetch(job_sql.STOP, _stopped(pk, why))
        return False
    rows = list(JobResult.objects.filter(job=pk, number__gt=job.position).order_by("number")[:BATCH])
    if [row.number for row in rows] != list(range(job.position + 1, min(job.position + BATCH, job.total) + 1)):
        raise RuntimeError(f"rows are missing after number {job.position} of {job.total}")
    became: list[Became] = []
    budget, too_much = stake.budget(job), ""
    if rows:
        locked = run_verbs.lock([row.run_id for row in rows])  # all of them, in the order in which the engine locks several runs
        with holding(locked.runs), gate.within(budget):
            try:
                for row in rows:
                    before = budget.moved
                    became.append(act(job, row, by))  # those before the one that is too much stay done
                    if became[-1].outcome != Outcome.DONE:
                        budget.moved = before
            except gate.MoreAtStake as more:
                too_much = str(more)
        rows = rows[: len(became)]
        _record(job, rows, became, budget.moved)
        failpoints.hit("job.before_commit")
    if too_much:
        db.fetch(job_sql.STOP, _stopped(pk, too_much))
        return False
    if job.position + len(rows) < job.total:
        return True
    _finish(pk)
    return False


def _stopped(pk: int, why: str) -> dict[str, Any]:
    return {"job": pk, "by": "", "reason": why, "holder": me()}


def _actor(job: Job) -> Actor | None:
    """On whose behalf the job acts; None if that account may not do so any more."""
    if not job.account:
        return job.started_by
    user = get_user_model()._default_manager.filter(pk=job.account).first()
    return user if may_act(user, job.verb) else None


def _record(job: Job, rows: Sequence[JobResult], became: Sequence[Became], moved: Mapping[str, Decimal]) -> None:
    facts = {
        "ids": [row.pk for row in rows],
        "outcomes": [str(one.outcome) for one in became],
        "states": [str(one.process_state) for one in became],
        "codes": [one.code for one in became],
        "messages": [one.message for one in became],
    }
    done = sum(one.outcome == Outcome.DONE for one in became)
    counts = {"job": job.pk, "me": me(), "lease": _lease(), "position": job.position, "done": done, "failed": len(rows) - done}
    counts["moved"] = json.dumps([[str(amount), currency] for currency, amount in moved.items()])
    if len(db.fetch(job_sql.RECORD, facts)) != len(rows) or not db.fetch(job_sql.ADVANCE, counts):
        raise RuntimeError(f"job {job.pk}: its rows changed under its lock")


def _finish(pk: int) -> None:
    for (seconds,) in db.fetch(job_sql.FINISH, {"job": pk}):
        log.info("job %s is done after %.1f s", pk, seconds)
        if seconds > TELL_AFTER_SECONDS:
            db.fetch(job_sql.NOTIFY, {"job": pk})
            hints.send(hints.DELIVER)


@tidying.tidier("jobs")
def delete_old() -> bool:
    """Delete the jobs that have been done or stopped for JOB_KEEP_DAYS, with their rows. True if there may be more."""
    days = conf.get().job_keep.total_seconds() / 86400
    found = db.run(job_sql.OLD, {"days": days})
    deleted = [db.transact(partial(_delete, pk, days)) for (pk,) in found]
    return len(found) == job_sql.AT_ONCE and any(deleted)


def _delete(pk: int, days: float) -> bool:
    if not db.fetch(job_sql.LOCK_OLD, {"job": pk, "days": days}):
        return False  # it was resumed, or another process deletes it
    while len(db.fetch(job_sql.DELETE_RESULTS, {"job": pk, "page": PAGE})) == PAGE:
        pass
    db.fetch(job_sql.DELETE_JOB, {"job": pk})
    return True
