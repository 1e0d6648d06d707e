"""Adds the index by which an order is found by its tracking number."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("orders", "0010_order_customer")]
    operations = [AddIndexConcurrently("parcel", models.Index(fields=["tracking_number"], name="parcel_tracked"))]
