"""Adds the index by which the catalogue is read in the order of names."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("orders", "0013_categories")]
    operations = [AddIndexConcurrently("product", models.Index(fields=["name", "id"], name="product_by_name", condition=models.Q(active=True)))]
