"""What code means by each version of each workflow, kept once."""

from __future__ import annotations

from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    """One table. The first process that starts writes what its code means."""

    dependencies = [("supervision", "0010_effect_ledger")]

    operations = [
        migrations.CreateModel(
            name="WorkflowVersion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.TextField(verbose_name="workflow")),
                ("version", models.SmallIntegerField(verbose_name="version")),
                ("fingerprint", models.TextField(verbose_name="fingerprint")),
                ("definition", models.JSONField(verbose_name="definition")),
                ("registered_at", models.DateTimeField(db_default=Now(), verbose_name="registered at")),
            ],
            options={
                "verbose_name": "workflow version",
                "verbose_name_plural": "workflow versions",
                "default_permissions": (),
                "constraints": [models.UniqueConstraint(fields=("name", "version"), name="a_version_of_a_workflow_means_one_plan")],
            },
        ),
    ]
