"""Epochs of the database."""

from __future__ import annotations

from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    """The table of the database's lives; the process that looks first writes its first row."""

    dependencies = [
        ("supervision", "0019_standing_alerts"),
    ]

    operations = [
        migrations.CreateModel(
            name="Epoch",
            fields=[
                ("number", models.IntegerField(primary_key=True, serialize=False, verbose_name="number")),
                ("system_identifier", models.TextField(verbose_name="cluster")),
                ("timeline", models.IntegerField(verbose_name="timeline")),
                ("store", models.TextField(verbose_name="database")),
                ("began_at", models.DateTimeField(db_default=Now(), verbose_name="began at")),
                ("first_run_id", models.BigIntegerField(verbose_name="first run")),
                ("first_submission_id", models.BigIntegerField(verbose_name="first submission")),
                ("reason", models.TextField(verbose_name="reason")),
                ("by", models.TextField(verbose_name="by")),
            ],
            options={
                "verbose_name": "epoch",
                "verbose_name_plural": "epochs",
                "default_permissions": ("view",),
            },
        ),
    ]
