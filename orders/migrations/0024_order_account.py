"""Removes the index of the account alone: `order_of_account` begins with the account. So an order writes no more indexes than before."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

ACCOUNT = models.ForeignKey(
    blank=True,
    db_index=False,
    null=True,
    on_delete=django.db.models.deletion.PROTECT,
    related_name="orders",
    to=settings.AUTH_USER_MODEL,
    verbose_name="account",
)


class Migration(migrations.Migration):
    """Removes the index without blocking writers."""

    atomic = False
    dependencies = [migrations.swappable_dependency(settings.AUTH_USER_MODEL), ("orders", "0023_order_of_account")]
    operations = [
        migrations.RunSQL(
            "DROP INDEX CONCURRENTLY IF EXISTS orders_order_account_id_cf843c80",
            "CREATE INDEX CONCURRENTLY orders_order_account_id_cf843c80 ON orders_order (account_id)",
            state_operations=[migrations.AlterField("order", "account", ACCOUNT)],
        )
    ]
