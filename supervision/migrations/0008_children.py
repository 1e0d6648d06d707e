"""Adds child runs: what starts them, and the triggers by which they know their parent and tell it of their end."""

from __future__ import annotations

from django.db import migrations, models
from django.db.models.functions import Now

import supervision.migrations._children_sql as sql


class Migration(migrations.Migration):
    """A new table and a column without a value: no run has a parent before this release, and no row is read or written."""

    dependencies = [("supervision", "0007_one_step_a_branch")]
    operations = [
        migrations.CreateModel(
            name="Child",
            fields=[
                ("key", models.TextField(primary_key=True, serialize=False, verbose_name="order")),
                ("parent_key", models.TextField(verbose_name="parent")),
                ("root_key", models.TextField(verbose_name="root")),
                ("step", models.TextField(verbose_name="step")),
                ("number", models.IntegerField(db_default=0, verbose_name="number")),
                ("many", models.BooleanField(db_default=False, verbose_name="one of many")),
                ("generation", models.SmallIntegerField(db_default=1, verbose_name="generation")),
                (
                    "state",
                    models.TextField(
                        choices=[(state, state) for state in ("Waiting", "Started", "Processed", "Undoing", "Cancelled", "Replaced")],
                        db_default="Waiting",
                        verbose_name="state",
                    ),
                ),
                ("workflow", models.TextField(verbose_name="workflow")),
                ("payload", models.TextField(verbose_name="payload")),
                ("session_key", models.TextField(null=True, verbose_name="session")),
                ("created_at", models.DateTimeField(db_default=Now(), verbose_name="created at")),
                ("started_at", models.DateTimeField(null=True, verbose_name="started at")),
                ("ended_at", models.DateTimeField(null=True, verbose_name="ended at")),
            ],
            options={
                "verbose_name": "child run",
                "verbose_name_plural": "child runs",
                "default_permissions": ("view",),
                "indexes": [models.Index(fields=["parent_key", "step", "state", "number"], name="child_of_a_step")],
                "constraints": [
                    models.UniqueConstraint(fields=("parent_key", "step", "number", "generation"), name="a_child_is_made_once"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("state__in", ["Waiting", "Started", "Processed", "Undoing", "Cancelled", "Replaced"])
                        ),
                        name="a_child_is_in_a_known_state",
                    ),
                ],
            },
        ),
        # The lock on the runs is taken last: clients wait for what follows it, and not for the new table.
        migrations.AddField("run", "parent_key", models.TextField(null=True, verbose_name="parent")),
        *(migrations.RunSQL(statement, reverse) for statement, reverse in (sql.PARENTS, sql.ENDS, sql.FINAL_STATES)),
    ]
