"""Adds who looks after an incident, what was noted about it, and the figures of each minute for the console's charts."""

from __future__ import annotations

import django.contrib.postgres.fields
from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    """Two new tables, and columns without a value or with constant defaults."""

    dependencies = [("supervision", "0010_run_cancelled")]
    operations = [
        migrations.AddField("incident", "owner", models.TextField(db_default="", default="", verbose_name="owner")),
        migrations.AddField("incident", "held", models.JSONField(db_default=[], default=list, verbose_name="money held")),
        migrations.AddField("incident", "held_at", models.DateTimeField(null=True, verbose_name="money counted at")),
        migrations.CreateModel(
            "IncidentNote",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("author", models.TextField(verbose_name="author")),
                ("text", models.TextField(verbose_name="text")),
                ("at", models.DateTimeField(db_default=Now(), verbose_name="at")),
                (
                    "incident",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=models.DO_NOTHING,
                        related_name="notes",
                        to="supervision.incident",
                        verbose_name="incident",
                    ),
                ),
            ],
            options={"verbose_name": "note", "verbose_name_plural": "notes", "default_permissions": ("view",)},
        ),
        migrations.CreateModel(
            "Pulse",
            [
                ("minute", models.DateTimeField(primary_key=True, serialize=False, verbose_name="minute")),
                ("recorded_at", models.DateTimeField(db_default=Now(), verbose_name="recorded at")),
                ("processed", models.IntegerField(db_default=0, verbose_name="processed")),
                ("cancelled", models.IntegerField(db_default=0, verbose_name="cancelled")),
                ("stopped", models.IntegerField(db_default=0, verbose_name="stopped by an error")),
                ("oldest_seconds", models.FloatField(null=True, verbose_name="age of the oldest waiting work")),
                (
                    "classes",
                    django.contrib.postgres.fields.ArrayField(
                        models.SmallIntegerField(), db_default=[], size=None, verbose_name="classes of duration"
                    ),
                ),
                (
                    "counts",
                    django.contrib.postgres.fields.ArrayField(
                        models.IntegerField(), db_default=[], size=None, verbose_name="orders in each class"
                    ),
                ),
                ("incidents", models.JSONField(null=True, verbose_name="orders held by each incident")),
            ],
            options={"verbose_name": "minute", "verbose_name_plural": "minutes", "default_permissions": ()},
        ),
    ]
