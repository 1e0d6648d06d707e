"""Where finished runs go, and the daily task that takes them there."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models
from django.db.models.functions import Now

NAME = "archive finished orders"


def create(apps: Any, schema_editor: Any) -> None:
    """Every night; what is there is kept."""
    crontab = apps.get_model("django_celery_beat", "CrontabSchedule")
    task = apps.get_model("django_celery_beat", "PeriodicTask")
    nightly, _ = crontab.objects.get_or_create(minute="17", hour="3", day_of_week="*", day_of_month="*", month_of_year="*", timezone="UTC")
    task.objects.get_or_create(name=NAME, defaults={"task": "supervision.archive", "queue": "supervisor", "crontab": nightly})


def remove(apps: Any, schema_editor: Any) -> None:
    """The task; the schedule may serve others."""
    apps.get_model("django_celery_beat", "PeriodicTask").objects.filter(name=NAME).delete()


class Migration(migrations.Migration):
    """One table, one periodic task."""

    dependencies = [
        ("supervision", "0007_journal"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]

    operations = [
        migrations.CreateModel(
            name="ArchivedRun",
            fields=[
                ("key", models.TextField(primary_key=True, serialize=False, verbose_name="public id")),
                ("run_id", models.BigIntegerField(unique=True, verbose_name="run")),
                ("reference", models.TextField(null=True, verbose_name="reference")),
                ("workflow", models.TextField(verbose_name="workflow")),
                (
                    "process_state",
                    models.TextField(
                        choices=[
                            ("Pending", "Pending"),
                            ("Processing", "Processing"),
                            ("Processed", "Processed"),
                            ("Error", "Error"),
                            ("Compensating", "Compensating"),
                            ("Cancelled", "Cancelled"),
                        ],
                        verbose_name="state",
                    ),
                ),
                ("created_at", models.DateTimeField(verbose_name="created at")),
                ("finished_at", models.DateTimeField(verbose_name="finished at")),
                ("archived_at", models.DateTimeField(db_default=Now(), verbose_name="archived at")),
                ("body", models.JSONField(verbose_name="body")),
            ],
            options={
                "verbose_name": "archived run",
                "verbose_name_plural": "archived runs",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        condition=models.Q(("reference__isnull", False)), fields=["reference"], name="archived_run_by_reference"
                    )
                ],
            },
        ),
        migrations.RunPython(create, remove),
    ]
