"""The project's Celery application, wired to the engine."""

import os

from celery import Celery

from supervision.celery import configure

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "expenses.settings")
app = Celery("expenses")
app.config_from_object("django.conf:settings", namespace="CELERY")
configure(app)
