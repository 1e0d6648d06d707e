"""Who is told of a job: its starter by mail when a long one ends, and operators by an incident when one stands still."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from django.contrib.auth import get_user_model
from django.core.mail import EmailMessage
from django.utils.translation import gettext as _

from supervision.incidents.lifecycle import WARNING, Cause, detector
from supervision.jobs import reading
from supervision.jobs.acting import in_words
from supervision.models import Job, Notification
from supervision.outbox.incident_mail import link
from supervision.outbox.notifications import handler, mail_domain
from supervision.postgres import db

JOB_STOPPED = "job_stopped"
STALLED_SECONDS = 600.0
GIVEN_UP_AFTER = timedelta(days=3)

_STANDING_STILL = """
SELECT id, verb, total - position, state, stop_reason, coalesce(stopped_at, worked_at) FROM supervision_job
 WHERE (state = 'running' AND worked_at < now() - %(seconds)s::float8 * interval '1 s') OR (state = 'stopped' AND stopped_by = '')
"""


@detector(JOB_STOPPED)
def standing_still() -> Iterator[Cause]:
    """Running jobs without progress, and jobs that were stopped without an operator, because of an error or their account."""
    for pk, verb, left, state, reason, since in db.fetch(_STANDING_STILL, {"seconds": STALLED_SECONDS}):
        facts = {"number": pk, "verb": verb, "left": left, "reason": reason}
        title = (
            _("Job %(number)s (%(verb)s) makes no progress; %(left)s orders are left.") % facts
            if state == Job.State.RUNNING
            else _("Job %(number)s (%(verb)s) was stopped with %(left)s orders left: %(reason)s") % facts
        )
        yield Cause(kind=JOB_STOPPED, key=f"{JOB_STOPPED}:{pk}", title=title, severity=WARNING, orders=left, since=since)


@handler("job", within=GIVEN_UP_AFTER)
def mail_starter(notification: Notification) -> None:
    """Mail the end of a job to the account that it acted for, under a stable Message-ID; nothing if that has no address."""
    job = Job.objects.filter(pk=notification.payload["job"]).first()
    user = get_user_model()._default_manager.filter(pk=job.account).first() if job is not None and job.account else None
    address = getattr(user, user.get_email_field_name(), "") if user is not None else ""
    if job is None or not address:
        return
    facts = {"number": job.pk, "verb": job.verb, "done": job.done, "failed": job.failed, "total": job.total}
    lines = [
        _("Job %(number)s (%(verb)s) is done: %(done)s of %(total)s orders, %(failed)s not done.") % facts,
        _("In Error again now: %(n)s.") % {"n": reading.in_error_again(job)},
        _("Reason: %(reason)s") % {"reason": job.reason},
        _("Filter: %(filter)s") % {"filter": in_words(job.filter)},
    ]
    EmailMessage(
        subject=_("Job %(number)s is done: %(done)s of %(total)s orders") % facts,
        body="\n".join([*lines, "", link(job.pk, "job")]),
        to=[address],
        headers={"Message-ID": f"<job-{job.pk}-{notification.pk}@{mail_domain()}>"},
    ).send()
