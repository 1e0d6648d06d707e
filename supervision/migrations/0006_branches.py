"""Adds the columns of plans that branch."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import migrations, models


class Migration(migrations.Migration):
    """Every run of the old tables is a list: no row is read or written."""

    accepted = {"two-tables-in-one-transaction": "older than the rule; `migrate` gives up long before a deadlock is found"}
    dependencies = [("supervision", "0005_schedule_health")]
    operations = [
        migrations.AddField("run", "event_seq", models.IntegerField(null=True, verbose_name="newest event")),
        migrations.AddField("run", "open_steps", models.SmallIntegerField(null=True, verbose_name="open steps")),
        migrations.AddField("stepstate", "after", ArrayField(models.SmallIntegerField(), verbose_name="after", null=True)),
        migrations.AddField("stepstate", "waits_for", models.SmallIntegerField(null=True, verbose_name="waits for")),
        migrations.AddField("stepstate", "branch", models.SmallIntegerField(db_default=0, verbose_name="branch")),
    ]
