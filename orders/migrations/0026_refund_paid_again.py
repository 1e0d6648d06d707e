"""Notes at a refund which failed refund it pays again."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("orders", "0024_order_account")]

    operations = [
        migrations.AddField(
            "refund",
            "replaces",
            models.TextField(blank=True, db_default="", default="", verbose_name="failed refund"),
        ),
    ]
