"""Adds the index of a webhook's deliveries, newest first."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("supervision", "0048_delivery_given_up")]
    operations = [
        AddIndexConcurrently(
            "delivery", models.Index(name="delivery_of_a_webhook", fields=["endpoint", "id"], condition=Q(endpoint__isnull=False))
        ),
    ]
