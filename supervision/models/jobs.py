"""Bulk jobs: one verb for many orders, worked off in the background, with a row for each order. And filters that people keep."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from supervision.models.states import Run


class Job(models.Model):
    """One verb for many orders. The orders are chosen when the job starts; each has a `JobResult`.

    running: a supervisor works on it. stopped: by an operator, or because its account lost its permission (`stopped_by` is empty
    then); an operator may resume or end it. done: every order has a result. Jobs that have been stopped or done for JOB_KEEP_DAYS
    are deleted.

    filter: the filters of the list that chose the orders; empty where an operator chose them one by one. changes: corrections to
    each order's payload. account: the primary key of the account on whose behalf it acts, empty for a command; started_by: its
    name. approval: the request that another operator has to approve before the job may run, because of the money at stake; none if
    there is little. key: of the form that started it, so that a form that is sent twice starts one job. position: how many orders
    have a result. moved: what its verbs have moved or forgone, counted where APPROVAL_ABOVE is set. leased_by, leased_until: which
    process works on it.
    """

    class State(models.TextChoices):
        RUNNING = "running", _("running")
        STOPPED = "stopped", _("stopped")
        DONE = "done", _("done")

    verb = models.TextField(_("verb"))
    filter = models.JSONField(_("filter"), default=dict)
    changes = models.JSONField(_("changes"), default=dict)
    reason = models.TextField(_("reason"))
    account = models.TextField(_("account"), db_default="", default="")
    started_by = models.TextField(_("started by"))
    approval = models.BigIntegerField(_("approval"), null=True)
    key = models.TextField(_("idempotency key"), null=True)
    state = models.TextField(_("state"), choices=State.choices, db_default=State.RUNNING.value, default=State.RUNNING)
    total = models.IntegerField(_("orders"))
    position = models.IntegerField(_("orders with a result"), db_default=0, default=0)
    done = models.IntegerField(_("done"), db_default=0, default=0)
    failed = models.IntegerField(_("not done"), db_default=0, default=0)
    held = models.JSONField(_("money"), default=list)
    moved = models.JSONField(_("money moved"), db_default=Value([], models.JSONField()), default=list)
    started_at = models.DateTimeField(_("started at"), db_default=Now())
    worked_at = models.DateTimeField(_("last progress at"), db_default=Now())
    stopped_at = models.DateTimeField(_("stopped at"), null=True)
    stopped_by = models.TextField(_("stopped by"), db_default="", default="")
    stop_reason = models.TextField(_("reason of the stop"), db_default="", default="")
    finished_at = models.DateTimeField(_("finished at"), null=True)
    leased_by = models.TextField(_("worked on by"), db_default="", default="")
    leased_until = models.DateTimeField(_("worked on until"), null=True)

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(name="a_form_starts_one_job", fields=["key"]),
            models.CheckConstraint(name="a_jobs_state_is_known_by_name", condition=Q(state__in=["running", "stopped", "done"])),
            models.CheckConstraint(
                name="a_job_has_no_more_results_than_orders",
                condition=Q(position__lte=F("total"), position=F("done") + F("failed"), done__gte=0, failed__gte=0),
            ),
            models.CheckConstraint(
                name="a_job_that_is_done_has_all_results_and_an_end",
                condition=~Q(state="done") | Q(position=F("total"), finished_at__isnull=False),
            ),
        ]
        indexes = [
            models.Index(name="job_running", fields=["worked_at"], condition=Q(state="running")),
            models.Index(name="job_started", fields=["-started_at", "-id"]),
        ]

    def __str__(self) -> str:
        return f"{self._meta.verbose_name} {self.pk}: {self.verb}"


class JobResult(models.Model):
    """What became of one order of a job.

    number: its place in the job, from 1. step, attempt: the failed step and its attempt when the job started; the verb leaves an
    order alone that has changed since. process_state: of its run after the verb. code, message: why the verb was refused.
    """

    class Outcome(models.TextChoices):
        WAITING = "waiting", _("waiting")
        DONE = "done", _("done")
        CHANGED = "changed", _("changed meanwhile")
        REFUSED = "refused", _("refused")
        FAILED = "failed", _("failed")

    job = models.ForeignKey(
        Job, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="results", verbose_name=_("job")
    )
    number = models.IntegerField(_("number"))
    run = models.ForeignKey(Run, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="+", verbose_name=_("run"))
    key = models.TextField(_("order"))
    step = models.TextField(_("step"), db_default="", default="")
    attempt = models.IntegerField(_("attempt"), null=True)
    outcome = models.TextField(_("result"), choices=Outcome.choices, db_default=Outcome.WAITING.value, default=Outcome.WAITING)
    process_state = models.TextField(_("state"), db_default="", default="")
    code = models.TextField(_("code"), db_default="", default="")
    message = models.TextField(_("message"), db_default="", default="")
    acted_at = models.DateTimeField(_("acted at"), null=True)

    class Meta:
        verbose_name = _("result")
        verbose_name_plural = _("results")
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(name="a_jobs_results_are_numbered", fields=["job", "number"]),
            models.CheckConstraint(
                name="a_result_that_waits_has_no_moment",
                condition=Q(outcome="waiting", acted_at__isnull=True)
                | Q(outcome__in=["done", "changed", "refused", "failed"], acted_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.key}: {self.outcome}"


class SavedView(models.Model):
    """Filters of a list under a name. of: the list, as `app.model`. query: its address's parameters. shared: for all, not for its
    owner alone.
    """

    of = models.TextField(_("list"))
    name = models.TextField(_("name"))
    query = models.TextField(_("filters"))
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, db_constraint=False, verbose_name=_("owner"))
    shared = models.BooleanField(_("shared"), db_default=False, default=False)
    created_at = models.DateTimeField(_("created at"), db_default=Now())

    class Meta:
        verbose_name = _("saved view")
        verbose_name_plural = _("saved views")
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(name="a_persons_view_has_a_name_of_its_own", fields=["owner", "of", "name"], condition=Q(shared=False)),
            models.UniqueConstraint(name="a_shared_view_has_a_name_of_its_own", fields=["of", "name"], condition=Q(shared=True)),
        ]

    def __str__(self) -> str:
        return self.name
