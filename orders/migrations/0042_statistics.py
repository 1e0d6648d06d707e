"""Counts what the new indexes have. Until then PostgreSQL guesses that a mail address has many orders, and may read the newest first.

An empty table is left alone: PostgreSQL expects ten pages of a table that it has never looked at, and one of an empty one.
"""

from django.db import migrations

COUNT = """
DO $$ BEGIN
    IF EXISTS (SELECT FROM orders_order) THEN ANALYZE orders_order; END IF;
    IF EXISTS (SELECT FROM orders_product) THEN ANALYZE orders_product; END IF;
END $$
"""


class Migration(migrations.Migration):
    """Blocks no writer: ANALYZE reads a sample."""

    dependencies = [("orders", "0041_email_like")]
    operations = [migrations.RunSQL(COUNT, migrations.RunSQL.noop)]
