"""What the lane's workers are forked from: settings, models and tasks are loaded, and no connection is open."""

from __future__ import annotations

import os
import sys

import django
from django.conf import settings
from django.core.management import call_command
from django.db import connections

from sasproject.celery import app
from sasproject.env import env_bool
from supervision import conf

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sasproject.settings")
django.setup()
app.loader.import_default_modules()
app.finalize()
connections.close_all()  # loading the application opens connections, which a forked process must not share


def manage() -> None:
    """`manage.py` in the forked process, with the one setting of its own environment that workers of a lane may differ in."""
    settings.SUPERVISION = {**settings.SUPERVISION, "LOCAL_PICKUP": env_bool("SUPERVISION_LOCAL_PICKUP", default=True)}
    conf.get.cache_clear()
    call_command(*sys.argv[1:])
