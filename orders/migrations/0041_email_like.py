"""Drops the index of the beginnings of mail addresses as they are written, which `order_mail` replaces. Django made it for the field."""

from django.db import migrations

_BUILT = 'CREATE INDEX CONCURRENTLY "orders_order_email_79665695_like" ON "orders_order" ("email" varchar_pattern_ops)'


class Migration(migrations.Migration):
    """Blocks no writer."""

    atomic = False
    dependencies = [("orders", "0040_order_mail")]
    operations = [migrations.RunSQL('DROP INDEX CONCURRENTLY IF EXISTS "orders_order_email_79665695_like"', _BUILT)]
