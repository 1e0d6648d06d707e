"""One trace leads from the shop's request through scheduler and agents to the carrier, in a shop of real processes."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import Client

from supervision import testing
from supervision.models import Run
from supervision.telemetry.trace_ids import trace_id
from tests.shopping import a_product, place
from tests.support import console
from tests.support.otlp import Receiver, receiver
from tests.support.shop import Shop, open_shop, until

SERVER, CLIENT, CONSUMER = 2, 3, 5
STEPS = ["do reserve-stock", "do charge-payment", "do book-shipment", "do notify-customer"]


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Shop, Receiver]]:
    directory: Path = tmp_path_factory.mktemp("traced")
    with receiver() as found:
        settings = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": found.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "TRACE_URL": "https://traces.example/trace/{trace_id}",
            "LOG_FORMAT": "json",
        }
        with open_shop("pgmq://", directory, **settings) as shop:
            yield shop, found


def whole(found: Receiver, trace: str):
    """The trace, once its first span and all its steps have been received: each process sends its own spans."""

    def arrived() -> bool:
        spans = found.of(trace)
        return {span.name for span in spans}.issuperset(STEPS) and any(not span.parent for span in spans)

    until(arrived, what="the first span and the spans of the last step")
    return found.of(trace)


def test_one_trace_leads_from_the_shops_request_to_the_carriers_call(traced):
    shop, found = traced

    key = shop.place(shop.headers())
    shop.ends(key, "Processed")

    spans = whole(found, trace_id(key))
    [root] = [span for span in spans if not span.parent]
    assert (root.service, root.name, root.kind) == ("sas-web", "POST /api/v1/orders/", SERVER)
    assert root.facts["http.response.status_code"] == 202
    steps = [span for span in spans if span.kind == CONSUMER]
    assert [span.name for span in steps] == STEPS
    assert {span.parent for span in steps} == {root.id}
    assert {(span.service, span.facts["sas.outcome"], span.facts["sas.attempt"]) for span in steps} == {("sas-agents", "done", 1)}
    [[run]] = shop.rows("SELECT id FROM supervision_run WHERE key = %s", key)
    assert {span.facts["sas.run.id"] for span in steps} == {run}
    assert not [span for span in found.spans if key in f"{span.name} {span.facts}"], "with its public id an order's page can be seen"
    [carrier] = [span for span in spans if span.facts.get("peer.service") == "carrier"]
    assert (carrier.kind, carrier.facts["http.response.status_code"], carrier.facts["http.request.resend_count"]) == (CLIENT, 201, 0)
    assert carrier.parent == next(span.id for span in steps if span.name == "do book-shipment")
    assert [span.name for span in spans if span.parent not in {other.id for other in spans}] == [root.name]
    assert root.began <= min(span.began for span in spans)
    assert steps[-1].ended == max(span.ended for span in spans)


def test_a_callers_trace_goes_on_and_leads_to_the_orders(traced):
    shop, found = traced
    caller = uuid.uuid4().hex

    key = shop.place({**shop.headers(), "traceparent": f"00-{caller}-b7ad6b7169203331-01"})
    shop.ends(key, "Processed")

    spans = whole(found, trace_id(key))
    [root] = [span for span in spans if not span.parent]
    assert (root.name, root.links) == ("accept order", (caller,))
    [asked] = until(lambda: found.of(caller), what="the span in the caller's trace")
    assert (asked.name, asked.parent, asked.links) == ("POST /api/v1/orders/", "b7ad6b7169203331", (trace_id(key),))


def test_a_refused_card_is_a_failed_attempt_without_the_words_of_the_refusal(traced):
    shop, found = traced

    key = shop.place(shop.headers(), payment_method="pm_card_visa_chargeDeclined")
    shop.ends(key, "Error")

    refused = until(lambda: [span for span in found.of(trace_id(key)) if span.name == "do charge-payment"], what="the attempt")
    assert [(span.failed, span.facts["sas.outcome"], span.facts["error.type"]) for span in refused] == [
        (True, "permanent", "card_declined")
    ]
    calls = [span for span in found.of(trace_id(key)) if span.facts.get("peer.service") == "payment"]
    assert calls
    assert {span.parent for span in calls} == {refused[0].id}


def test_operators_find_the_trace_at_the_api_and_owners_see_none(traced):
    shop, _ = traced
    key = shop.place(shop.headers())

    assert shop.get(key, shop.headers("operator"))["trace"] == {
        "id": trace_id(key),
        "url": f"https://traces.example/trace/{trace_id(key)}",
    }
    assert "trace" not in shop.get(key, shop.headers())


def test_the_console_leads_from_the_order_to_its_trace(db, settings):
    settings.SUPERVISION = {**settings.SUPERVISION, "TRACE_URL": "https://traces.example/trace/{trace_id}"}
    a_product()
    key = place()
    testing.schedule()
    run = Run.objects.get(key=key)

    visitor = Client()
    visitor.force_login(console.person("vera", "viewer"))

    page = visitor.get(f"/admin/supervision/run/{run.pk}/change/").content.decode()

    assert f'href="https://traces.example/trace/{trace_id(key)}"' in page
