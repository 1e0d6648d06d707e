"""The ASGI entry point of the web role: `gunicorn -k asgi sasproject.asgi`."""

import os

import django
from django.conf import settings

from sasproject.handler import ThreadedHandler
from supervision.plans import guard
from supervision.postgres import pooling
from supervision.runtime import failpoints

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sasproject.settings")
# A live page queries now and then, on a thread of its own. So the web role uses a pool; workers keep a connection per thread.
os.environ.setdefault("DATABASE_POOL", "1")

failpoints.load()  # Celery workers load them when they start
django.setup(set_prefix=False)
pooling.refuse_lost_sessions()
guard.refuse_other_plans()
application = ThreadedHandler(settings.WEB_THREADS)
