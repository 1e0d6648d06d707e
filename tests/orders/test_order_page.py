"""The order page: who may open it, what it shows and hides, and how an open page gets changes."""

from __future__ import annotations

import asyncio
import gc
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test import AsyncClient, Client

from orders import services, streams
from orders.models import Order
from orders.progress import WORDS, standing
from orders.queries import order_view
from orders.workflows import FULFIL_ORDER
from supervision import testing
from supervision.models import Submission
from supervision.operations import resuming
from supervision.recovery import failures
from supervision.retry import Failure, Outcome
from supervision.store import step_verbs
from tests.shopping import ADDRESS, PASSWORD, place

pytestmark = pytest.mark.usefixtures("no_hints")


def fail_first_step(message: str) -> None:
    """Let the scheduler claim every waiting order and the stock agent refuse it for good."""
    ((stock, claims),) = testing.schedule()
    started = step_verbs.start(stock, claims)
    failures.fail(stock, [(one.claim, Failure(outcome=Outcome.PERMANENT, message=message, code="refused")) for one in started])


def test_a_guests_order_opens_by_its_link_before_and_after_it_is_consumed(client, mug) -> None:
    public_id = place()
    assert "We have your order" in client.get(f"/orders/{public_id}/").text

    testing.schedule()

    page = client.get(f"/orders/{public_id}/").text
    assert Order.objects.get().number in page
    assert "Setting your items aside" in page


def test_an_accounts_order_opens_for_its_owner_and_for_operators_alone(mug, ada, bob) -> None:
    public_id = place(ada)
    operator = User.objects.create_user("oscar", password=PASSWORD)
    operator.user_permissions.add(Permission.objects.get(codename="view_order"))
    answers = {}
    for name, user in {"guest": None, "ada": ada, "bob": bob, "oscar": operator}.items():
        client = Client()
        if user is not None:
            client.force_login(user)
        answers[name] = [client.get(f"/orders/{public_id}/{part}").status_code for part in ("", "live/")]

    assert answers == {"guest": [404, 404], "ada": [200, 200], "bob": [404, 404], "oscar": [200, 200]}


def test_foreign_and_unknown_orders_look_the_same(client, mug, ada) -> None:
    public_id = place(ada)

    foreign, unknown = client.get(f"/orders/{public_id}/"), client.get("/orders/AAAAAAAAAAAAAAAAAAAAAA/")

    def neutral(html: str) -> str:
        html = re.sub(r'name="csrfmiddlewaretoken" value="\w+"', "", html)
        return html.replace(public_id, "").replace("AAAAAAAAAAAAAAAAAAAAAA", "")

    assert neutral(foreign.text) == neutral(unknown.text)


def test_the_customers_of_a_shops_server_follow_their_orders_by_link(client, mug, ada) -> None:
    ada.groups.add(Group.objects.get_or_create(name="client")[0])

    assert client.get(f"/orders/{place(ada)}/").status_code == 200


def test_an_order_page_is_kept_by_no_cache_and_listed_by_no_search_engine(client, mug) -> None:
    public_id = place()

    for path in ("", "live/"):
        headers = client.get(f"/orders/{public_id}/{path}").headers
        assert "no-store" in headers["Cache-Control"]
        assert "noindex" in headers["X-Robots-Tag"]
        assert headers["Referrer-Policy"] == "same-origin"


@pytest.mark.parametrize(("language", "said"), [("en", "Nov 5, 2026"), ("it", "5 nov 2026"), ("pt-br", "5 de nov. de 2026")])
def test_an_order_page_writes_its_time_in_the_readers_form_and_names_the_zone_once(client, mug, language, said) -> None:
    public_id = place()
    Submission.objects.filter(public_id=public_id).update(created_at=datetime(2026, 11, 5, 14, 30, 7, tzinfo=UTC))
    page = client.get(f"/orders/{public_id}/", headers={"Accept-Language": language}).content.decode()
    [shown] = re.findall(r'<p class="quiet"><time datetime="[^"]+">([^<]+)</time>', page)
    assert shown == f"{said} 14:30 UTC"


def test_an_order_that_is_not_paid_does_not_say_that_it_was(client, mug) -> None:
    page = client.get(f"/orders/{place()}/").content.decode()

    assert "<dt>Payment method</dt>" in page
    assert "<dt>Shipping address</dt>" in page
    assert "Paid with" not in page


