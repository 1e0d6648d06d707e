"""Approving and refusing requests. An approved verb acts at most once, and in the order's history with both names.

A verb that only changes our database acts in the transaction that approves it: if the process dies, the request is pending as
before. A verb that calls services is carried out by the outbox, which takes it up again if a process dies in the middle.
"""

from __future__ import annotations

from typing import Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.contenttypes.models import ContentType
from django.utils.translation import gettext as _

from supervision.approvals import gate, rights
from supervision.errors import ChangedMeanwhile, ProofNeeded, Refused, SupervisionError
from supervision.models import Approval, Notification
from supervision.outbox.notifications import handler
from supervision.postgres import db
from supervision.runtime import failpoints
from supervision.runtime.humanize import utc
from supervision.wakeup import hints

CARRY_OUT = "approved-verb"
LONGEST_REASON = 1000
_FORGET = "arguments = arguments - ARRAY['amend', 'result', 'payload']"  # what they may say of a person is not kept

_DECIDE = """
UPDATE supervision_approval
   SET state = %(state)s, decided_by = %(by)s, decided_at = now(), decision_reason = %(reason)s
 WHERE id = %(id)s AND state = 'pending' AND expires_at > now()
RETURNING id
"""
_CARRIED_OUT = f"""
UPDATE supervision_approval SET carried_out_at = now(), outcome = %(outcome)s, {_FORGET}
 WHERE id = %(id)s AND state = 'approved' AND carried_out_at IS NULL
RETURNING id
"""  # noqa: S608 - a constant
_FAILED = f"""
UPDATE supervision_approval
   SET state = 'failed', outcome = %(outcome)s, decided_at = coalesce(decided_at, now()), {_FORGET},
       decided_by = CASE decided_by WHEN '' THEN %(by)s ELSE decided_by END,
       decision_reason = CASE decision_reason WHEN '' THEN %(reason)s ELSE decision_reason END
 WHERE id = %(id)s AND (state = 'pending' OR (state = 'approved' AND carried_out_at IS NULL))
"""  # noqa: S608 - a constant
# The agents of the steps that a request is about: one order's, or those of every order of a job.
_AGENTS = """
SELECT agent FROM supervision_stepstate WHERE run_id = %(run)s::bigint AND name = ANY (%(steps)s::text[])
 UNION
SELECT s.agent FROM supervision_jobresult j JOIN supervision_stepstate s ON s.run_id = j.run_id AND s.name = j.step
 WHERE j.job_id = %(job)s::bigint
"""
_REFUSED = f"UPDATE supervision_approval SET {_FORGET} WHERE id = %(id)s"  # noqa: S608 - a constant


def approve(pk: int, *, by: AbstractBaseUser, reason: str, also: str = "") -> Approval:
    """Approve a request as another operator, and carry its verb out; returns the request as it is now.

    also: another name of the same person, as of the shell's user. Raises Refused where this operator may not decide it; ProofNeeded
    where the account's session has to be proved again; and ChangedMeanwhile where it is decided already, its time is over, or the
    verb is not possible any more: then it has failed.
    """
    row = _open(pk, by, reason, also)
    if gate.proof_is_old(by):
        raise ProofNeeded("approve")
    way = gate.way_of(row.verb)
    facts = {"id": pk, "by": by.get_username(), "reason": reason, "state": "approved"}

    def work() -> Any:
        if not db.fetch(_DECIDE, facts):
            raise _Late
        if way.calls_services:
            Notification.objects.create(kind=CARRY_OUT, payload={"approval": pk})
        else:
            row.decided_by, row.decision_reason = by.get_username(), reason
            done = _call(row)
            db.fetch(_CARRIED_OUT, {"id": pk, "outcome": str(done or "")[:500]})
        _log(by, row, f"approved: {reason}")
        failpoints.hit("approval.before_commit")

    try:
        db.transact(work)
    except _Late:
        raise _too_late(pk) from None
    except SupervisionError as problem:
        db.run(_FAILED, {**facts, "outcome": str(problem)[:500]})
        raise ChangedMeanwhile(_("It cannot be done any more: %(why)s") % {"why": problem}) from problem
    failpoints.hit("approval.after_commit")
    hints.send(hints.DELIVER if way.calls_services else hints.SCHEDULE)
    return Approval.objects.get(pk=pk)


