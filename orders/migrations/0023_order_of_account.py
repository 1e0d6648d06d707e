"""Adds the index by which an account's orders are listed, the newest first."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

INDEX = models.Index(
    fields=["account", "-created_at", "-id"], name="order_of_account", condition=models.Q(account__isnull=False)
)


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("orders", "0022_account_email")]
    operations = [AddIndexConcurrently("order", INDEX)]