def test_what_a_customer_typed_is_escaped_on_the_order_page(client, mug) -> None:
    public_id = place(shipping_address=ADDRESS | {"name": "<img src=x onerror=alert(1)>"})

    assert "<img src=x" not in client.get(f"/orders/{public_id}/").text


def test_a_customer_never_reads_what_an_agent_wrote_when_a_step_fails(client, mug) -> None:
    public_id = place()
    fail_first_step("<b>internal: host 10.0.0.7 refused</b>")

    assert "internal" not in client.get(f"/orders/{public_id}/").text


def test_an_order_that_is_out_of_stock_says_so_and_what_happens_to_the_money(client, mug) -> None:
    public_id = place()
    fail_first_step("only 1 left")
    testing.run_until_idle()

    page = client.get(f"/orders/{public_id}/").text

    assert "Something you ordered is sold out" in page
    assert "Your card was not charged." in page
    assert "data-final" in page


def test_a_customer_cancels_and_reads_that_nothing_is_charged(client, mug) -> None:
    public_id = place()
    assert "Yes, cancel the order" in client.get(f"/orders/{public_id}/").text

    page = client.post(f"/orders/{public_id}/cancel/", {"reason": "too late"}, follow=True).text
    assert "We are cancelling your order" in page

    testing.schedule()

    page = client.get(f"/orders/{public_id}/").text
    assert "Your order is cancelled" in page
    assert "Your card was not charged." in page
    assert "Yes, cancel the order" not in page
    assert "can no longer be cancelled" in client.post(f"/orders/{public_id}/cancel/", {"reason": ""}, follow=True).text


def test_a_reason_that_is_too_long_stays_in_the_form_and_the_end_of_a_line_counts_one_character(client, mug) -> None:
    public_id = place()
    longest = "\r\n".join(["x" * 99] * 4 + ["x" * 100])

    refused = client.post(f"/orders/{public_id}/cancel/", {"reason": longest + "y"})

    assert refused.status_code == 400
    assert "The reason is too long" in refused.text
    assert '<details class="ask" open>' in refused.text
    assert "xy</textarea>" in refused.text
    assert 'http-equiv="refresh"' not in refused.text
    assert Submission.objects.get().cancel_requested_at is None
    assert client.post(f"/orders/{public_id}/cancel/", {"reason": longest}).status_code == 302
    assert Submission.objects.get().cancel_requested_at is not None


def test_without_javascript_no_page_with_an_open_form_loads_itself_again(client, mug) -> None:
    page = f"/orders/{place()}/"
    plain = client.get(page).text
    assert 'http-equiv="refresh"' in plain
    assert f'<noscript><p><a href="{page}?cancel=1#order-cancel">' in plain
    assert '<details class="ask needs-script">' in plain

    opened = client.get(f"{page}?cancel=1").text

    assert 'http-equiv="refresh"' not in opened
    assert '<details class="ask" open>' in opened
    assert "?cancel=1" not in opened


def test_an_order_that_goes_back_to_an_earlier_step_is_not_called_cancelled(client, mug) -> None:
    public_id = place()
    ((stock, claims),) = testing.schedule()
    claims = step_verbs.finish_at(stock)([(one, {}) for one in step_verbs.start(stock, claims)]).claims
    refusal = Failure(outcome=Outcome.PERMANENT, message="no", code="refused")
    failures.fail(stock.following, [(one.claim, refusal) for one in step_verbs.start(stock.following, claims)])
    resuming.resume_from(public_id, "reserve-stock", by="olga", reason="counted wrong")

    page = client.get(f"/orders/{public_id}/").text
    view = order_view(public_id)
    assert "We are going over your order again" in page
    assert "We are cancelling your order" not in page
    assert view is not None
    assert view.may_cancel


def test_nobody_cancels_a_foreign_order(mug, ada, bob) -> None:
    public_id = place(ada)
    viewer = User.objects.create_user("vera", password=PASSWORD)
    viewer.user_permissions.add(Permission.objects.get(codename="view_order"))

    for user in (None, bob, viewer):
        client = Client()
        if user is not None:
            client.force_login(user)
        assert client.post(f"/orders/{public_id}/cancel/", {"reason": "spite"}).status_code == 404

    assert Submission.objects.get().cancel_requested_at is None


def test_cancelling_needs_the_pages_own_form(mug) -> None:
    public_id = place()

    answer = Client(enforce_csrf_checks=True).post(f"/orders/{public_id}/cancel/", {"reason": "x"})

    assert answer.status_code == 403
    assert "Please try again" in answer.text
    assert Client().get(f"/orders/{public_id}/cancel/")["Location"] == f"/orders/{public_id}/"
    assert Submission.objects.get().cancel_requested_at is None


