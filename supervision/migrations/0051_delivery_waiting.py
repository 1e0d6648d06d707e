"""Adds the index of an account's deliveries that wait, newest first."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("supervision", "0050_no_like_of_deliveries")]
    operations = [
        AddIndexConcurrently(
            "delivery",
            models.Index(
                name="delivery_waiting", fields=["client", "id"], condition=Q(delivered_at__isnull=True, given_up_at__isnull=True)
            ),
        ),
    ]
