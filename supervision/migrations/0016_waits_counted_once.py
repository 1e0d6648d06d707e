"""Lets the trigger of child runs count once what several branches of the parent wait at the same time."""

from __future__ import annotations

from django.db import migrations

from supervision.migrations._children_sql import ENDS_COUNTED_ONCE


class Migration(migrations.Migration):
    """Replaces a function: no row is read or written, and a transaction under way ends with the function it has."""

    dependencies = [("supervision", "0015_jobs")]
    operations = [migrations.RunSQL(*ENDS_COUNTED_ONCE)]
