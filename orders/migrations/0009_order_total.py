"""Adds the index by which orders are found by their total."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("orders", "0008_customer")]
    operations = [AddIndexConcurrently("order", models.Index(fields=["total"], name="order_total"))]
