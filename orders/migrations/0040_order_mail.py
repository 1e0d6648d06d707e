"""Adds the index by which orders are found by a mail address, or by its beginning, in capital or small letters."""

from django.db import migrations


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("orders", "0039_names_with_accents")]
    operations = [
        migrations.RunSQL(
            'CREATE INDEX CONCURRENTLY "order_mail" ON "orders_order" (lower("email") text_pattern_ops)',
            'DROP INDEX CONCURRENTLY IF EXISTS "order_mail"',
        )
    ]
