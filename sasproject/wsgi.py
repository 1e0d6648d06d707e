"""A synchronous door, for servers that know only WSGI. Live pages then fall back to polling."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sasproject.settings")

application = get_wsgi_application()
