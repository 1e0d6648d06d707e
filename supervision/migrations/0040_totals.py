"""Adds the counters and histograms of all processes, and what the minutes before the newest ones add up to."""

from __future__ import annotations

import django.contrib.postgres.fields
from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    """Two new tables, and a column without a value."""

    dependencies = [("supervision", "0038_write_probe")]
    operations = [
        migrations.AddField("pulse", "seconds", models.FloatField(null=True, verbose_name="seconds to Processed, added up")),
        migrations.CreateModel(
            "PulseTotal",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("until", models.DateTimeField(verbose_name="until")),
                ("processed", models.BigIntegerField(db_default=0, verbose_name="processed")),
                ("cancelled", models.BigIntegerField(db_default=0, verbose_name="cancelled")),
                ("stopped", models.BigIntegerField(db_default=0, verbose_name="stopped by an error")),
                ("seconds", models.FloatField(db_default=0, verbose_name="seconds to Processed, added up")),
                (
                    "counts",
                    django.contrib.postgres.fields.ArrayField(
                        models.BigIntegerField(), db_default=[], size=None, verbose_name="orders in each class"
                    ),
                ),
            ],
            options={"verbose_name": "total of the minutes", "verbose_name_plural": "totals of the minutes", "default_permissions": ()},
        ),
        migrations.CreateModel(
            "Metric",
            [
                (
                    "pk",
                    models.CompositePrimaryKey("name", "labels", blank=True, editable=False, primary_key=True, serialize=False),
                ),
                ("name", models.TextField(verbose_name="name")),
                ("labels", models.TextField(verbose_name="labels")),
                (
                    "buckets",
                    django.contrib.postgres.fields.ArrayField(
                        models.BigIntegerField(), db_default=[], size=None, verbose_name="buckets"
                    ),
                ),
                ("total", models.FloatField(db_default=0, verbose_name="total")),
                ("added_at", models.DateTimeField(db_default=Now(), verbose_name="added at")),
            ],
            options={"verbose_name": "metric", "verbose_name_plural": "metrics", "default_permissions": ()},
        ),
    ]
