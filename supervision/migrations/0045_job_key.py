"""Gives a job the key of the form that started it."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("supervision", "0044_job_moved")]

    operations = [migrations.AddField("job", "key", models.TextField(null=True, verbose_name="idempotency key"))]
