"""Incidents, one row per open or closed cause, of which operators are notified; and alerts, one row per order it stopped."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from supervision.models.labels import DIRECTION_LABELS
from supervision.runtime.retold import retold


class Incident(models.Model):
    """One cause. The incident is open while the cause stands; `incidents.lifecycle.look` opens, counts and closes it.

    cause: the stable key of the cause; at most one open incident has it. orders: how many unfinished orders it holds now.
    reopened_at: when its cause last returned soon after it had closed; seen_at: when it was last acknowledged before that.
    notified_at: when operators were last notified; told_severity: the highest severity they were notified of, empty before that;
    told_closed_at: when they were notified that it is over. owner: the operator who looks after it. held: the worth of its
    orders, as [amount, currency], at `held_at`.
    """

    class Severity(models.TextChoices):
        INFO = "info", _("info")
        WARNING = "warning", _("warning")
        CRITICAL = "critical", _("critical")

    kind = models.TextField(_("kind"))
    cause = models.TextField(_("cause"))
    title = models.TextField(_("title"), db_default="", default="")
    resource = models.TextField(_("resource"), db_default="", default="")
    step = models.TextField(_("step"), db_default="", default="")
    code = models.TextField(_("code"), db_default="", default="")
    severity = models.TextField(_("severity"), choices=Severity.choices, db_default=Severity.WARNING.value, default=Severity.WARNING)
    orders = models.IntegerField(_("orders"), db_default=0, default=0)
    opened_at = models.DateTimeField(_("opened at"), db_default=Now())
    reopened_at = models.DateTimeField(_("returned at"), null=True)
    closed_at = models.DateTimeField(_("closed at"), null=True)
    acknowledged_at = models.DateTimeField(_("acknowledged at"), null=True)
    acknowledged_by = models.TextField(_("acknowledged by"), db_default="", default="")
    acknowledge_reason = models.TextField(_("reason of the acknowledgement"), db_default="", default="")
    seen_at = models.DateTimeField(_("acknowledged at"), null=True)
    notified_at = models.DateTimeField(_("notified at"), null=True)
    told_severity = models.TextField(_("severity told"), db_default="", default="")
    told_closed_at = models.DateTimeField(_("told of its end at"), null=True)
    owner = models.TextField(_("owner"), db_default="", default="")
    held = models.JSONField(_("money held"), db_default=[], default=list)
    held_at = models.DateTimeField(_("money counted at"), null=True)

    class Meta:
        verbose_name = _("incident")
        verbose_name_plural = _("incidents")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(name="a_cause_has_one_open_incident", fields=["cause"], condition=Q(closed_at__isnull=True)),
            models.CheckConstraint(
                name="an_incidents_severity_is_known_by_name", condition=Q(severity__in=["info", "warning", "critical"])
            ),
        ]
        indexes = [
            models.Index(name="incident_closed", fields=["cause", "-closed_at"], condition=Q(closed_at__isnull=False)),
            models.Index(name="incident_opened", fields=["-opened_at"]),
        ]

    def __str__(self) -> str:
        return retold(self.title) or self.cause


class IncidentNote(models.Model):
    """What an operator noted about an incident, and each change of its owner. Rows are added, never changed."""

    incident = models.ForeignKey(
        Incident, on_delete=models.DO_NOTHING, db_constraint=False, related_name="notes", verbose_name=_("incident")
    )
    author = models.TextField(_("author"))
    text = models.TextField(_("text"))
    at = models.DateTimeField(_("at"), db_default=Now())

    class Meta:
        verbose_name = _("note")
        verbose_name_plural = _("notes")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.author}: {self.text}"


class RunNote(models.Model):
    """What an operator noted about an order, and each change of its owner. Rows are added, never changed."""

    run_key = models.TextField(_("public id"), db_index=True)
    author = models.TextField(_("author"))
    text = models.TextField(_("text"))
    at = models.DateTimeField(_("at"), db_default=Now())

    class Meta:
        verbose_name = _("note on an order")
        verbose_name_plural = _("notes on orders")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.author}: {self.text}"


class Assignee(models.Model):
    """The operator who looks after an order; empty: there is none any more."""

    run_key = models.TextField(_("public id"), primary_key=True)
    owner = models.TextField(_("owner"))
    since = models.DateTimeField(_("since"), db_default=Now())

    class Meta:
        verbose_name = _("owner of an order")
        verbose_name_plural = _("owners of orders")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.run_key}: {self.owner}"


class Pulse(models.Model):
    """The figures of one minute. `incidents.pulse` writes a row for each, also for those in which nothing happened.

    stopped: errors that stopped an order. seconds: the times to Processed, added up. oldest_seconds: how long the work that waited
    longest had waited; null: not looked at.
    classes, counts: how many orders became Processed within which class of time. incidents: the orders that each open
    incident held; null: not looked at.
    """

    minute = models.DateTimeField(_("minute"), primary_key=True)
    recorded_at = models.DateTimeField(_("recorded at"), db_default=Now())
    processed = models.IntegerField(_("processed"), db_default=0)
    cancelled = models.IntegerField(_("cancelled"), db_default=0)
    stopped = models.IntegerField(_("stopped by an error"), db_default=0)
    oldest_seconds = models.FloatField(_("age of the oldest waiting work"), null=True)
    classes = ArrayField(models.SmallIntegerField(), verbose_name=_("classes of duration"), db_default=[])
    counts = ArrayField(models.IntegerField(), verbose_name=_("orders in each class"), db_default=[])
    incidents = models.JSONField(_("orders held by each incident"), null=True)
    seconds = models.FloatField(_("seconds to Processed, added up"), null=True)

    class Meta:
        verbose_name = _("minute")
        verbose_name_plural = _("minutes")
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.minute:%Y-%m-%d %H:%M}"


class PulseTotal(models.Model):
    """What all minutes before `until` add up to: one row. counts: the orders in each class of duration, from class 0."""

    until = models.DateTimeField(_("until"))
    processed = models.BigIntegerField(_("processed"), db_default=0)
    cancelled = models.BigIntegerField(_("cancelled"), db_default=0)
    stopped = models.BigIntegerField(_("stopped by an error"), db_default=0)
    seconds = models.FloatField(_("seconds to Processed, added up"), db_default=0)
    counts = ArrayField(models.BigIntegerField(), verbose_name=_("orders in each class"), db_default=[])

    class Meta:
        verbose_name = _("total of the minutes")
        verbose_name_plural = _("totals of the minutes")
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.processed} until {self.until:%Y-%m-%d %H:%M}"


class Metric(models.Model):
    """One series of a counter or histogram, added up over all processes. labels: a JSON list. buckets: the counts of a histogram's."""

    pk = models.CompositePrimaryKey("name", "labels")
    name = models.TextField(_("name"))
    labels = models.TextField(_("labels"))
    buckets = ArrayField(models.BigIntegerField(), verbose_name=_("buckets"), db_default=[])
    total = models.FloatField(_("total"), db_default=0)
    added_at = models.DateTimeField(_("added at"), db_default=Now())

    class Meta:
        verbose_name = _("metric")
        verbose_name_plural = _("metrics")
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.name} {self.labels}"


