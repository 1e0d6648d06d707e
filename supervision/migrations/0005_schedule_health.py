"""Adds what keeps a schedule from starting its runs."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """Three columns without a value and one with a constant default, on a table with a row for each schedule."""

    dependencies = [("supervision", "0004_step_asleep")]
    operations = [
        migrations.AddField("scheduleprogress", "failing_since", models.DateTimeField(null=True, verbose_name="failing since")),
        migrations.AddField("scheduleprogress", "failed_at", models.DateTimeField(null=True, verbose_name="last failed at")),
        migrations.AddField("scheduleprogress", "last_error", models.TextField(db_default="", verbose_name="last error")),
        migrations.AddField("scheduleprogress", "missed", models.DateTimeField(null=True, verbose_name="missed")),
    ]
