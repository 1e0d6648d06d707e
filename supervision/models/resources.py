"""Remote resources as operators see and edit them: limits, breaker, routes, pauses; and the slots of calls in flight."""

from __future__ import annotations

from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class Resource(models.Model):
    """A remote service as all workers see it: the breaker's state and its limits. Operators edit the limits.

    service: what agents ask for; several resources may serve one (two carrier accounts). capacity: calls in flight at
    most, over all workers; null = no limit. rate_per_second: calls begun per second at most. settings: what the agent
    needs to call this one (an address, an account), never a secret. next_call_at: when the rate allows another call.

    failures: counted by the breaker since its last success; suspects: the runs that failed since then. successes: when the
    latest calls succeeded, in seconds since 1970, written only while there are failures to compare them with. probing: the
    runs whose steps probe it.
    """

    class Breaker(models.TextChoices):
        CLOSED = "closed", _("closed")
        OPEN = "open", _("open")
        HALF_OPEN = "half-open", _("half-open")

    name = models.TextField(_("name"), unique=True)
    service = models.TextField(_("service"), db_default="", default="", blank=True)
    capacity = models.PositiveIntegerField(
        _("calls at once"), null=True, blank=True, validators=[MinValueValidator(1)], help_text=_("Over all workers; empty: no limit.")
    )
    rate_per_second = models.FloatField(
        _("calls per second"), null=True, blank=True, validators=[MinValueValidator(0.001)], help_text=_("Empty: no limit.")
    )
    paused = models.BooleanField(_("paused"), db_default=False, default=False)
    settings = models.JSONField(_("settings"), db_default={}, default=dict, blank=True)
    breaker_state = models.TextField(_("breaker"), choices=Breaker.choices, db_default=Breaker.CLOSED.value, default=Breaker.CLOSED)
    failures = models.IntegerField(_("failures in a row"), db_default=0, default=0)
    breaker_threshold = models.PositiveSmallIntegerField(
        _("failures that open it"), db_default=5, default=5, validators=[MinValueValidator(1)]
    )
    cool_down_seconds = models.PositiveIntegerField(_("cool-down in seconds"), db_default=5, default=5, validators=[MinValueValidator(1)])
    probe_limit = models.PositiveSmallIntegerField(_("probes at once"), db_default=1, default=1, validators=[MinValueValidator(1)])
    probes = models.IntegerField(_("probes under way"), db_default=0, default=0)
    probes_until = models.DateTimeField(_("probes given up at"), null=True, blank=True)
    opened_at = models.DateTimeField(_("opened at"), null=True, blank=True)
    retry_at = models.DateTimeField(_("tried again at"), null=True, blank=True)
    next_call_at = models.DateTimeField(_("next call at"), null=True, blank=True)
    last_error = models.TextField(_("last error"), db_default="", default="", blank=True)
    last_error_at = models.DateTimeField(_("last error at"), null=True, blank=True)
    last_code = models.TextField(_("code of the last error"), db_default="", default="", blank=True)
    suspects = models.JSONField(_("orders that failed since the last success"), db_default=[], default=list, blank=True)
    successes = models.JSONField(_("last successes"), db_default=[], default=list, blank=True)
    probing = models.JSONField(_("orders that try it out"), db_default=[], default=list, blank=True)

    class Meta:
        verbose_name = _("resource")
        verbose_name_plural = _("resources")
        default_permissions = ("view", "change")
        constraints = [
            models.CheckConstraint(name="a_breaker_is_in_a_known_state", condition=Q(breaker_state__in=["closed", "open", "half-open"])),
            models.CheckConstraint(
                name="a_resource_allows_at_least_something",
                condition=(Q(capacity__isnull=True) | Q(capacity__gte=1)) & (Q(rate_per_second__isnull=True) | Q(rate_per_second__gt=0)),
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Closure(models.Model):
    """A time in which a resource took no calls: its breaker was not closed, or an operator had paused it.

    A trigger on the resource's row maintains it for every change of that row. ended_at: null = it lasts.
    """

    resource = models.TextField(_("resource"))
    began_at = models.DateTimeField(_("began at"), db_default=Now())
    ended_at = models.DateTimeField(_("ended at"), null=True)

    class Meta:
        verbose_name = _("closure")
        verbose_name_plural = _("closures")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(name="a_resource_is_closed_once_at_a_time", fields=["resource"], condition=Q(ended_at__isnull=True))
        ]
        indexes = [models.Index(name="closure_lately", fields=["resource", "ended_at"])]

    def __str__(self) -> str:
        return f"{self.resource}: {self.began_at}"


class Slot(models.Model):
    """The lease of one call in flight at a resource with limits: the slot of a killed holder is free again after `until`."""

    resource = models.TextField(_("resource"))
    run = models.ForeignKey("supervision.Run", on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="slots")
    direction = models.TextField(_("direction"))
    position = models.SmallIntegerField(_("position"))
    attempt = models.IntegerField(_("attempt"))
    holder = models.TextField(_("holder"))
    taken_at = models.DateTimeField(_("taken at"), db_default=Now())
    until = models.DateTimeField(_("until"))

    class Meta:
        verbose_name = _("slot")
        verbose_name_plural = _("slots")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(name="an_attempt_holds_one_slot", fields=["resource", "run", "direction", "position", "attempt"])
        ]

    def __str__(self) -> str:
        return f"{self.resource}: {self.run_id}"


