"""The table of mails that operators send once more."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class MailAgain(models.Model):
    """An order's mail that is sent once more. It has a run of its own, with the same public id."""

    public_id = models.TextField(_("public id"))
    order_key = models.TextField(_("order"), db_index=True)
    email = models.TextField(_("e-mail"))
    reason = models.TextField(_("reason"))
    asked_by = models.TextField(_("asked by"))
    created_at = models.DateTimeField(_("created at"), db_default=Now())

    class Meta:
        app_label = "orders"
        verbose_name = _("mail sent again")
        verbose_name_plural = _("mails sent again")
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(name="a_mail_sent_again_has_one_run", fields=["public_id"])]

    def __str__(self) -> str:
        return self.public_id
