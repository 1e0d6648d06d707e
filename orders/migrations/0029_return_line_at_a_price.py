"""Builds the index by which a return has each product once at each price, without blocking writers."""

from django.db import migrations


class Migration(migrations.Migration):

    atomic = False
    dependencies = [("orders", "0028_cause_of_a_document")]

    operations = [
        migrations.RunSQL(
            'CREATE UNIQUE INDEX CONCURRENTLY "a_return_has_a_product_at_a_price_once" ON orders_returnline (of_id, sku, unit_price)',
            'DROP INDEX CONCURRENTLY IF EXISTS "a_return_has_a_product_at_a_price_once"',
        )
    ]
