"""Adds the index by which products are found by their words."""

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import AddIndexConcurrently
from django.contrib.postgres.search import SearchVector
from django.db import migrations
from django.db.models import Value
from django.db.models.functions import Replace

WORDS = SearchVector("name", Replace("sku", Value("-"), Value(" ")), "description", config="english")
INDEX = GinIndex(WORDS, name="product_words", fastupdate=False)


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("orders", "0016_product_by_category")]
    operations = [AddIndexConcurrently("product", INDEX)]
