"""The Celery application. Workers keep no state: messages are hints, and leases in the database recover lost work."""

from __future__ import annotations

import os

from celery import Celery

from supervision.celery import configure

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sasproject.settings")

app = Celery("sasproject")
app.config_from_object("django.conf:settings", namespace="CELERY")
configure(app)
app.autodiscover_tasks()