def refuse(pk: int, *, by: AbstractBaseUser, reason: str, also: str = "") -> Approval:
    """Refuse a request as another operator; nothing is done. Raises as `approve` does."""
    row = _open(pk, by, reason, also)

    def work() -> None:
        if not db.fetch(_DECIDE, {"id": pk, "by": by.get_username(), "reason": reason, "state": "refused"}):
            raise _too_late(pk)
        db.fetch(_REFUSED, {"id": pk})
        _log(by, row, f"refused: {reason}")

    db.transact(work)
    return Approval.objects.get(pk=pk)


class _Late(Exception):
    """The request is not pending any more."""


def _open(pk: int, by: AbstractBaseUser, reason: str, also: str) -> Approval:
    """The request, if this operator may decide it as far as it can be seen now."""
    row = Approval.objects.filter(pk=pk).first()
    if row is None:
        raise Refused(_("There is no request %(number)s.") % {"number": pk}, "unknown_approval")
    rights.demand(by, "approve")
    of_job = row.verb == "job"  # a job names the verb that it does
    places = {"run": row.run_id, "steps": row.step.split(", "), "job": int(row.subject) if of_job else None}
    rights.demand(by, row.arguments["verb"] if of_job else row.verb, [agent for (agent,) in db.run(_AGENTS, places)])
    if not reason.strip() or len(reason) > LONGEST_REASON:
        raise Refused(_("A reason of at most %(most)d characters is required.") % {"most": LONGEST_REASON}, "reason_required")
    if (row.asked_by_id is not None and row.asked_by_id == by.pk) or row.asked_by in (by.get_username(), also):
        raise Refused(_("You asked for it: another operator has to decide."), "same_operator")
    return row


def _too_late(pk: int) -> ChangedMeanwhile:
    row = Approval.objects.get(pk=pk)
    if row.state == Approval.State.PENDING:
        return ChangedMeanwhile(_("The request was not decided before %(until)s.") % {"until": utc(row.expires_at)})
    return ChangedMeanwhile(
        _("The request is decided already: %(state)s %(by)s.") % {"state": row.get_state_display(), "by": row.decided_by}
    )


def _call(row: Approval) -> object:
    by = f"{row.asked_by}, approved by {row.decided_by}"
    reason = f"{row.reason} (approved: {row.decision_reason})"
    with gate.carrying_out(row):
        return gate.way_of(row.verb).call(row.subject, by=by, reason=reason, plan_version=row.plan_version or None, **row.arguments)


@handler(CARRY_OUT, calls=True)
def carry_out(notification: Notification) -> None:
    """Carry out an approved verb that calls services. A verb that is refused has failed; a fault of ours is tried again."""
    row = Approval.objects.get(pk=notification.payload["approval"])
    if row.state != Approval.State.APPROVED or row.carried_out_at is not None:
        return
    try:
        outcome = str(_call(row))
        failpoints.hit("approval.after_call")
    except SupervisionError as problem:
        db.run(_FAILED, {"id": row.pk, "outcome": str(problem)[:500], "by": row.decided_by, "reason": row.decision_reason})
    else:
        db.run(_CARRIED_OUT, {"id": row.pk, "outcome": outcome[:500]})


def _log(by: AbstractBaseUser, row: Approval, message: str) -> None:
    LogEntry.objects.create(
        user_id=by.pk, content_type=ContentType.objects.get_for_model(Approval), object_id=str(row.pk),
        object_repr=str(row)[:200], action_flag=CHANGE, change_message=message,
    )  # fmt: skip
