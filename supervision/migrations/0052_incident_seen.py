"""Adds the moment at which an incident was acknowledged before its cause returned."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Adds a nullable column."""

    dependencies = [("supervision", "0051_delivery_waiting")]
    operations = [
        migrations.AddField("incident", "seen_at", models.DateTimeField(null=True, verbose_name="acknowledged at")),
    ]