def test_every_step_of_the_workflow_has_words_for_customers() -> None:
    assert [step.name for step in FULFIL_ORDER.steps] == list(WORDS)


def test_a_step_that_waits_for_another_try_is_called_late_and_not_failed(mug) -> None:
    public_id = place()
    testing.schedule()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE supervision_stepstate SET process_state = 'Pending', locked_by = NULL, failure_count = 1 WHERE position = 0")

    view = order_view(public_id)

    assert view is not None
    assert standing(view).stages[0].look == "late"


async def _read_until(stream: Any, wanted: str) -> str:
    seen = ""
    async with asyncio.timeout(20):
        async for part in stream:
            seen += part.decode()
            if wanted in seen:
                return seen
    raise AssertionError(f"the stream ended without {wanted!r}: {seen}")


@pytest.mark.django_db(transaction=True)
def test_an_open_page_hears_of_a_cancellation_and_the_stream_ends(mug) -> None:
    public_id = place()
    testing.schedule()

    async def watch() -> tuple[str, str]:
        answer = await AsyncClient().get(f"/orders/{public_id}/stream/")
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert answer.headers["X-Accel-Buffering"] == "no"
        parts = aiter(answer.streaming_content)
        first = await _read_until(parts, "event: order")
        await asyncio.to_thread(_cancel_elsewhere, public_id)
        rest = await _read_until(parts, "event: order")
        await parts.aclose()
        return first, rest

    first, rest = asyncio.run(watch())

    assert "Setting your items aside" in first
    assert "Your order is cancelled" in rest
    assert streams._open == {}


@pytest.mark.django_db(transaction=True)
def test_a_stream_of_a_finished_order_says_done_at_once(mug) -> None:
    public_id = place()
    testing.schedule()
    services.cancel_order(public_id, by="customer", reason="test")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE supervision_run SET process_state = 'Cancelled', direction = 'undo', finished_at = now()")

    async def watch() -> str:
        answer = await AsyncClient().get(f"/orders/{public_id}/stream/")
        return await _read_until(aiter(answer.streaming_content), "event: done")

    assert "data-final" in asyncio.run(watch())


@pytest.mark.django_db(transaction=True)
def test_a_process_with_enough_streams_refuses_another(mug, settings) -> None:
    settings.LIVE_STREAMS_PER_PROCESS = 0
    public_id = place()

    async def ask(path: str) -> int:
        return (await AsyncClient().get(path)).status_code

    assert asyncio.run(ask(f"/orders/{public_id}/stream/")) == 503
    assert asyncio.run(ask("/orders/AAAAAAAAAAAAAAAAAAAAAA/stream/")) == 404


@pytest.mark.django_db(transaction=True)
def test_one_address_and_one_link_hold_so_many_streams(mug, settings, monkeypatch) -> None:
    monkeypatch.setattr(streams, "MOST_PER_ORDER", 2)
    settings.LIVE_STREAMS_PER_ADDRESS, settings.TRUST_PROXY = 3, True
    first, other = place(), place()

    async def ask(public_id: str, address: str) -> Any:
        return await AsyncClient().get(f"/orders/{public_id}/stream/", headers={"X-Forwarded-For": address})

    async def scenario() -> list[int]:
        kept = [await ask(first, "192.0.2.1"), await ask(first, "192.0.2.1")]
        link_is_full = await ask(first, "192.0.2.9")
        kept += [await ask(other, "192.0.2.1")]
        address_is_full = await ask(other, "192.0.2.1")
        kept += [await ask(other, "192.0.2.2")]
        told = [answer.status_code for answer in (*kept, link_is_full, address_is_full)]
        async for _part in kept.pop(0):
            break  # one begins and its reader leaves, the others are never sent
        del _part
        return told

    told = asyncio.run(scenario())
    gc.collect()

    assert told == [200, 200, 200, 200, 503, 503]
    assert streams._open == {}


def test_a_synchronous_server_offers_no_stream_and_the_page_asks_again_itself(client, mug) -> None:
    public_id = place()

    page = client.get(f"/orders/{public_id}/").text

    assert "sse-connect" not in page
    assert f'hx-get="/orders/{public_id}/live/"' in page
    assert client.get(f"/orders/{public_id}/stream/").status_code == 204


def _cancel_elsewhere(public_id: str) -> None:
    try:
        services.cancel_order(public_id, by="customer", reason="test")
    finally:
        connection.close()
