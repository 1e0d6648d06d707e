"""The effect ledger. Room in each page for the settlement of its rows: no index has to know of it."""

from __future__ import annotations

from django.db import migrations, models
from django.db.models.functions import Now

from supervision.states import Direction

STORAGE = """
ALTER TABLE supervision_effect SET (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 0.1, autovacuum_analyze_scale_factor = 0.05);
"""
STORAGE_BACK = """
ALTER TABLE supervision_effect RESET (fillfactor, autovacuum_vacuum_scale_factor,
    autovacuum_vacuum_insert_scale_factor, autovacuum_analyze_scale_factor);
"""


class Migration(migrations.Migration):
    """One row for each external operation."""

    dependencies = [
        ("supervision", "0009_audience"),
    ]

    operations = [
        migrations.CreateModel(
            name="Effect",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "run_id", "direction", "position", "key", "operation", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("intended_at", models.DateTimeField(db_default=Now(), verbose_name="intended at")),
                ("settled_at", models.DateTimeField(null=True, verbose_name="settled at")),
                ("attempt", models.IntegerField(verbose_name="attempt")),
                ("position", models.SmallIntegerField(verbose_name="position")),
                ("generation", models.SmallIntegerField(verbose_name="generation")),
                ("direction", models.TextField(choices=[(Direction.DO, "do"), (Direction.UNDO, "undo")], verbose_name="direction")),
                ("key", models.TextField(verbose_name="idempotency key")),
                ("service", models.TextField(verbose_name="service")),
                ("operation", models.TextField(verbose_name="operation")),
                ("amount", models.DecimalField(decimal_places=3, max_digits=18, null=True, verbose_name="amount")),
                ("currency", models.TextField(null=True, verbose_name="currency")),
                ("external_id", models.TextField(db_default="", verbose_name="external id")),
                ("outcome", models.TextField(db_default="intended", verbose_name="outcome")),
                ("actor", models.TextField(verbose_name="actor")),
                (
                    "run",
                    models.ForeignKey(
                        db_constraint=False, db_index=False, on_delete=models.DO_NOTHING, related_name="effects", to="supervision.run"
                    ),
                ),
            ],
            options={
                "verbose_name": "effect",
                "verbose_name_plural": "effects",
                "default_permissions": ("view",),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("outcome__in", ["intended", "done", "refused", "unknown", "undone"])),
                        name="an_effects_outcome_is_known_by_name",
                    )
                ],
            },
        ),
        migrations.RunSQL(STORAGE, STORAGE_BACK),
    ]
