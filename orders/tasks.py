"""The shop's Celery tasks. Rows of django-celery-beat say how often each runs."""

from __future__ import annotations

from celery import shared_task

from orders.agents import parcel_news


@shared_task(name="orders.look_at_parcels", ignore_result=True)
def look_at_parcels() -> None:
    """Every minute: find the parcels of new orders, and ask the carrier for those of which no webhook came."""
    parcel_news.turn()
