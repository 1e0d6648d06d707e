"""The WSGI entry point, for servers without ASGI. Live pages then fall back to polling."""

import atexit
import os

from django.core.wsgi import get_wsgi_application

from supervision.plans import guard
from supervision.postgres import pooling
from supervision.runtime import identity
from supervision.telemetry import measures, spans

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sasproject.settings")

identity.set_role(os.environ.get("SAS_ROLE") or "web")
application = get_wsgi_application()
pooling.refuse_lost_sessions()
guard.refuse_other_plans()
spans.start("web")
measures.keep_flushing()
atexit.register(spans.stop)
