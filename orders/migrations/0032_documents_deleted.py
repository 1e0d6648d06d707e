"""How many documents of each series and year are deleted, after the years for which they have to be kept."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("orders", "0031_corrections_of_returns")]

    operations = [
        migrations.AddField(
            model_name="documentcounter",
            name="gone",
            field=models.IntegerField(db_default=0, default=0, verbose_name="deleted up to"),
        ),
    ]
