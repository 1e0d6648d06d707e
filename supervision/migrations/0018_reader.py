"""A receipt names the process that began the reading."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """One column."""

    dependencies = [("supervision", "0017_held_time")]

    operations = [migrations.AddField("receipt", "reader", models.TextField(null=True, verbose_name="reader"))]
