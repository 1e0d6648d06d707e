"""Differences found by comparing our books with the services' own lists, and when each service was last compared."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class Finding(models.Model):
    """One difference between our books and a service's list; written by `reconciliation` alone.

    A row is open until an operator settles it (`verb`, `settled_by`, `reason`) or a later comparison shows that it is gone. A
    difference that comes back is a new row, so the rows are a complete record of the operators' decisions.

    order_key: the public id that the service names. key: the idempotency key under which it was made, if known.
    amount: the money concerned, in the currency's usual unit. verbs: the verbs that may settle it. tries: attempts to settle
    it. seen_at: when it was last found. settling_until: the lease of an attempt that is settling it.
    """

    service = models.TextField(_("service"))
    kind = models.TextField(_("kind"))
    order_key = models.TextField(_("order"), db_default="")
    external_id = models.TextField(_("external id"), db_default="")
    key = models.TextField(_("idempotency key"), db_default="")
    run_id = models.BigIntegerField(_("run"), null=True)
    amount = models.DecimalField(_("amount"), max_digits=18, decimal_places=3, null=True)
    currency = models.TextField(_("currency"), db_default="")
    verbs = models.JSONField(_("verbs"), db_default=[])
    detail = models.TextField(_("detail"), db_default="")
    found_at = models.DateTimeField(_("found at"), db_default=Now())
    seen_at = models.DateTimeField(_("seen at"), db_default=Now())
    settling_until = models.DateTimeField(_("being settled until"), null=True)
    tries = models.IntegerField(_("tries"), db_default=0)
    last_error = models.TextField(_("last error"), db_default="")
    closed_at = models.DateTimeField(_("closed at"), null=True)
    verb = models.TextField(_("settled by"), db_default="")
    settled_by = models.TextField(_("who settled it"), db_default="")
    reason = models.TextField(_("reason"), db_default="")
    outcome = models.TextField(_("outcome"), db_default="")

    class Meta:
        verbose_name = _("finding")
        verbose_name_plural = _("findings")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(
                name="a_difference_is_found_once",
                fields=["service", "kind", "order_key", "external_id"],
                condition=Q(closed_at__isnull=True),
            ),
        ]
        indexes = [
            models.Index(
                name="finding_adopted",
                fields=["service", "kind", "order_key", "external_id"],
                condition=Q(verb="adopt", closed_at__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.external_id or self.order_key}"


class Reconciliation(models.Model):
    """One service's last comparison. compared_at: when the last complete one began. failing_since: none has completed since."""

    service = models.TextField(_("service"), primary_key=True)
    compared_at = models.DateTimeField(_("compared at"), null=True)
    failing_since = models.DateTimeField(_("failing since"), null=True)
    last_error = models.TextField(_("last error"), db_default="")

    class Meta:
        verbose_name = _("reconciliation")
        verbose_name_plural = _("reconciliations")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return self.service
