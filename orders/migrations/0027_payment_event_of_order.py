"""Adds the index by which the payment events of an order are found."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("orders", "0026_refund_paid_again")]
    operations = [AddIndexConcurrently("paymentevent", models.Index(fields=["order_key"], name="payment_event_of_order"))]
