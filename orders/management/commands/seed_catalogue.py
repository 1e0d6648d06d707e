"""Puts the demo's products into the catalogue."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from orders.catalogue import ARTICLES
from orders.models import Product


class Command(BaseCommand):
    """Adds missing products and does not change existing ones: edited stock, prices and texts are kept."""

    help = "Adds the demo's products. Idempotent: products that exist keep their stock, price and texts."

    def handle(self, *args: Any, **options: Any) -> None:
        """Insert the missing products in one statement; a second process that seeds at the same time is harmless."""
        known = set(Product.objects.filter(sku__in=[a.sku for a in ARTICLES]).values_list("sku", flat=True))
        Product.objects.bulk_create(
            [Product(**article._asdict()) for article in ARTICLES if article.sku not in known], ignore_conflicts=True
        )
        self.stdout.write(f"{len(ARTICLES)} products in the catalogue, {len(ARTICLES) - len(known)} of them new")
