"""The project: settings, ASGI and WSGI entry points, and the process launcher around `supervision` and `orders`."""

from sasproject.celery import app as celery_app

__all__ = ["celery_app"]
