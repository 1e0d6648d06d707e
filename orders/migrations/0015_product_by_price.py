"""Adds the index by which the catalogue is read in the order of prices."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("orders", "0014_product_by_name")]
    operations = [AddIndexConcurrently("product", models.Index(fields=["price", "id"], name="product_by_price", condition=models.Q(active=True)))]
