"""Creates what the database needs besides the models: the shared cache table. PGMQ comes with the engine."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig, apps
from django.core.management import call_command
from django.db.models.signals import post_migrate

from supervision.apps import install_broker


class ProjectConfig(AppConfig):
    """Completes `migrate`, so that one command prepares a database on any broker."""

    name = "sasproject"

    def ready(self) -> None:
        # Django sends this signal only for apps with models. This app has none, so it listens to the engine's signal.
        post_migrate.connect(complete_database, sender=apps.get_app_config("supervision"))


def complete_database(using: str = "default", **_: Any) -> None:
    """Create the cache table and, where it is the broker, PGMQ. May be repeated."""
    call_command("createcachetable", database=using, verbosity=0)
    install_broker(using)
