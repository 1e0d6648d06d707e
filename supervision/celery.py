"""What the Celery application of a project needs so that the engine keeps its promises.

    from celery import Celery
    from supervision.celery import configure

    app = Celery("shop")
    app.config_from_object("django.conf:settings", namespace="CELERY")
    configure(app)
    app.autodiscover_tasks()  # the project's own tasks; configure finds the engine's

The promises: an unreadable message becomes a dead letter and ends no worker; the engine's messages reach the queues
that its workers read; lost work comes back by its lease, without the broker; a broker that is away holds up no request.
The system check `supervision.E017` reports a process whose application lacks this.

In this module `celery` is the package Celery. The engine uses absolute imports only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

from celery import current_app, signals
from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from supervision import transports
from supervision.postgres import db, params
from supervision.transports import options

CONSUMER = "supervision.deadletters.consumer:Consumer"
AMQP = "supervision.transports.topology:OnRabbitMQ"
# `supervision.perform` needs no route: each message of a Celery chain names the queue of its agent.
ROUTES = {
    "supervision.consume": {"queue": "submissions"},
    "supervision.schedule": {"queue": "scheduler"},
    "supervision.*": {"queue": "supervisor"},
}
# The project's settings win over these. `supervision.checks` reports the ones that work against the engine.
DEFAULTS: Mapping[str, Any] = {
    # Celery's Django fixup reads exactly this key, past the CELERY namespace. Without it the database connection is closed
    # before and after every task, which costs two thirds of the throughput.
    "CELERY_DB_REUSE_MAX": 10**9,
    "broker_connection_timeout": 5,
    "broker_connection_retry_on_startup": True,
    "broker_pool_limit": 4,  # a publisher is done in a millisecond, and on pgmq each of these is a database connection
    "broker_connection_max_retries": None,  # a worker survives any outage of the broker
    "broker_channel_error_retry": True,  # a worker also survives the deletion of its queue
    "task_publish_retry": False,  # a lost hint only costs latency; a publisher that waits would hold up a request
    "task_ignore_result": True,  # and no result backend: the results are in the database
    # Early acknowledgement: lost work comes back when its lease in the database expires; the broker need not deliver it again.
    "task_acks_late": False,
    "task_serializer": "json",
    "accept_content": ["json"],
    "task_create_missing_queues": True,
    "worker_prefetch_multiplier": 1,
    # After a reconnect Celery would lower the prefetch for every task under way, and is known not to raise it again: the
    # worker then lives and consumes nothing.
    "worker_enable_prefetch_count_reduction": False,
    "worker_send_task_events": False,  # CELERY_TASK_EVENTS
    "beat_scheduler": "supervision.worker.beat:Scheduler",  # the sweeps are rows of the database
    "beat_max_loop_interval": 1,
}

_configured: WeakSet[Any] = WeakSet()


def configure(app: Any) -> None:
    """Give this Celery application what the engine needs. Reads no settings yet: they are read when Celery reads them.

    The project's settings win over DEFAULTS. The consumer of messages and the routes of the engine's tasks are not the
    project's to change; its own routes stay beside them. Every thread of the process publishes through this application.
    """
    transports.install()
    app.amqp_cls = AMQP
    app.set_default()
    app.on_after_configure.connect(_complete, weak=False)
    app.autodiscover_tasks(["supervision"])
    signals.task_prerun.connect(_drop_lost_connections)
    _configured.add(app)
    if app.configured:
        _complete(source=app.conf)


def _complete(source: Any, **_: Any) -> None:
    """Add our defaults between the project's settings and Celery's own defaults, and what the project must not change."""
    for layers in (source.maps, source.defaults):  # `add_defaults` would put ours before the project's settings
        layers.insert(-1, dict(DEFAULTS))
    given = source.task_routes or ()
    others = given if isinstance(given, list | tuple) else (given,)
    source.update(worker_consumer=CONSUMER, task_routes=(ROUTES, *others))
    # Celery's remote control needs a fanout exchange, which PGMQ lacks.
    wanted = getattr(settings, "CELERY_REMOTE_CONTROL", True)
    source.update(worker_enable_remote_control=bool(wanted) and broker_can_control(source.broker_url))
    source.update(worker_send_task_events=bool(getattr(settings, "CELERY_TASK_EVENTS", False)))
    if source.broker_url and not source.broker_transport_options:
        source.update(broker_transport_options=options.of_broker(source.broker_url, settings.DATABASES[params.direct()]))


def _drop_lost_connections(**_: Any) -> None:
    db.drop_lost_connections()


def broker_can_control(url: str | None) -> bool:
    """Whether Celery's remote control and events work on this broker."""
    return urlsplit(url or "").scheme in ("amqp", "amqps", "pyamqp", "redis", "rediss")


def broker_is_pgmq() -> bool:
    """Whether the broker is PGMQ, in the default database or in another one."""
    return bool(_configured) and urlsplit(current_app.conf.broker_url or "").scheme == "pgmq"


def pgmq_elsewhere() -> str | None:
    """libpq's connection string of PGMQ's database, or None where its URL names none: it is in the default database then."""
    url = urlsplit(current_app.conf.broker_url)
    if not (url.netloc or url.path.strip("/")):
        return None
    return str(current_app.conf.broker_transport_options["conn_string"])


@register("supervision")
def check_application(app_configs: object, **_: Any) -> list[CheckMessage]:
    """Without `configure` an unreadable message is lost or ends its worker, without a word. Imports no worker."""
    flaw = _flaw()
    hint = (
        "Call supervision.celery.configure(app) in the module that makes the Celery application, and import that module "
        "in the project's __init__.py."
    )
    return [Error(flaw, hint=hint, id="supervision.E017")] if flaw else []


def _flaw() -> str | None:
    if not _configured:
        return "No Celery application of this process is configured for the engine."
    app: Any = current_app._get_current_object()
    if app not in _configured:
        return f"The current Celery application, {app.main!r}, is not configured for the engine."
    if app.conf.worker_consumer != CONSUMER:
        return f"Celery's worker_consumer is {app.conf.worker_consumer!r}: unreadable messages would be lost."
    if not transports.installed():
        return "Another package has replaced the engine's transports: an unreadable message would end its worker."
    return None
