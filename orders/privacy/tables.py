"""The table of erasures."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from orders.mails.codes import ERASED_DOMAIN


class Erasure(models.Model):
    """The erasure of one person, and how far it is. The row stays as the record of it, without personal data.

    digests: hashes of the person's mail addresses, which tell whether an address was erased and not which one it was. subject: what
    names the person, which the work needs; empty once it is done. step, place: where the work goes on. counts: rows changed, by step.
    waits: how many orders have not ended, or cannot leave yet; empty when there are none. tried_at: when it was worked at last.
    """

    class State(models.TextChoices):
        WORKING = "working", _("at work")
        DONE = "done", _("done")

    digests = ArrayField(models.TextField(), verbose_name=_("digests"))
    subject = models.JSONField(_("subject"), default=dict)
    reason = models.TextField(_("reason"))
    asked_by = models.TextField(_("asked by"))
    asked_at = models.DateTimeField(_("asked at"), db_default=Now())
    state = models.TextField(_("state"), choices=State.choices, db_default=State.WORKING.value, default=State.WORKING)
    step = models.TextField(_("step"), db_default="orders", default="orders")
    place = models.JSONField(_("place"), default=list)
    counts = models.JSONField(_("rows changed"), default=dict)
    waits = models.IntegerField(_("orders that wait"), null=True)
    tried_at = models.DateTimeField(_("worked at"), null=True)
    done_at = models.DateTimeField(_("done at"), null=True)

    class Meta:
        app_label = "orders"
        verbose_name = _("erasure")
        verbose_name_plural = _("erasures")
        default_permissions = ()
        permissions = [("erase_person", _("Can erase a person's data")), ("export_person", _("Can export a person's data"))]
        constraints = [
            models.UniqueConstraint(name="a_person_is_erased_once_at_a_time", fields=["digests"], condition=Q(done_at__isnull=True)),
            models.CheckConstraint(
                name="an_erasure_that_is_done_names_no_one",
                condition=Q(state="working", done_at__isnull=True) | Q(state="done", done_at__isnull=False, subject={}),
            ),
        ]

    def __str__(self) -> str:
        return f"erasure {self.pk}"

    @property
    def pseudonym(self) -> str:
        """The mail address that stands in orders in place of the person's own. No mail goes there."""
        return f"erased-{self.pk}@{ERASED_DOMAIN}"
