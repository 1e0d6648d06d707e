"""Adds the saved views of the console's lists."""

from __future__ import annotations

from django.conf import settings
from django.db import migrations, models
from django.db.models import Q
from django.db.models.deletion import CASCADE
from django.db.models.functions import Now


class Migration(migrations.Migration):
    """One new table."""

    dependencies = [("supervision", "0020_exchanges"), migrations.swappable_dependency(settings.AUTH_USER_MODEL)]
    operations = [
        migrations.CreateModel(
            "SavedView",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("of", models.TextField(verbose_name="list")),
                ("name", models.TextField(verbose_name="name")),
                ("query", models.TextField(verbose_name="filters")),
                ("shared", models.BooleanField(db_default=False, default=False, verbose_name="shared")),
                ("created_at", models.DateTimeField(db_default=Now(), verbose_name="created at")),
                (
                    "owner",
                    models.ForeignKey(db_constraint=False, on_delete=CASCADE, to=settings.AUTH_USER_MODEL, verbose_name="owner"),
                ),
            ],
            options={
                "verbose_name": "saved view",
                "verbose_name_plural": "saved views",
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(
                        condition=Q(("shared", False)), fields=("owner", "of", "name"), name="a_persons_view_has_a_name_of_its_own"
                    ),
                    models.UniqueConstraint(condition=Q(("shared", True)), fields=("of", "name"), name="a_shared_view_has_a_name_of_its_own"),
                ],
            },
        ),
    ]
