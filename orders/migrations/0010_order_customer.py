"""Adds the index by which orders are found by words of the customer's name."""

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import AddIndexConcurrently
from django.contrib.postgres.search import SearchVector
from django.db import migrations


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("orders", "0009_order_total")]
    operations = [AddIndexConcurrently("order", GinIndex(SearchVector("customer", config="simple"), name="order_customer"))]
