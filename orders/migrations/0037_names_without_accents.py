"""Adds the index by which customers are found although their names are typed without accents."""

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import AddIndexConcurrently
from django.contrib.postgres.search import SearchVector
from django.db import migrations

from orders.migrations._accents import plain

NAMES = SearchVector(plain("customer"), config="simple")


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("orders", "0036_erasure")]
    operations = [AddIndexConcurrently("order", GinIndex(NAMES, name="order_customer_plain"))]
