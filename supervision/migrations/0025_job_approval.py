"""Adds the request that a job waits for. The column is empty for all jobs there are, so no row is written."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('supervision', '0024_named_keys'),
    ]

    operations = [
        migrations.AddField(
            model_name='job',
            name='approval',
            field=models.BigIntegerField(null=True, verbose_name='approval'),
        ),
    ]
