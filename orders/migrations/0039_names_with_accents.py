"""Drops the index of customers' names as they are written. Processes of the release before search for names without an index."""

from django.db import migrations

_BUILT = """CREATE INDEX CONCURRENTLY "order_customer" ON "orders_order" USING gin
    ((to_tsvector('simple'::regconfig, COALESCE("customer", ''))))"""


class Migration(migrations.Migration):
    """Blocks no writer."""

    atomic = False
    dependencies = [("orders", "0038_words_without_accents")]
    operations = [
        migrations.SeparateDatabaseAndState(
            [migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS "order_customer"', _BUILT)],
            [migrations.RemoveIndex("order", "order_customer")],
        )
    ]