class ResourceRoute(models.Model):
    """Which resource serves a partition of a service's entities. Editing it moves them: the next call goes to the new one."""

    service = models.TextField(_("service"))
    partition = models.TextField(_("partition"))
    resource = models.TextField(_("resource"))
    version = models.PositiveIntegerField(_("version"), db_default=1, default=1)
    changed_at = models.DateTimeField(_("changed at"), db_default=Now(), auto_now=True)

    class Meta:
        verbose_name = _("route")
        verbose_name_plural = _("routes")
        constraints = [models.UniqueConstraint(name="a_partition_has_one_route", fields=["service", "partition"])]

    def __str__(self) -> str:
        return f"{self.service}/{self.partition} -> {self.resource}"


class Pause(models.Model):
    """Claims stop for one order, one agent, one workflow or all, until an operator lifts the pause or its time is over."""

    class Scope(models.TextChoices):
        ALL = "all", _("everything")
        WORKFLOW = "workflow", _("workflow")
        AGENT = "agent", _("agent")
        ORDER = "order", _("order")

    scope = models.TextField(_("scope"), choices=Scope.choices)
    name = models.TextField(_("name"), db_default="", default="", blank=True)
    run = models.ForeignKey(
        "supervision.Run", on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, null=True, blank=True, related_name="pauses"
    )
    reason = models.TextField(_("reason"))
    paused_by = models.TextField(_("paused by"))
    paused_at = models.DateTimeField(_("paused at"), db_default=Now())
    until = models.DateTimeField(_("until"), null=True, blank=True)
    lifted_at = models.DateTimeField(_("lifted at"), null=True, blank=True)
    lifted_by = models.TextField(_("lifted by"), db_default="", default="", blank=True)
    lift_reason = models.TextField(_("why lifted"), db_default="", default="", blank=True)

    class Meta:
        verbose_name = _("pause")
        verbose_name_plural = _("pauses")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(name="one_pause_of_a_thing_at_a_time", fields=["scope", "name"], condition=Q(lifted_at__isnull=True))
        ]
        indexes = [models.Index(name="pause_of_an_order", fields=["run"], condition=Q(lifted_at__isnull=True, scope="order"))]

    def __str__(self) -> str:
        return f"{self.scope} {self.name}".strip()


class CachedResult(models.Model):
    """An answer of a remote service, kept so that calls need not wait for it; refreshed before it expires."""

    cache = models.TextField(_("cache"))
    key = models.TextField(_("key"))
    value = models.JSONField(_("value"), null=True)
    fetched_at = models.DateTimeField(_("fetched at"), null=True)
    refresh_at = models.DateTimeField(_("refreshed from"), null=True)
    expires_at = models.DateTimeField(_("expires at"), null=True)
    used_at = models.DateTimeField(_("used at"), db_default=Now())
    version = models.PositiveIntegerField(_("version"), db_default=1, default=1)
    last_error = models.TextField(_("last error"), db_default="", default="", blank=True)

    class Meta:
        verbose_name = _("cached result")
        verbose_name_plural = _("cached results")
        default_permissions = ("view", "delete")
        constraints = [models.UniqueConstraint(name="a_cache_has_one_value_per_key", fields=["cache", "key"])]
        indexes = [models.Index(name="cached_result_due", fields=["refresh_at"])]

    def __str__(self) -> str:
        return f"{self.cache}: {self.key}"


class WriteProbe(models.Model):
    """One row, which a readiness probe writes to find out whether the database takes writes."""

    id = models.SmallIntegerField(primary_key=True)
    written_at = models.DateTimeField(_("written at"))
    allocated_at = models.DateTimeField(_("allocated at"))

    class Meta:
        verbose_name = _("write probe")
        verbose_name_plural = _("write probes")
        default_permissions = ()

    def __str__(self) -> str:
        return f"written at {self.written_at:%Y-%m-%d %H:%M:%S}"
