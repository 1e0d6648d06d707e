"""Adds the index by which the due calls of one version's hooks are found, however many of other versions wait."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models
from django.db.models import Q
from django.db.models.fields.json import KT
from django.db.models.functions import Cast


class Migration(migrations.Migration):
    """Builds the index without blocking writers."""

    atomic = False
    dependencies = [("supervision", "0053_notification_kind_due")]
    operations = [
        AddIndexConcurrently(
            "notification",
            models.Index(
                KT("payload__workflow"),
                Cast(KT("payload__version"), models.IntegerField()),
                "not_before",
                name="notification_hook_version_due",
                condition=Q(delivered_at__isnull=True, kind="hook"),
            ),
        ),
    ]
