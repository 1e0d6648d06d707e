"""What comes in: messages that are not yet orders, signals to orders, and how far schedules have come."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class Receipt(models.Model):
    """The reading of a redelivered message, committed before it begins and removed when it ends.

    deliveries: readings that began and did not end, each by another process. reader: the last of these processes.
    """

    digest = models.TextField(_("digest"), primary_key=True)
    deliveries = models.SmallIntegerField(_("deliveries"), db_default=1)
    reader = models.TextField(_("reader"), null=True)
    seen_at = models.DateTimeField(_("seen at"), db_default=Now())

    class Meta:
        verbose_name = _("receipt")
        verbose_name_plural = _("receipts")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.digest[:12]}: {self.deliveries}"


class Signal(models.Model):
    """A signal to one run: a fact from outside that a step waits for, or will wait for. It is kept, also if no step takes it.

    run_key: the run's public id; the signal may come before the run. key: the sender's own, so that repeating is harmless.
    taken_by: the name of the step that has taken it, at taken_attempt. A signal is taken once.
    """

    run_key = models.TextField(_("order"))
    name = models.TextField(_("signal"))
    key = models.TextField(_("idempotency key"))
    payload = models.JSONField(_("payload"), db_default={})
    sent_by = models.TextField(_("sent by"), db_default="")
    reason = models.TextField(_("reason"), db_default="")
    sent_at = models.DateTimeField(_("sent at"), db_default=Now())
    taken_by = models.TextField(_("taken by"), null=True)
    taken_at = models.DateTimeField(_("taken at"), null=True)
    taken_attempt = models.IntegerField(_("taken at attempt"), null=True)

    class Meta:
        verbose_name = _("signal")
        verbose_name_plural = _("signals")
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(name="a_signal_comes_once", fields=["run_key", "name", "key"])]

    def __str__(self) -> str:
        return f"{self.name} to {self.run_key}"


class ScheduleProgress(models.Model):
    """The time until which a schedule's runs were started. A new schedule begins now."""

    name = models.TextField(_("schedule"), primary_key=True)
    done_until = models.DateTimeField(_("done until"), db_default=Now())

    class Meta:
        verbose_name = _("progress of a schedule")
        verbose_name_plural = _("progress of schedules")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.name
