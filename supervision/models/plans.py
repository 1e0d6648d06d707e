"""Which workflow definitions this database has seen."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class WorkflowVersion(models.Model):
    """One version of one workflow, with the definition that all code must have. Written once, by the first process that knows it."""

    name = models.TextField(_("workflow"))
    version = models.SmallIntegerField(_("version"))
    fingerprint = models.TextField(_("fingerprint"))
    definition = models.JSONField(_("definition"))
    registered_at = models.DateTimeField(_("registered at"), db_default=Now())

    class Meta:
        verbose_name = _("workflow version")
        verbose_name_plural = _("workflow versions")
        default_permissions = ()
        constraints = [models.UniqueConstraint(name="a_version_of_a_workflow_means_one_plan", fields=["name", "version"])]

    def __str__(self) -> str:
        return f"{self.name} version {self.version}"
