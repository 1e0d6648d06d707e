"""Starting, stopping, resuming and ending jobs. Each says who and why; the entry in the admin's log commits with the change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.contrib.auth.models import AbstractBaseUser
from django.db.models.functions import Now
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from supervision.approvals import gate, rights, stakes
from supervision.approvals.actors import Exempt
from supervision.approvals.stakes import Operation
from supervision.errors import AwaitsApproval, ChangedMeanwhile, ProofNeeded, Refused
from supervision.incidents import lifecycle
from supervision.jobs import job_sql, selection, stake
from supervision.models import Approval, Job, Run
from supervision.operations.acting import demand_reason
from supervision.operations.audit_log import Actor, log, name_of
from supervision.postgres import db
from supervision.runtime import failpoints
from supervision.wakeup import hints

JOB = "job"
ANY_VERB = "*"  # in the key of a request, which is the same for every verb


class Started(NamedTuple):
    """A job that was asked for. replayed: an earlier request under the same key has started it."""

    job: Job
    replayed: bool


def start(verb: str, given: Mapping[str, Any], *, by: Actor, reason: str, changes: Mapping[str, Any] | None = None) -> Job:
    """Start a job for the orders that these filters find now. Raises BadFilter, Refused, and NotPermitted."""
    return start_once(verb, given, by=by, reason=reason, changes=changes, token="").job


def start_once(
    verb: str, given: Mapping[str, Any], *, by: Actor, reason: str, changes: Mapping[str, Any] | None = None, token: str
) -> Started:
    """As `start`, once for each token.

    token: the sender's key of this request; a request that has started a job gets this job again, and another request under it is
    refused.
    """
    selection.check_verb(verb)
    demand_reason(reason)
    rights.demand(by, verb)
    kept = {name: str(value) for name, value in given.items() if str(value) != ""}
    before = started(ANY_VERB, token, by=by)
    made = (
        Started(before, replayed=True)
        if before
        else db.transact(lambda: _start(verb, selection.by_filter(given), kept, by, reason, changes or {}, _key(ANY_VERB, token, by)))
    )
    job = made.job
    if token and (job.verb, job.filter, job.changes, job.reason) != (verb, kept, changes or {}, reason):
        raise Refused(_("Another job was started under this key."), "job_key_reused")
    return made


def start_found(verb: str, chosen: selection.Chosen, given: Mapping[str, str], *, by: Actor, reason: str, token: str = "") -> Job:
    """Start a job for these orders, which a list with filters of its own has found. given: these filters. Raises Refused.

    token: of the form that was sent; a form that has started a job gets this job again.
    """
    selection.check_verb(verb)
    demand_reason(reason)
    rights.demand(by, verb)
    return db.transact(lambda: _start(verb, chosen, given, by, reason, {}, _key(verb, token, by))).job


def start_chosen(verb: str, chosen: Sequence[selection.Seen], *, by: Actor, reason: str, token: str = "") -> Job:
    """Start a job for these orders, each as the operator saw it. token: as in `start_found`.

    Raises Refused.
    """
    selection.check_verb(verb)
    demand_reason(reason)
    rights.demand(by, verb)
    return db.transact(lambda: _start(verb, selection.one_by_one(chosen), {}, by, reason, {}, _key(verb, token, by))).job


def started(verb: str, token: str, *, by: Actor) -> Job | None:
    """The job that this actor has started by the form of this token; None if there is none."""
    key = _key(verb, token, by)
    return Job.objects.filter(key=key).first() if key else None


def _key(verb: str, token: str, by: Actor) -> str | None:
    return f"{account_of(by)}:{verb}:{token}" if token else None


def _start(
    verb: str,
    chosen: selection.Chosen,
    given: Mapping[str, str],
    by: Actor,
    reason: str,
    changes: Mapping[str, Any],
    key: str | None = None,
) -> Started:
    if changes:
        versions = set(Run.objects.filter(pk__in=chosen.runs).order_by().values_list("workflow", "version").distinct())
        selection.check_changes(verb, changes, versions)
    said = {"filter": json.dumps(dict(given)), "changes": json.dumps(dict(changes)), "reason": reason}
    new = db.fetch(job_sql.BEGIN, {**said, "verb": verb, "account": account_of(by), "by": name_of(by), "key": key})
    if not new:
        return Started(Job.objects.get(key=key), replayed=True)
    job = Job.objects.get(pk=new[0][0])
    runs = [run_id for (run_id,) in db.fetch(job_sql.freeze(verb), {**chosen.params, "job": job.pk})]
    if not runs:
        raise Refused(_("No order that fits can be treated so now; nothing was started."), "no_orders")
    job.total, job.held = len(runs), [[str(amount), currency] for currency, amount in lifecycle.held(runs)]
    job.save(update_fields=["total", "held"])
    log(by, job, f"started for {job.total} orders: {reason}")
    _ask_for_it(job, runs, chosen.step, by)
    failpoints.hit("job.before_start")
    hints.send(hints.JOBS)
    return Started(job, replayed=False)


def _ask_for_it(job: Job, runs: Sequence[int], step: str, by: Actor) -> None:
    """Stop the job before its first order, and ask for another operator's approval, if more than APPROVAL_ABOVE is at stake."""
    old = gate.proof_is_old(by)
    money = stake.at_stake(job.verb, runs, step, always=old)
    if old and money:
        raise ProofNeeded(job.verb)
    if isinstance(by, Exempt) or not stakes.exceeds(money):
        return
    _await(job, money, by, Run.objects.get(pk=runs[0]) if len(runs) == 1 else None)


