"""Adds the index by which products are found although words are typed without accents."""

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import AddIndexConcurrently
from django.contrib.postgres.search import SearchVector
from django.db import migrations
from django.db.models import Value
from django.db.models.functions import Replace

from orders.migrations._accents import plain

WORDS = SearchVector(plain("name"), Replace("sku", Value("-"), Value(" ")), plain("description"), config="english")


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("orders", "0037_names_without_accents")]
    operations = [AddIndexConcurrently("product", GinIndex(WORDS, name="product_words_plain", fastupdate=False))]
