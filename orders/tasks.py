"""The shop's Celery tasks. Rows of django-celery-beat say how often each runs."""

from __future__ import annotations

from celery import shared_task

from orders.agents import parcel_news
from orders.privacy import erasing


@shared_task(name="orders.look_at_parcels", ignore_result=True)
def look_at_parcels() -> None:
    """Every minute: find the parcels of new orders, and ask the carrier for those of which no webhook came."""
    parcel_news.turn()


@shared_task(name="orders.erase_persons", ignore_result=True)
def erase_persons() -> None:
    """Every minute: go on with the erasures that are not done."""
    erasing.turn()
