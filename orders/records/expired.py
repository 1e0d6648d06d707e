"""What the shop deletes by itself, hourly: documents after their years, events of webhooks, sessions and counts that are over."""

from __future__ import annotations

from django.conf import settings

from orders.parcels import events as parcel_events
from orders.payments import events as payment_events
from supervision.postgres import db
from supervision.runtime import tidying

SIZE = 500

# The oldest numbers first, and the counter remembers how many are gone: so the audit still sees every gap. The counter's row is locked
# by the statement, as by those that issue documents.
_DOCUMENTS = """
WITH c AS MATERIALIZED (
    SELECT id, series, year, gone FROM orders_documentcounter
     WHERE year < extract(year FROM now() AT TIME ZONE 'UTC') - %(years)s AND gone < last ORDER BY year, series LIMIT 1 FOR UPDATE),
d AS (
    DELETE FROM orders_document d USING c
     WHERE d.series = c.series AND d.year = c.year AND d.number > c.gone AND d.number <= c.gone + %(size)s RETURNING d.number)
UPDATE orders_documentcounter t SET gone = least(t.last, c.gone + %(size)s) FROM c WHERE t.id = c.id
RETURNING t.id, (SELECT count(*) FROM d)
"""
_SESSIONS = """
DELETE FROM django_session WHERE session_key = ANY (ARRAY(
    SELECT session_key FROM django_session WHERE expire_date < now() ORDER BY expire_date LIMIT %(size)s FOR UPDATE SKIP LOCKED))
RETURNING 1
"""
_COUNTS = """
DELETE FROM orders_requestcount WHERE bucket = ANY (ARRAY(
    SELECT bucket FROM orders_requestcount WHERE until < now() LIMIT %(size)s FOR UPDATE SKIP LOCKED))
RETURNING 1
"""

# A parcel that the shop has not booked is of no order with which it would go.
_PARCELS = """
DELETE FROM orders_parcel WHERE key = ANY (ARRAY(
    SELECT key FROM orders_parcel WHERE order_key = '' AND booked_at < now() - %(seconds)s::float8 * interval '1 s'
     LIMIT %(size)s FOR UPDATE SKIP LOCKED))
RETURNING 1
"""


@tidying.tidier("documents")
def documents() -> bool:
    """Delete invoices and credit notes DOCUMENT_YEARS after the end of the year of their issue. True if there may be more."""
    return bool(db.run(_DOCUMENTS, {"years": settings.DOCUMENT_YEARS, "size": SIZE}))


@tidying.tidier("sessions")
def sessions() -> bool:
    """Delete sessions that have expired. True if there may be more."""
    return len(db.run(_SESSIONS, {"size": SIZE})) == SIZE


@tidying.tidier("counts of requests")
def counts() -> bool:
    """Delete counts of requests and mails whose time is over; some name an address. True if there may be more."""
    return len(db.run(_COUNTS, {"size": SIZE})) == SIZE


@tidying.tidier("events of the payment service")
def events_of_payments() -> bool:
    """Delete events of the payment service that are older than it repeats them. True if there may be more."""
    return payment_events.forget_old()


@tidying.tidier("events of the carrier")
def events_of_parcels() -> bool:
    """Delete events of the carrier that are older than it repeats them. True if there may be more."""
    return parcel_events.forget_old()


@tidying.tidier("parcels of others")
def parcels_of_others() -> bool:
    """Delete parcels of which the carrier told long ago, and which the shop has not booked. True if there may be more."""
    return len(db.run(_PARCELS, {"seconds": parcel_events.KEPT.total_seconds(), "size": SIZE})) == SIZE
