"""What comes in: messages that are not yet orders, signals to orders, how far schedules have come, and the children of runs."""

from __future__ import annotations

from enum import StrEnum

from django.db import models
from django.db.models import Q
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
    """The time until which a schedule's runs were started, and whether it works. A new schedule begins now.

    failing_since, failed_at: when it first and last could not start its runs. missed: the last time that got no run. All are
    empty again once it has started a run.
    """

    name = models.TextField(_("schedule"), primary_key=True)
    done_until = models.DateTimeField(_("done until"), db_default=Now())
    failing_since = models.DateTimeField(_("failing since"), null=True)
    failed_at = models.DateTimeField(_("last failed at"), null=True)
    last_error = models.TextField(_("last error"), db_default="")
    missed = models.DateTimeField(_("missed"), null=True)

    class Meta:
        verbose_name = _("progress of a schedule")
        verbose_name_plural = _("progress of schedules")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.name


class ChildState(StrEnum):
    """Where a child stands, for its parent. The database keeps it in step with the child's run."""

    WAITING = "Waiting"  # it has no submission yet: others of its step are unfinished
    STARTED = "Started"
    PROCESSED = "Processed"
    UNDOING = "Undoing"
    CANCELLED = "Cancelled"
    REPLACED = "Replaced"  # it was Cancelled, and its step starts another one in its place, or is done anew


class Child(models.Model):
    """One child of a step: its key, its parent's, and what it is to be started with.

    root_key: the topmost run above it. step: the parent's step. number: the item's index, from 0. many: one of a `ForEach`.
    generation: the generation of the parent's step that made it. payload: the exact text of its submission.
    """

    key = models.TextField(_("order"), primary_key=True)
    parent_key = models.TextField(_("parent"))
    root_key = models.TextField(_("root"))
    step = models.TextField(_("step"))
    number = models.IntegerField(_("number"), db_default=0)
    many = models.BooleanField(_("one of many"), db_default=False)
    generation = models.SmallIntegerField(_("generation"), db_default=1)
    state = models.TextField(_("state"), choices=[(state.value, state.value) for state in ChildState], db_default=ChildState.WAITING.value)
    workflow = models.TextField(_("workflow"))
    payload = models.TextField(_("payload"))
    session_key = models.TextField(_("session"), null=True)
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    started_at = models.DateTimeField(_("started at"), null=True)
    ended_at = models.DateTimeField(_("ended at"), null=True)

    class Meta:
        verbose_name = _("child run")
        verbose_name_plural = _("child runs")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(name="a_child_is_made_once", fields=["parent_key", "step", "number", "generation"]),
            models.CheckConstraint(name="a_child_is_in_a_known_state", condition=Q(state__in=[state.value for state in ChildState])),
        ]
        indexes = [models.Index(name="child_of_a_step", fields=["parent_key", "step", "state", "number"])]

    def __str__(self) -> str:
        return self.key
