"""The WSGI entry point, for servers without ASGI. Live pages then fall back to polling."""

import os

from django.core.wsgi import get_wsgi_application

from supervision.plans import guard
from supervision.postgres import pooling

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sasproject.settings")

application = get_wsgi_application()
pooling.refuse_lost_sessions()
guard.refuse_other_plans()
