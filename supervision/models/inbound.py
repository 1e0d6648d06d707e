"""What is remembered of messages from outside while they are not yet orders."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class Receipt(models.Model):
    """How often reading a message was begun, for those that came more than once; committed before it is read."""

    digest = models.TextField(_("digest"), primary_key=True)
    deliveries = models.SmallIntegerField(_("deliveries"), db_default=1)
    seen_at = models.DateTimeField(_("seen at"), db_default=Now())

    class Meta:
        verbose_name = _("receipt")
        verbose_name_plural = _("receipts")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.digest[:12]}: {self.deliveries}"
