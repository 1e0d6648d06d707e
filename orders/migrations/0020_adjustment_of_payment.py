"""Adds the index by which the refunds and disputes of a payment are found."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("orders", "0019_payment_event_of_payment")]
    operations = [AddIndexConcurrently("paymentadjustment", models.Index(fields=["intent"], name="adjustment_of_payment"))]
