"""Operators and viewers see incidents."""

from __future__ import annotations

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def let_them_see(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Make the permission and add it to the groups. Django itself creates permission rows only after the last migration."""
    content_type, _ = apps.get_model("contenttypes", "ContentType").objects.get_or_create(app_label="supervision", model="incident")
    permission, _ = apps.get_model("auth", "Permission").objects.get_or_create(
        content_type=content_type, codename="view_incident", defaults={"name": "Can view incident"}
    )
    for group in apps.get_model("auth", "Group").objects.filter(name__in=["operator", "viewer"]):
        group.permissions.add(permission)


class Migration(migrations.Migration):
    """Adds one permission to two groups."""

    dependencies = [("orders", "0003_lean_indexes"), ("supervision", "0014_incidents")]

    operations = [migrations.RunPython(let_them_see, migrations.RunPython.noop)]
