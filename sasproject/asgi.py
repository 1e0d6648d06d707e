"""The web role's door: `gunicorn -k asgi sasproject.asgi`."""

import os

import django
from django.conf import settings

from sasproject.handler import ThreadedHandler
from supervision import failpoints, plan_guard

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sasproject.settings")
# Live pages look now and then, each on a thread of its own, so connections come from a pool; workers keep one per thread.
os.environ.setdefault("DATABASE_POOL", "1")

failpoints.load()  # workers do it when they start
django.setup(set_prefix=False)
plan_guard.refuse_other_plans()
application = ThreadedHandler(settings.WEB_THREADS)
