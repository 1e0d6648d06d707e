"""The project. Celery finds its application here."""

from expenses.celery import app

__all__ = ["app"]
