"""Archived runs: a finished run that has left the hot tables is one compact row, from which everything is read again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from supervision.models.incidents import Alert
from supervision.models.labels import RUN_LABELS
from supervision.models.ledger import Effect
from supervision.models.resources import Pause
from supervision.models.states import Run, StepEvent, StepState, StrayReply

Row = TypeVar("Row", bound=models.Model)


class ArchivedRun(models.Model):
    """A finished run with its steps, events, late answers, alerts and pauses, and the data that its application keeps of it.

    run_id: the id it had. reference: its name in the application, such as an order number. body: the rows as
    JSON, column by column; PostgreSQL compresses it. Written once, by `archive`.
    """

    key = models.TextField(_("public id"), primary_key=True)
    run_id = models.BigIntegerField(_("run"), unique=True)
    reference = models.TextField(_("reference"), null=True)
    workflow = models.TextField(_("workflow"))
    process_state = models.TextField(_("state"), choices=list(RUN_LABELS.items()))
    created_at = models.DateTimeField(_("created at"))
    finished_at = models.DateTimeField(_("finished at"))
    archived_at = models.DateTimeField(_("archived at"), db_default=Now())
    body = models.JSONField(_("body"))

    class Meta:
        verbose_name = _("archived run")
        verbose_name_plural = _("archived runs")
        default_permissions = ("view",)
        indexes = [models.Index(name="archived_run_by_reference", fields=["reference"], condition=Q(reference__isnull=False))]

    def __str__(self) -> str:
        return self.reference or f"run {self.key}"

    @property
    def run(self) -> Run:
        """The run as it was when it ended."""
        return _row(Run, {**self.body["run"], "id": self.run_id})

    @property
    def steps(self) -> list[StepState]:
        """Its steps, as they ended."""
        return self._rows(StepState, "steps")

    @property
    def events(self) -> list[StepEvent]:
        """Its history, in order."""
        return self._rows(StepEvent, "events")

    @property
    def strays(self) -> list[StrayReply]:
        """Answers that came too late."""
        return self._rows(StrayReply, "strays")

    @property
    def effects(self) -> list[Effect]:
        """The external effects of its steps; empty for a run that was archived before there was a ledger."""
        return self._rows(Effect, "effects")

    @property
    def alerts(self) -> list[Alert]:
        """Its alerts; each has been acknowledged."""
        return self._rows(Alert, "alerts")

    @property
    def pauses(self) -> list[Pause]:
        """The pauses of this order alone."""
        return self._rows(Pause, "pauses")

    @property
    def application(self) -> Mapping[str, Any]:
        """The data that the application wanted kept; empty if it keeps its own rows or has none."""
        return self.body.get("application") or {}

    def _rows(self, model: type[Row], name: str) -> list[Row]:
        return [_row(model, {**facts, "run_id": self.run_id}) for facts in self.body.get(name) or ()]


def _row(model: type[Row], facts: Mapping[str, Any]) -> Row:
    """An instance of an archived row. Columns that the row did not have are null; those that the model lacks are left out."""
    return model(
        **{
            field.attname: None if facts.get(field.column) is None else field.to_python(facts[field.column])
            for field in model._meta.concrete_fields
            if field.column is not None
        }
    )
