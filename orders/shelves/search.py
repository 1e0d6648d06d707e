"""Finds products: by words of name, SKU and description, by category, sorted by name or by price.

Each query goes through an index. The words use PostgreSQL's full text with English stems ("mugs" finds "mug"), and each word of the
visitor begins a word of the product. Pages begin after a product, so a catalogue of 10,000 products costs as much as one of 100.
"""

from __future__ import annotations

import re

from django.contrib.postgres.search import SearchQuery, SearchVector
from django.db.models import BigAutoField, Case, CharField, DecimalField, Field, IntegerField, QuerySet, Value, When
from django.http import QueryDict

from orders import queries
from orders.accents import plain, without_accents
from orders.keypages import KeyPage, Order, page
from orders.models import Category, Product
from orders.shelves.tables import LANGUAGE, WORDS

LONGEST = 100
MOST_WORDS = 8
PAGE = 24
_NAME = SearchVector(without_accents("name"), config=LANGUAGE)
_ID: Field = BigAutoField()
_NAMED: Field = CharField(max_length=200)
_PRICED: Field = DecimalField(max_digits=10, decimal_places=2)
SORTS = {
    "name": Order(fields=("name", "id"), types=(_NAMED, _ID)),
    "price": Order(fields=("price", "id"), types=(_PRICED, _ID)),
    "-price": Order(fields=("price", "id"), types=(_PRICED, _ID), falling=True),
}
# The order of a search: what has the words in its name comes before what has them in its description.
_BEST = Order(fields=("elsewhere", "name", "id"), types=(IntegerField(), _NAMED, _ID))


def words(said: str) -> SearchQuery | None:
    """The query for what a visitor typed; None if it has no word."""
    found = re.findall(r"\w+", plain(said[:LONGEST]))[:MOST_WORDS]
    return SearchQuery(" & ".join(f"'{word}':*" for word in found), search_type="raw", config=LANGUAGE) if found else None


def matching(rows: QuerySet[Product], said: str) -> QuerySet[Product]:
    """The products with all of these words; none if there is no word."""
    query = words(said)
    return rows.none() if query is None else rows.alias(words=WORDS).filter(words=query)


def shelf(query: QueryDict, *, category: Category | None = None, said: str = "", sort: str = "") -> KeyPage:
    """One page of the products on sale: all, those of a category, or those that a search finds."""
    rows = queries.products()
    if category is not None:
        rows = rows.filter(category=category)
    order = SORTS.get(sort, SORTS["name"])
    if said:
        rows = matching(rows, said)
        if sort not in SORTS:
            order = _BEST
            rows = rows.alias(in_name=_NAME).annotate(elsewhere=Case(When(in_name=words(said), then=Value(0)), default=Value(1)))
    return page([rows], query, order, size=PAGE)
