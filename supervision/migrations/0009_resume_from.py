"""Adds the step from which a run goes on when what came later is undone."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """A column without a value: no run of the old tables goes on from an earlier step."""

    dependencies = [("supervision", "0008_children")]
    operations = [
        migrations.AddField("run", "resume_from", models.SmallIntegerField(null=True, verbose_name="goes on from step")),
    ]
