"""Records of messages from external producers that are not yet orders."""

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
