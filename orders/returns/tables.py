"""The table of corrections: what a warehouse's report on a return said, and what it ought to have said."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class ReturnCorrection(models.Model):
    """One correction of the report on a return. It is never changed.

    lines: for each line of the return `sku`, `unit_price`, and `accepted`, `refused`, `paid`, `restocked`, each before and after.
    paid: whether the return was paid already. too_much: by how much more was paid for pieces that did not come than before it.
    further: what goes out for the pieces that were missed, as `refund`, the public id; empty if nothing does.
    """

    return_key = models.TextField(_("return"))
    number = models.IntegerField(_("number"))
    key = models.TextField(_("idempotency key"))
    digest = models.TextField(_("digest"))
    lines = models.JSONField(_("lines"))
    paid = models.BooleanField(_("paid"))
    too_much = models.DecimalField(_("paid too much"), max_digits=12, decimal_places=2)
    further = models.DecimalField(_("paid further"), max_digits=12, decimal_places=2)
    refund = models.TextField(_("refund"), blank=True, default="", db_default="")
    reason = models.TextField(_("reason"))
    asked_by = models.TextField(_("asked by"))
    created_at = models.DateTimeField(_("created at"), db_default=Now())

    class Meta:
        app_label = "orders"
        verbose_name = _("correction of a return")
        verbose_name_plural = _("corrections of returns")
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(name="corrections_of_a_return_are_counted", fields=["return_key", "number"]),
            models.UniqueConstraint(name="a_key_corrects_a_return_once", fields=["return_key", "key"]),
        ]
        indexes = [models.Index(name="correction_of_refund", fields=["refund"])]

    def __str__(self) -> str:
        return f"{self.return_key}: {self.number}"
