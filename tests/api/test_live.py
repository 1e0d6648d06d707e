"""An order's history as a live stream."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.test import AsyncClient
from knox.models import AuthToken

from orders import streams
from orders.api import events
from supervision.intake.consuming import consume_batch
from supervision.models import Run
from supervision.operations import operator_verbs
from tests.shopping import a_client, a_product, a_request, an_account

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def order():
    """(public id, headers of its owner): placed, not consumed."""
    a_product()
    account = an_account("ada", "customer")
    public_id = a_client(account).post("/api/v1/orders/", a_request()).json()["id"]
    token = AuthToken.objects.create(account)[1]
    return public_id, {"Authorization": f"Token {token}", "Accept": "text/event-stream"}


async def open_stream(order, **headers):
    public_id, owner = order
    return await AsyncClient().get(f"/api/v1/orders/{public_id}/events/", headers={**owner, **headers})


async def frames(stream, until, within=20.0):
    """Read whole frames until one satisfies the condition; returns all of them."""
    seen, text = [], ""
    async with asyncio.timeout(within):
        async for chunk in stream:
            text += chunk.decode() if isinstance(chunk, bytes) else chunk
            *whole, text = text.split("\n\n")
            seen += whole
            if whole and until(whole[-1]):
                break
    return seen


def told(seen):
    """The events among the frames, each with its id."""
    return [
        (int(frame.split("\n")[0].removeprefix("id: ")), json.loads(frame.split("data: ")[1])) for frame in seen if frame.startswith("id:")
    ]


def test_a_visitor_sees_events_as_they_happen_and_the_end(order):
    async def scenario():
        answer = await open_stream(order)
        assert (answer.status_code, answer["Content-Type"]) == (200, "text/event-stream")
        assert answer["X-Accel-Buffering"] == "no"
        async with aclosing(aiter(answer.streaming_content)) as stream:
            first = await frames(stream, lambda frame: frame.startswith("retry"))
            await sync_to_async(consume_batch)(born=False)
            first += await frames(stream, lambda frame: frame.startswith("id: 1\n"))  # the stream sends it before the next change
            await sync_to_async(operator_verbs.cancel)(order[0], by="ada", reason="changed my mind")
            return first + await frames(stream, lambda frame: False)  # until the stream ends by itself

    seen = told(async_to_sync(scenario)())

    assert [seq for seq, _event in seen] == list(range(1, len(seen) + 1))
    assert all(event["seq"] == seq for seq, event in seen)
    assert any(event["step"] is None and event["to"] == "Cancelled" for _seq, event in seen)
    assert Run.objects.get().process_state == "Cancelled"


def test_a_stream_resumes_after_the_last_event_and_ends_for_good(order):
    consume_batch(born=False)
    operator_verbs.cancel(order[0], by="ada", reason="changed my mind")

    async def scenario():
        answer = await open_stream(order)
        everything = told(await frames(answer.streaming_content, lambda frame: False))
        resumed = await open_stream(order, **{"Last-Event-ID": str(everything[-2][0])})
        rest = told(await frames(resumed.streaming_content, lambda frame: False))
        done = await open_stream(order, **{"Last-Event-ID": str(everything[-1][0])})
        return everything, rest, done.status_code

    everything, rest, status = async_to_sync(scenario)()

    assert rest == everything[-1:]
    assert status == 204


def test_a_silent_stream_says_that_it_is_still_there(order, monkeypatch):
    monkeypatch.setattr(events, "HEARTBEAT_SECONDS", 0.05)

    async def scenario():
        answer = await open_stream(order)
        async with aclosing(aiter(answer.streaming_content)) as stream:
            return await frames(stream, lambda frame: frame.startswith(":"))

    assert async_to_sync(scenario)()[-1] == ": still here"
    assert streams._open == {}


def test_a_stream_is_for_those_who_may_see_the_order(order):
    stranger = AuthToken.objects.create(an_account("eve", "customer"))[1]

    async def scenario():
        return await open_stream(order, Authorization=f"Token {stranger}")

    answer = async_to_sync(scenario)()

    # The client accepts only streams, but the refusal is a problem document.
    assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")


def test_a_wrong_place_to_resume_from_is_refused(order):
    answers = [async_to_sync(open_stream)(order, **{"Last-Event-ID": value}) for value in ("x", "-1", "9" * 30)]

    assert {answer.status_code for answer in answers} == {400}


def test_no_more_streams_than_the_process_can_follow(order, settings):
    settings.LIVE_STREAMS_PER_PROCESS = 0

    answer = async_to_sync(open_stream)(order)

    assert (answer.status_code, answer["Content-Type"]) == (503, "application/problem+json")
    assert answer["Retry-After"]
