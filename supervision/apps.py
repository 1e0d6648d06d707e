"""The engine as a Django app: finds each app's `workflows` module and registers the system checks."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig, apps
from django.apps.registry import Apps
from django.core.management.base import CommandError
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy
from psycopg import Error

from supervision import celery, checks  # noqa: F401 - they register themselves, as the next three with this note do
from supervision.agent import agents
from supervision.governance import circuit_breaker, outages  # noqa: F401
from supervision.ledger import findings  # noqa: F401
from supervision.plans import comparison  # noqa: F401
from supervision.postgres import params
from supervision.store import epochs


class SupervisionConfig(AppConfig):
    """Scheduler, agents, supervisor and the state store."""

    name = "supervision"
    verbose_name = gettext_lazy("Supervision")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Load the workflows of other apps, and the modules that detect and report incidents."""
        from supervision.approvals import deciding, waiting  # noqa: F401
        from supervision.incidents import causes, held_by, kept_evidence, pulse, starvation  # noqa: F401
        from supervision.jobs import steering, telling  # noqa: F401
        from supervision.ledger import exchanges, reconciliation  # noqa: F401
        from supervision.operations import completing, moving, operator_verbs, resuming  # noqa: F401
        from supervision.outbox import incident_mail  # noqa: F401
        from supervision.rabbitmq import declaring  # noqa: F401
        from supervision.store import alerts  # noqa: F401 - they register themselves

        params.remember_name()
        autodiscover_modules("workflows")
        post_migrate.connect(list_resources, sender=self)
        post_migrate.connect(list_rights, sender=self)
        post_migrate.connect(install_broker, sender=self)
        connection_created.connect(epochs.on_connection)


def list_resources(apps: Apps = apps, **_kwargs: Any) -> None:
    """Give every agent's service a resource after `migrate`, so that operators can edit it. apps: as far as the database is migrated."""
    if "resource" in apps.all_models["supervision"]:
        circuit_breaker.know(sorted(agent.resource for agent in agents() if agent.resource is not None))


def list_rights(apps: Apps = apps, **_kwargs: Any) -> None:
    """Give every agent its permissions after `migrate`, so that a group can be given verbs on its steps alone."""
    if "permission" not in apps.all_models["auth"]:
        return
    from django.contrib.auth.models import Permission
    from django.contrib.contenttypes.models import ContentType

    from supervision.approvals.rights import AT_AGENTS, VERBS
    from supervision.models import Run

    of_runs = ContentType.objects.get_for_model(Run)
    known = set(Permission.objects.filter(content_type=of_runs).values_list("codename", flat=True))
    missing = [(verb, agent.name) for verb in AT_AGENTS for agent in agents() if f"{VERBS[verb]}_at_{agent.name}"[:100] not in known]
    Permission.objects.bulk_create(
        [
            Permission(content_type=of_runs, codename=f"{VERBS[verb]}_at_{name}"[:100], name=f"Can {verb} steps of {name}"[:255])
            for verb, name in missing
        ],
        ignore_conflicts=True,
    )


def install_broker(using: str = "default", **_kwargs: Any) -> None:
    """Install PGMQ after `migrate`, where it is the broker: in the default database, or in the one that the URL names."""
    if using != "default" or not celery.broker_is_pgmq():
        return
    from supervision.transports import pgmq_tables

    conn_string = celery.pgmq_elsewhere()
    if conn_string is None:
        pgmq_tables.install_pgmq(using)
        return
    try:
        pgmq_tables.install_pgmq_at(conn_string)
    except Error as error:
        said = str(error).strip().splitlines()[0]
        raise CommandError(f"CELERY_BROKER_URL: PGMQ could not be installed in the database that it names: {said}") from None
