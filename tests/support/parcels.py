"""Orders whose parcels travel, and the carrier's signed events."""

from __future__ import annotations

import json

import pytest
from django.db import connection
from django.test import Client

from orders.gateways.carrier_events import signature
from orders.models import Order, ParcelCursor
from orders.parcels import watch
from orders.queries import answer, order_view
from supervision import testing
from supervision.incidents import lifecycle
from supervision.models import Incident
from tests.shopping import a_product, place
from tests.support.shop import until
from tests.support.simulators import CARRIER_SECRET

PATH = "/hooks/carrier/"
AT = "2026-11-23T18:30:00Z"


@pytest.fixture
def shop(sas, services, transactional_db, settings):
    a_product()
    settings.CARRIER_WEBHOOK_SECRET = CARRIER_SECRET
    return sas


@pytest.fixture
def sent(shop) -> str:
    key = place()
    shop.run()
    return key


def step_of(key: str):
    return testing.step(key, "book-shipment")


def event(key: str, state: str = "picked_up", at: str = AT, name: str = "shp_1") -> dict:
    return {"id": name, "key": key, "state": state, "at": at}


def tell(what: dict | bytes, *, secret: str = CARRIER_SECRET, signed: str | None = None):
    body = what if isinstance(what, bytes) else json.dumps(what).encode()
    headers = {"X-Signature": signature(secret, body) if signed is None else signed}
    return Client(enforce_csrf_checks=True).post(PATH, body, content_type="application/json", headers=headers)


def parcels(key: str) -> list[dict]:
    view = order_view(key)
    assert view is not None
    return answer(view)["parcels"]


def state(key: str) -> str:
    return parcels(key)[0]["state"]


def gather() -> None:
    """What the task does until it has read every order, without a look at the carrier."""
    until(all_read, what="the end of every earlier transaction of the server, other tests' included")
    watch.look_at_orders()


def all_read() -> bool:
    """Read on; whether every order that can be seen has been read."""
    watch.read_orders()
    newest = Order.objects.order_by("-pk").values_list("pk", flat=True).first() or 0
    return ParcelCursor.objects.filter(done_to__gte=newest).exists()


def due_now() -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orders_parcel SET look_at = now() WHERE look_at IS NOT NULL")


def causes() -> dict[str, str]:
    lifecycle.look()
    return {one.cause: one.title for one in Incident.objects.filter(closed_at__isnull=True, kind="parcel")}
