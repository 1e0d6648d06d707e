"""Adds signals, what a step waits for, and how far schedules have come."""

from __future__ import annotations

from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    """Two new tables, and three columns without a value: no row of the old tables is read or written."""

    dependencies = [("supervision", "0002_no_default_workflow")]
    operations = [
        migrations.CreateModel(
            name="Signal",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("run_key", models.TextField(verbose_name="order")),
                ("name", models.TextField(verbose_name="signal")),
                ("key", models.TextField(verbose_name="idempotency key")),
                ("payload", models.JSONField(db_default={}, verbose_name="payload")),
                ("sent_by", models.TextField(db_default="", verbose_name="sent by")),
                ("reason", models.TextField(db_default="", verbose_name="reason")),
                ("sent_at", models.DateTimeField(db_default=Now(), verbose_name="sent at")),
                ("taken_by", models.TextField(null=True, verbose_name="taken by")),
                ("taken_at", models.DateTimeField(null=True, verbose_name="taken at")),
                ("taken_attempt", models.IntegerField(null=True, verbose_name="taken at attempt")),
            ],
            options={
                "verbose_name": "signal",
                "verbose_name_plural": "signals",
                "default_permissions": ("view",),
                "constraints": [models.UniqueConstraint(fields=("run_key", "name", "key"), name="a_signal_comes_once")],
            },
        ),
        migrations.CreateModel(
            name="ScheduleProgress",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False, verbose_name="schedule")),
                ("done_until", models.DateTimeField(db_default=Now(), verbose_name="done until")),
            ],
            options={
                "verbose_name": "progress of a schedule",
                "verbose_name_plural": "progress of schedules",
                "default_permissions": ("view",),
            },
        ),
        migrations.AddField("stepstate", "awaits", models.TextField(null=True, verbose_name="awaits the signal")),
        migrations.AddField("stepstate", "awaits_until", models.DateTimeField(null=True, verbose_name="waits until")),
        migrations.AddField("stepstate", "awaits_attempt", models.IntegerField(null=True, verbose_name="attempt that began the wait")),
    ]
