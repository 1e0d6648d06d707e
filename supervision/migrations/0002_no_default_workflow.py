"""Drops the database's default for the workflow of a submission. It named a workflow of one application."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    """Changes the catalogue only, for an instant: no row is read or written."""

    accepted = dict.fromkeys(
        ("default-of-django-only", "ban-drop-default"),
        "every release names the workflow; for rows of other programs, an application sets a default of its own",
    )
    dependencies = [("supervision", "0001_squashed_0021_plain_label")]
    operations = [
        migrations.AlterField(model_name="submission", name="workflow", field=models.TextField(verbose_name="workflow")),
    ]
