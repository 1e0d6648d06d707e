"""Creates what the database needs besides the models: the shared cache table. PGMQ comes with the engine."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig, apps
from django.conf import settings
from django.core.management import call_command
from django.db import connections
from django.db.models.signals import post_migrate
from psycopg import sql

from sasproject.database_roles import grant_after_migrate, session_settings
from supervision.apps import install_broker


class ProjectConfig(AppConfig):
    """Completes `migrate`, so that one command prepares a database on any broker."""

    name = "sasproject"

    def ready(self) -> None:
        # Django sends this signal only for apps with models. This app has none, so it listens to the engine's signal.
        post_migrate.connect(complete_database, sender=apps.get_app_config("supervision"))


def complete_database(using: str = "default", **_: Any) -> None:
    """Create the cache table and, where it is the broker, PGMQ; grant the roles' rights. May be repeated."""
    call_command("createcachetable", database=using, verbosity=0)
    install_broker(using)
    grant_after_migrate(using)
    if "direct" in settings.DATABASES:  # a pooler in transaction mode takes no session's settings from a client
        with connections[using].cursor() as cursor:
            for statement in list(session_settings(cursor, sql.SQL("CURRENT_USER"))):
                cursor.execute(statement)
