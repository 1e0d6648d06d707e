"""A project whose accounts are not Django's: their key is a UUID, their name a mail address, their manager as in Django's manual."""

from __future__ import annotations

from celery import Celery

from supervision.celery import configure

app = Celery("travellers")
app.config_from_object("django.conf:settings", namespace="CELERY")
configure(app)
