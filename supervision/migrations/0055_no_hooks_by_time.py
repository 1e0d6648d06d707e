"""Removes the index of all due calls of hooks. The release before sorts them instead."""

from django.contrib.postgres.operations import RemoveIndexConcurrently
from django.db import migrations


class Migration(migrations.Migration):
    """Drops the index without blocking writers."""

    atomic = False
    dependencies = [("supervision", "0054_hooks_by_version")]
    operations = [RemoveIndexConcurrently("notification", "notification_hook_due")]
