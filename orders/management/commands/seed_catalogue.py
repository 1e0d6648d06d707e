"""Puts the demo's products into the catalogue, and made-up ones if asked."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from orders.catalogue import ARTICLES, CATEGORIES, MOST_MADE_UP, made_up
from orders.models import Category, Product

BATCH = 2_000


class Command(BaseCommand):
    """Adds missing products and does not change existing ones: edited stock, prices and texts are kept."""

    help = "Adds the demo's products and categories. Idempotent: products that exist keep their stock, price and texts."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """How many products there are to be."""
        told = f"so many products in all: the demo's, and made-up ones beside them (at most {len(ARTICLES) + MOST_MADE_UP})"
        parser.add_argument("--count", type=int, default=len(ARTICLES), help=told)

    def handle(self, *args: Any, count: int, **options: Any) -> None:
        """Insert the missing ones in batches, each in one statement; a second process that seeds at the same time is harmless."""
        if not len(ARTICLES) <= count <= len(ARTICLES) + MOST_MADE_UP:
            raise CommandError(f"--count: expected a number from {len(ARTICLES)} to {len(ARTICLES) + MOST_MADE_UP}, not {count}")
        Category.objects.bulk_create(
            [Category(slug=slug, name=name, position=place) for place, (slug, name) in enumerate(CATEGORIES.items())], ignore_conflicts=True
        )
        categories = {category.slug: category for category in Category.objects.filter(slug__in=CATEGORIES)}
        wanted = [*ARTICLES, *made_up(count - len(ARTICLES))]
        new = 0
        for first in range(0, len(wanted), BATCH):
            some = wanted[first : first + BATCH]
            known = set(Product.objects.filter(sku__in=[article.sku for article in some]).values_list("sku", flat=True))
            missing = [
                Product(**{**article._asdict(), "category": categories[article.category]}) for article in some if article.sku not in known
            ]
            Product.objects.bulk_create(missing, ignore_conflicts=True)
            new += len(missing)
        # A catalogue from before there were categories: those that stand nowhere go to their shelves.
        for slug, category in categories.items():
            nowhere = Product.objects.filter(category=None, sku__in=[article.sku for article in ARTICLES if article.category == slug])
            nowhere.update(category=category)
        self.stdout.write(f"{len(wanted)} products in the catalogue, {new} of them new")
