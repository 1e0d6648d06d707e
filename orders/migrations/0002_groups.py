"""The four kinds of accounts as groups, and the table in which the API counts requests."""

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

VIEWS = {
    "orders": ("order", "orderline", "product", "stockreservation"),
    "supervision": (
        "alert",
        "archivedrun",
        "cachedresult",
        "deadletter",
        "delivery",
        "heartbeat",
        "journalentry",
        "journalfile",
        "leaderlease",
        "notification",
        "pause",
        "replytoken",
        "resource",
        "resourceroute",
        "run",
        "stepevent",
        "stepstate",
        "strayreply",
        "submission",
        "webhookendpoint",
    ),
}
SEES_ALL = [f"{app}.view_{model}" for app, models in VIEWS.items() for model in models]
GROUPS = {
    "customer": [],
    "client": ["orders.high_priority"],
    "operator": [
        *SEES_ALL,
        "orders.change_product",
        "supervision.operate",
        "supervision.change_resource",
        "supervision.add_resourceroute",
        "supervision.change_resourceroute",
        "supervision.delete_resourceroute",
        "supervision.change_webhookendpoint",
        # The supervisor's interval is a row of django-celery-beat.
        "django_celery_beat.view_periodictask",
        "django_celery_beat.change_periodictask",
        "django_celery_beat.view_intervalschedule",
        "django_celery_beat.add_intervalschedule",
        "django_celery_beat.change_intervalschedule",
    ],
    "viewer": SEES_ALL,
}
NAMES = {"orders.high_priority": "Can place orders of high priority", "supervision.operate": "Can resubmit, skip, cancel and undo"}
MODEL_OF = {"high_priority": "order", "operate": "run"}


def create_groups(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Make the groups with their permissions. Django itself creates permission rows only after the last migration."""
    Group = apps.get_model("auth", "Group")
    Permission = apps.get_model("auth", "Permission")
    ContentType = apps.get_model("contenttypes", "ContentType")
    for group_name, permissions in GROUPS.items():
        group, _ = Group.objects.get_or_create(name=group_name)
        for name in permissions:
            app_label, codename = name.split(".")
            model = MODEL_OF.get(codename) or codename.partition("_")[2]
            content_type, _ = ContentType.objects.get_or_create(app_label=app_label, model=model)
            words = NAMES.get(name) or f"Can {codename.replace('_', ' ')}"
            permission, _ = Permission.objects.get_or_create(
                content_type=content_type, codename=codename, defaults={"name": words}
            )
            group.permissions.add(permission)


def remove_groups(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    apps.get_model("auth", "Group").objects.filter(name__in=GROUPS).delete()


class Migration(migrations.Migration):
    dependencies = [
        ("orders", "0001_initial"),
        ("supervision", "0004_resource"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
    ]

    operations = [
        migrations.RunPython(create_groups, remove_groups),
        # One row per account and one per address. Unlogged, so that counting a request writes no WAL. A crash empties the
        # table, and then the counts of one window are lost.
        migrations.RunSQL(
            "CREATE UNLOGGED TABLE orders_requestcount"
            " (bucket text PRIMARY KEY, hits integer NOT NULL, until timestamptz NOT NULL) WITH (fillfactor = 50)",
            "DROP TABLE orders_requestcount",
        ),
    ]
