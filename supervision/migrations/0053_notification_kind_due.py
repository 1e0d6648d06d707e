"""Adds the index by which due notifications of one kind are found, however many of other kinds wait."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Coalesce
from django.db.models.lookups import IsNull


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("supervision", "0052_incident_seen")]
    operations = [
        AddIndexConcurrently(
            "notification",
            models.Index(
                name="notification_kind_due",
                fields=["kind", "not_before"],
                condition=~Q(kind__in=["status", "hook"]) & Q(IsNull(Coalesce("delivered_at", "given_up_at"), True)),
            ),
        ),
    ]