class Alert(models.Model):
    """A reason why one order needs an operator, written with the transition that caused it. Notifications tell of incidents only.

    Open until its order leaves Error or its reason is over; an acknowledged alert is still open. cause: the cause of the
    incident that groups it, empty until `incidents.lifecycle.look` has seen it.
    """

    class Kind(models.TextChoices):
        ERROR = "error", _("Step in error")
        EXHAUSTED = "exhausted", _("Attempts exhausted, waiting longer")
        SKIPPED = "skipped", _("Step given up, order went on")
        STARVATION = "starvation", _("Not started in time")
        LOST_DISPATCH = "lost-dispatch", _("Lost dispatch")

    run = models.ForeignKey("supervision.Run", on_delete=models.DO_NOTHING, db_constraint=False, related_name="alerts")
    position = models.SmallIntegerField(_("position"))
    direction = models.TextField(_("direction"), choices=list(DIRECTION_LABELS.items()))
    generation = models.SmallIntegerField(_("generation"))
    kind = models.TextField(_("kind"), choices=Kind.choices)
    step = models.TextField(_("step"), db_default="")
    message = models.TextField(_("message"), db_default="")
    raised_at = models.DateTimeField(_("raised at"), db_default=Now())
    acknowledged_at = models.DateTimeField(_("acknowledged at"), null=True, blank=True)
    acknowledged_by = models.TextField(_("acknowledged by"), db_default="", blank=True)
    code = models.TextField(_("code"), db_default="", default="")
    severity = models.TextField(_("severity"), db_default="warning", default="warning")
    cause = models.TextField(_("cause"), db_default="", default="")
    incident = models.ForeignKey(
        Incident,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        null=True,
        related_name="alerts",
        verbose_name=_("incident"),
    )
    closed_at = models.DateTimeField(_("closed at"), null=True)

    class Meta:
        verbose_name = _("alert")
        verbose_name_plural = _("alerts")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(
                name="a_step_has_one_open_alert_of_a_kind",
                fields=["run", "position", "direction", "kind"],
                condition=Q(closed_at__isnull=True),
            )
        ]
        indexes = [
            models.Index(name="alert_open", fields=["-raised_at"], condition=Q(closed_at__isnull=True)),
            models.Index(name="alert_standing", fields=["id"], condition=Q(closed_at__isnull=True)),
            models.Index(name="alert_raised", fields=["raised_at"], condition=Q(kind="error")),
            models.Index(name="alert_by_code", fields=["code", "run"], condition=Q(closed_at__isnull=True)),
            models.Index(name="alert_by_cause", fields=["cause", "run"], condition=Q(closed_at__isnull=True)),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.step}"
