"""The Celery application. Workers keep no state: messages are hints, and leases in the database recover lost work."""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, signals
from django.db import connections

from supervision import transports

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sasproject.settings")

transports.install()
app = Celery("sasproject")
app.config_from_object("django.conf:settings", namespace="CELERY")
# Celery's Django fixup reads exactly this key from the app's configuration, past the CELERY namespace. Without it
# the database connection is closed before and after every task, which costs two thirds of the throughput.
app.add_defaults({"CELERY_DB_REUSE_MAX": 10**9, "worker_consumer": "supervision.deadletters.consumer:Consumer"})
app.autodiscover_tasks()


@signals.task_prerun.connect
def drop_lost_connections(**_: Any) -> None:
    """Close connections that the server has ended. Otherwise every later task of their thread would fail."""
    for connection in connections.all(initialized_only=True):
        connection.close_if_unusable_or_obsolete()
