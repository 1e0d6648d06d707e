"""Adds the customer's name to orders. A column with a constant default: no row is rewritten, and old code does not notice it."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [("orders", "0007_documents")]
    operations = [
        migrations.AddField("order", "customer", models.TextField(db_default="", default="", verbose_name="customer")),
    ]
