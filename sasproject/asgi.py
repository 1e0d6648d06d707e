"""The ASGI entry point of the web role: `gunicorn -k asgi sasproject.asgi`."""

import os

# Before the other imports, because some of them read the settings.
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sasproject.settings")
# A live page queries now and then, on a thread of its own. So the web role uses a pool; workers keep a connection per thread.
os.environ.setdefault("DATABASE_POOL", "1")

import atexit
import logging

import django
from django.conf import settings

from sasproject.handler import ThreadedHandler
from supervision.plans import guard
from supervision.postgres import pooling
from supervision.runtime import failpoints, identity
from supervision.telemetry import measures, spans

identity.set_role(os.environ.get("SAS_ROLE") or "web")
failpoints.load()  # Celery workers load them when they start
django.setup(set_prefix=False)

from sasproject import warming  # noqa: E402 - it imports models

pooling.refuse_lost_sessions()
guard.refuse_other_plans()
for name in ("gunicorn.error", "gunicorn.access"):  # in the form of all other lines
    logging.getLogger(name).handlers.clear()
    logging.getLogger(name).propagate = True
spans.start("web")
measures.keep_flushing()
atexit.register(spans.stop)
warming.warm()
application = ThreadedHandler(settings.WEB_THREADS)
