"""The shop's tables and groups. Replaces the migrations that made them one by one before 0.1.0; a database that has all of those
goes on."""

from __future__ import annotations

import re

from django.apps.registry import Apps
from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Q
from django.db.models.functions import Now

ID = ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"))
VIEWS = {
    "orders": "order orderline product stockreservation",
    "supervision": "alert archivedrun cachedresult deadletter delivery heartbeat incident journalentry journalfile leaderlease notification"
    " pause replytoken resource resourceroute run stepevent stepstate strayreply submission webhookendpoint",
}
SEES_ALL = [f"{app}.view_{model}" for app, models in VIEWS.items() for model in models.split()]
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
            permission, _ = Permission.objects.get_or_create(content_type=content_type, codename=codename, defaults={"name": words})
            group.permissions.add(permission)


def remove_groups(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Remove the groups; the permissions stay."""
    apps.get_model("auth", "Group").objects.filter(name__in=GROUPS).delete()


def without_spare_indexes(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    """Do not make the second index, for LIKE, that Django gives every indexed text column and makes at the end of a migration.

    No query searches public ids, numbers or reservations by prefix (the console does so for e-mail addresses), and every order would
    write these indexes.
    """
    spare = re.compile(r'CREATE INDEX "orders_(order_(number|public_id)|stockreservation)_\w+_like" ')
    schema_editor.deferred_sql = [statement for statement in schema_editor.deferred_sql if not spare.match(str(statement))]


# One row per account and one per address, in which the API counts requests. Unlogged, so that counting a request writes no log. A
# crash empties the table, and then the counts of one window are lost.
REQUEST_COUNTS = (
    "CREATE UNLOGGED TABLE orders_requestcount"
    " (bucket text PRIMARY KEY, hits integer NOT NULL, until timestamptz NOT NULL) WITH (fillfactor = 50)"
)


class Migration(migrations.Migration):
    """Every table, then what models cannot say, then the groups."""

    initial = True
    dependencies = [
        ("supervision", "0001_squashed_0021_plain_label"),
        ("django_celery_beat", "0019_alter_periodictasks_options"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("contenttypes", "0002_remove_content_type_name"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]
    replaces = [("orders", "0001_initial"), ("orders", "0002_groups"), ("orders", "0003_lean_indexes"), ("orders", "0004_incidents")]
    operations = [
        migrations.CreateModel(
            name="Order",
            fields=[
                ID,
                ("public_id", models.CharField(max_length=64, unique=True, verbose_name="public id")),
                ("number", models.CharField(max_length=20, unique=True, verbose_name="number")),
                ("email", models.EmailField(db_index=True, max_length=254, verbose_name="e-mail")),
                ("total", models.DecimalField(decimal_places=2, max_digits=12, verbose_name="total")),
                ("currency", models.CharField(max_length=3, verbose_name="currency")),
                ("created_at", models.DateTimeField(db_default=Now(), verbose_name="created at")),
                (
                    "account",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=models.PROTECT,
                        related_name="orders",
                        to=settings.AUTH_USER_MODEL,
                        verbose_name="account",
                    ),
                ),
                (
                    "run",
                    models.OneToOneField(
                        db_constraint=False, on_delete=models.PROTECT, related_name="order", to="supervision.run", verbose_name="run"
                    ),
                ),
            ],
            options={
                "verbose_name": "order",
                "verbose_name_plural": "orders",
                "permissions": [("high_priority", "Can place orders of high priority")],
                "default_permissions": ("view",),
                "indexes": [models.Index(fields=["-created_at", "-id"], name="order_newest_first")],
            },
        ),
        migrations.CreateModel(
            name="OrderLine",
            fields=[
                ID,
                ("sku", models.CharField(max_length=64, verbose_name="SKU")),
                ("name", models.CharField(max_length=200, verbose_name="name")),
                ("quantity", models.PositiveIntegerField(verbose_name="quantity")),
                ("unit_price", models.DecimalField(decimal_places=2, max_digits=10, verbose_name="unit price")),
                ("order", models.ForeignKey(db_constraint=False, on_delete=models.PROTECT, related_name="lines", to="orders.order")),
            ],
            options={"verbose_name": "order line", "verbose_name_plural": "order lines", "default_permissions": ("view",)},
        ),
        migrations.CreateModel(
            name="Product",
            fields=[
                ID,
                ("sku", models.SlugField(max_length=64, unique=True, verbose_name="SKU")),
                ("name", models.CharField(max_length=200, verbose_name="name")),
                ("description", models.TextField(blank=True, db_default="", verbose_name="description")),
                ("price", models.DecimalField(decimal_places=2, max_digits=10, validators=[MinValueValidator(0)], verbose_name="price")),
                ("currency", models.CharField(db_default="EUR", default="EUR", max_length=3, verbose_name="currency")),
                ("available", models.IntegerField(db_default=0, default=0, verbose_name="available")),
                ("active", models.BooleanField(db_default=True, default=True, verbose_name="active")),
                ("picture", models.CharField(blank=True, db_default="", max_length=100, verbose_name="picture")),
            ],
            options={
                "verbose_name": "product",
                "verbose_name_plural": "products",
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(condition=Q(("available__gte", 0)), name="stock_is_never_oversold"),
                    models.CheckConstraint(condition=Q(("price__gte", 0)), name="a_price_is_not_negative"),
                ],
            },
        ),
        migrations.CreateModel(
            name="StockReservation",
            fields=[
                ID,
                ("idempotency_key", models.TextField(verbose_name="idempotency key")),
                ("order_key", models.TextField(db_index=True, verbose_name="order")),
                ("sku", models.CharField(max_length=64, verbose_name="SKU")),
                ("quantity", models.IntegerField(verbose_name="quantity")),
                ("created_at", models.DateTimeField(db_default=Now(), verbose_name="created at")),
                ("released_at", models.DateTimeField(null=True, verbose_name="released at")),
            ],
            options={
                "verbose_name": "stock reservation",
                "verbose_name_plural": "stock reservations",
                "default_permissions": ("view",),
                "constraints": [
                    models.UniqueConstraint(fields=("idempotency_key", "sku"), name="a_key_reserves_a_product_once"),
                    models.CheckConstraint(condition=Q(("quantity__gt", 0)), name="a_reservation_takes_something"),
                ],
            },
        ),
        migrations.RunPython(without_spare_indexes, migrations.RunPython.noop),
        migrations.RunSQL(REQUEST_COUNTS, "DROP TABLE orders_requestcount"),
        migrations.RunPython(create_groups, remove_groups),
    ]
