"""Adds the row that a readiness probe writes, and a table that it lets grow and rolls back."""

from __future__ import annotations

from django.db import migrations, models

# Unlogged: what is written here says something at once or never. No index: each look makes the table's file anew.
_PAGE = "CREATE UNLOGGED TABLE supervision_writeprobepage (filler text NOT NULL)"


class Migration(migrations.Migration):
    """Makes two small tables."""

    dependencies = [("supervision", "0035_append_only")]
    operations = [
        migrations.CreateModel(
            name="WriteProbe",
            fields=[
                ("id", models.SmallIntegerField(primary_key=True, serialize=False)),
                ("written_at", models.DateTimeField(verbose_name="written at")),
                ("allocated_at", models.DateTimeField(verbose_name="allocated at")),
            ],
            options={"verbose_name": "write probe", "verbose_name_plural": "write probes", "default_permissions": ()},
        ),
        migrations.RunSQL(_PAGE, "DROP TABLE supervision_writeprobepage"),
    ]
