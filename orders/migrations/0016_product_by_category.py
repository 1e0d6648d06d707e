"""Adds the index by which one category is read in the order of names."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("orders", "0015_product_by_price")]
    operations = [AddIndexConcurrently("product", models.Index(fields=["category", "name", "id"], name="product_by_category", condition=models.Q(active=True)))]
