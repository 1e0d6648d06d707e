"""What reconciliation finds, and the nightly task that looks."""

from __future__ import annotations

from typing import Any

from django.db import migrations, models
from django.db.models.functions import Now

NAME = "reconcile with the services"


def create(apps: Any, schema_editor: Any) -> None:
    """Every night; what is there is kept."""
    crontab = apps.get_model("django_celery_beat", "CrontabSchedule")
    task = apps.get_model("django_celery_beat", "PeriodicTask")
    nightly, _ = crontab.objects.get_or_create(minute="47", hour="2", day_of_week="*", day_of_month="*", month_of_year="*", timezone="UTC")
    task.objects.get_or_create(name=NAME, defaults={"task": "supervision.reconcile", "queue": "supervisor", "crontab": nightly})


def remove(apps: Any, schema_editor: Any) -> None:
    """The task; the schedule may serve others."""
    apps.get_model("django_celery_beat", "PeriodicTask").objects.filter(name=NAME).delete()


class Migration(migrations.Migration):
    """Two tables, one periodic task."""

    dependencies = [
        ("supervision", "0015_suspicion"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
    ]

    operations = [
        migrations.CreateModel(
            name="Reconciliation",
            fields=[
                ("service", models.TextField(primary_key=True, serialize=False, verbose_name="service")),
                ("compared_at", models.DateTimeField(null=True, verbose_name="compared at")),
                ("failing_since", models.DateTimeField(null=True, verbose_name="failing since")),
                ("last_error", models.TextField(db_default="", verbose_name="last error")),
            ],
            options={
                "verbose_name": "reconciliation",
                "verbose_name_plural": "reconciliations",
                "default_permissions": ("view",),
            },
        ),
        migrations.CreateModel(
            name="Finding",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("service", models.TextField(verbose_name="service")),
                ("kind", models.TextField(verbose_name="kind")),
                ("order_key", models.TextField(db_default="", verbose_name="order")),
                ("external_id", models.TextField(db_default="", verbose_name="external id")),
                ("key", models.TextField(db_default="", verbose_name="idempotency key")),
                ("run_id", models.BigIntegerField(null=True, verbose_name="run")),
                ("amount", models.DecimalField(decimal_places=3, max_digits=18, null=True, verbose_name="amount")),
                ("currency", models.TextField(db_default="", verbose_name="currency")),
                ("verbs", models.JSONField(db_default=[], verbose_name="verbs")),
                ("detail", models.TextField(db_default="", verbose_name="detail")),
                ("found_at", models.DateTimeField(db_default=Now(), verbose_name="found at")),
                ("seen_at", models.DateTimeField(db_default=Now(), verbose_name="seen at")),
                ("settling_until", models.DateTimeField(null=True, verbose_name="being settled until")),
                ("tries", models.IntegerField(db_default=0, verbose_name="tries")),
                ("last_error", models.TextField(db_default="", verbose_name="last error")),
                ("closed_at", models.DateTimeField(null=True, verbose_name="closed at")),
                ("verb", models.TextField(db_default="", verbose_name="settled by")),
                ("settled_by", models.TextField(db_default="", verbose_name="who settled it")),
                ("reason", models.TextField(db_default="", verbose_name="reason")),
                ("outcome", models.TextField(db_default="", verbose_name="outcome")),
            ],
            options={
                "verbose_name": "finding",
                "verbose_name_plural": "findings",
                "default_permissions": ("view",),
                "indexes": [
                    models.Index(
                        condition=models.Q(("closed_at__isnull", False), ("verb", "adopt")),
                        fields=["service", "kind", "order_key", "external_id"],
                        name="finding_adopted",
                    )
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("closed_at__isnull", True)),
                        fields=("service", "kind", "order_key", "external_id"),
                        name="a_difference_is_found_once",
                    )
                ],
            },
        ),
        migrations.RunPython(create, remove),
    ]
