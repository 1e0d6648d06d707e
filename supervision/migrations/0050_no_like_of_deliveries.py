"""Drops the second index of a delivery's public id, for LIKE, which Django gives every unique text column.

No query searches these ids by prefix. It was the second largest index of the table, and every try of a delivery wrote into it.
"""

from django.db import migrations

NAME = "supervision_delivery_public_id_f843b394_like"


class Migration(migrations.Migration):
    """Drops the index without blocking writers."""

    atomic = False
    dependencies = [("supervision", "0049_delivery_of_a_webhook")]
    operations = [
        migrations.RunSQL(
            f'DROP INDEX CONCURRENTLY IF EXISTS "{NAME}"',
            f'CREATE INDEX CONCURRENTLY "{NAME}" ON supervision_delivery (public_id text_pattern_ops)',
        )
    ]
