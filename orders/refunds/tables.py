"""The table of refunds that operators ask for."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class Refund(models.Model):
    """A part of an order's charge that an operator gives back. It has a run of its own, with the same public id."""

    public_id = models.TextField(_("public id"))
    order_key = models.TextField(_("order"), db_index=True)
    number = models.TextField(_("number"))
    amount = models.DecimalField(_("amount"), max_digits=12, decimal_places=2)
    currency = models.CharField(_("currency"), max_length=3)
    reason = models.TextField(_("reason"))
    replaces = models.TextField(_("failed refund"), blank=True, default="", db_default="")  # which this one pays again; else empty
    asked_by = models.TextField(_("asked by"))
    created_at = models.DateTimeField(_("created at"), db_default=Now())

    class Meta:
        app_label = "orders"
        verbose_name = _("refund")
        verbose_name_plural = _("refunds")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(name="a_refund_has_one_run", fields=["public_id"]),
            models.CheckConstraint(name="a_refund_gives_something_back", condition=Q(amount__gt=0)),
        ]

    def __str__(self) -> str:
        return self.number