def _await(job: Job, money: stakes.Money, by: Actor, run: Run | None = None) -> AwaitsApproval:
    """Ask for another operator's approval of this amount; the job is stopped until then. run: its only order."""
    asked = Operation(
        verb=JOB, subject=str(job.pk), order=run.key if run else "", run=run, arguments={"verb": job.verb}, stake=money
    )  # fmt: skip
    waits = gate.ask(asked, money, by=by, reason=f"{job.verb}, {job.total} orders: {job.reason}")
    job.approval, job.state, job.stop_reason, job.stopped_by = waits.approval, Job.State.STOPPED, str(waits), name_of(by)
    facts = {"job": job.pk, "approval": waits.approval, "account": account_of(by), "by": name_of(by), "reason": str(waits)}
    db.fetch(job_sql.AWAIT, facts)
    return waits


@gate.executor(JOB)
def _approved(subject: str, *, by: Actor, reason: str, plan_version: str | None, verb: str) -> str:
    """Let an approved job go on, for the account that started it."""
    if not db.fetch(job_sql.APPROVED, {"job": int(subject)}):
        raise ChangedMeanwhile(_("The job does not wait for it any more."))
    hints.send(hints.JOBS)
    return str(Job.State.RUNNING)


def stop(pk: int, *, by: Actor, reason: str) -> None:
    """Stop a running job after the batch under way. Raises Refused where there is no such job, ChangedMeanwhile where it rests."""
    demand_reason(reason)

    def work() -> None:
        job = _job(pk)
        rights.demand(by, job.verb)
        if not db.fetch(job_sql.STOP, {"job": pk, "by": name_of(by), "reason": reason, "holder": ""}):
            raise ChangedMeanwhile(_("The job is %(state)s: only a running one can be stopped.") % {"state": job.get_state_display()})
        log(by, job, f"stopped: {reason}")

    db.transact(work)


def resume(pk: int, *, by: Actor, reason: str) -> None:
    """Let a stopped job go on, on behalf of this actor.

    Raises Refused where there is no such job, ChangedMeanwhile where it runs, and AwaitsApproval where its other orders move more
    money now than was approved: it goes on once another operator has approved that.
    """
    demand_reason(reason)

    def work() -> AwaitsApproval | None:
        job = _job(pk)
        rights.demand(by, job.verb)
        if gate.proof_is_old(by) and stake.of_the_rest(job, always=True):
            raise ProofNeeded(job.verb)
        if job.approval is not None:
            _demand_approval(job.approval)
        if job.state == Job.State.STOPPED and not isinstance(by, Exempt) and (money := stake.left_to_ask(job)):
            return _await(job, money, by)
        if not db.fetch(job_sql.RESUME, {"job": pk, "account": account_of(by), "by": name_of(by)}):
            raise ChangedMeanwhile(_("The job is %(state)s: only a stopped one can be resumed.") % {"state": job.get_state_display()})
        log(by, job, f"resumed: {reason}")
        hints.send(hints.JOBS)
        return None

    if waits := db.transact(work):
        raise waits


def end(pk: int, *, by: Actor, reason: str) -> None:
    """End a stopped job: the orders that have no result yet are left as they are, and it cannot be resumed.

    Raises Refused where there is no such job, ChangedMeanwhile where it runs or is done.
    """
    demand_reason(reason)

    def work() -> None:
        job = _job(pk)
        rights.demand(by, job.verb)
        message = gettext_noop("The job was ended before its turn: %(reason)s") % {"reason": reason}
        if not db.fetch(job_sql.END, {"job": pk, "by": name_of(by), "reason": reason, "message": message}):
            raise ChangedMeanwhile(_("The job is %(state)s: only a stopped one can be ended.") % {"state": job.get_state_display()})
        log(by, job, f"ended: {reason}")

    db.transact(work)


def _demand_approval(number: int) -> None:
    """Raise Refused unless this request is approved; the words say whether it still can be."""
    asked = Approval.objects.filter(pk=number)
    if asked.filter(state=Approval.State.APPROVED).exists():
        return
    words = _("Another operator has to approve request %(number)s first.")
    if not asked.filter(state=Approval.State.PENDING, expires_at__gt=Now()).exists():
        words = _("Request %(number)s was not approved, and cannot be any more. Start another job for these orders.")
    raise Refused(words % {"number": number}, "not_approved")


def _job(pk: int) -> Job:
    job = Job.objects.select_for_update().filter(pk=pk).first()
    if job is None:
        raise Refused(_("There is no job %(number)s.") % {"number": pk}, "unknown_job")
    return job


def account_of(by: Actor) -> str:
    """The account's primary key as a job keeps it; empty for an actor without one."""
    return str(by.pk) if isinstance(by, AbstractBaseUser) else ""


def may_act(user: Any, verb: str) -> bool:
    """Whether this account may do the verb to orders now, at least at the steps of one agent."""
    return user is not None and user.is_active and rights.may(user, verb)
