"""Adds the index by which an order is found by the payment service's id of its payment."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("orders", "0018_refunds_and_mails")]
    operations = [AddIndexConcurrently("paymentevent", models.Index(fields=["intent"], name="payment_event_of_payment"))]
