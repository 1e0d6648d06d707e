"""The effect ledger, one row per external operation of a step; and the epochs of the database."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from supervision.effects import EffectOutcome
from supervision.models.labels import DIRECTION_LABELS
from supervision.models.states import Run


class Effect(models.Model):
    """One external operation under its idempotency key: committed before the call, settled after it.

    generation, attempt, actor: of the attempt that called it last. amount: in the currency's usual unit, where money
    moves. external_id: the service's id of it, empty while that is not known. Written by `ledger.effect_rows` alone.
    """

    pk = models.CompositePrimaryKey("run_id", "direction", "position", "key", "operation")
    run = models.ForeignKey(Run, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="effects")
    intended_at = models.DateTimeField(_("intended at"), db_default=Now())
    settled_at = models.DateTimeField(_("settled at"), null=True)
    attempt = models.IntegerField(_("attempt"))
    position = models.SmallIntegerField(_("position"))
    generation = models.SmallIntegerField(_("generation"))
    direction = models.TextField(_("direction"), choices=list(DIRECTION_LABELS.items()))
    key = models.TextField(_("idempotency key"))
    service = models.TextField(_("service"))
    operation = models.TextField(_("operation"))
    amount = models.DecimalField(_("amount"), max_digits=18, decimal_places=3, null=True)
    currency = models.TextField(_("currency"), null=True)
    external_id = models.TextField(_("external id"), db_default="")
    outcome = models.TextField(_("outcome"), db_default=EffectOutcome.INTENDED.value)
    actor = models.TextField(_("actor"))

    class Meta:
        verbose_name = _("effect")
        verbose_name_plural = _("effects")
        default_permissions = ("view",)
        constraints = [
            models.CheckConstraint(
                name="an_effects_outcome_is_known_by_name", condition=Q(outcome__in=[outcome.value for outcome in EffectOutcome])
            )
        ]

    def __str__(self) -> str:
        return f"{self.operation} {self.key}: {self.outcome}"


class Exchange(models.Model):
    """One call of an attempt to a remote service and its answer, masked and cut, kept for EXCHANGE_DAYS. It decides nothing.

    call: what was called, such as the method and the path. status: the service's own code; null where no answer came.
    """

    run = models.ForeignKey(Run, on_delete=models.DO_NOTHING, db_constraint=False, related_name="exchanges")
    direction = models.TextField(_("direction"), choices=list(DIRECTION_LABELS.items()))
    position = models.SmallIntegerField(_("position"))
    attempt = models.IntegerField(_("attempt"))
    service = models.TextField(_("service"))
    call = models.TextField(_("call"))
    asked = models.TextField(_("request"))
    answered = models.TextField(_("answer"))
    status = models.IntegerField(_("status"), null=True)
    seconds = models.FloatField(_("seconds"))
    at = models.DateTimeField(_("at"), db_default=Now(), db_index=True)

    class Meta:
        verbose_name = _("exchange with a service")
        verbose_name_plural = _("exchanges with services")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.service} {self.call}: {self.status}"


class Epoch(models.Model):
    """One epoch of the database: from its creation, promotion or restore until the next of these (see `epochs`).

    store: the identities of the database and of this table. Runs and submissions with smaller ids than the first ones
    are older than the epoch.
    """

    number = models.IntegerField(_("number"), primary_key=True)
    system_identifier = models.TextField(_("cluster"))
    timeline = models.IntegerField(_("timeline"))
    store = models.TextField(_("database"))
    began_at = models.DateTimeField(_("began at"), db_default=Now())
    first_run_id = models.BigIntegerField(_("first run"))
    first_submission_id = models.BigIntegerField(_("first submission"))
    reason = models.TextField(_("reason"))
    by = models.TextField(_("by"))

    class Meta:
        verbose_name = _("epoch")
        verbose_name_plural = _("epochs")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.number}: {self.reason}"
