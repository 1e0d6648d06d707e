"""Live updates: the database announces each committed change to its listeners, and announces no change that rolled back."""

from __future__ import annotations

import asyncio
import threading

import pytest
from django.db import transaction

from supervision.insight import live_events
from supervision.operations import operator_verbs
from supervision.testing import run_of, run_until_idle, submit, submit_many
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture
def listening():
    """A session that listens; yields a function that returns the notifications that arrive within a moment."""
    with kit.another_connection(autocommit=True) as session:
        session.execute(f"LISTEN {live_events.CHANNEL}")
        session.execute(live_events._ATTEND, {"seconds": live_events.AUDIENCE_SECONDS})

        def heard(*, within: float = 0.2, enough: int = 10**6) -> list[str]:
            return [note.payload for note in session.notifies(timeout=within, stop_after=enough)]

        yield heard


def test_a_committed_event_is_announced_with_its_run(listening):
    key, *_ = kit.claimed()

    assert listening() == [str(run_of(key).pk)]


def test_without_an_audience_nothing_is_announced(listening):
    kit.fetch("UPDATE supervision_audience SET until = now() - interval '1 s'")

    kit.claimed()

    assert listening() == []


def test_a_scheduler_that_finds_nothing_to_do_disturbs_nobody(listening):
    kit.schedule()
    kit.supervisor.sweep_once()

    assert listening() == []


def test_nothing_is_announced_before_the_commit(listening):
    key = kit.in_error(0)
    listening()

    with transaction.atomic():
        operator_verbs.resubmit(key, by="olga", reason="r")
        before = listening()

    assert before == []
    assert listening(within=5, enough=1) == [str(run_of(key).pk)]


def test_nothing_is_announced_of_what_was_rolled_back(listening):
    key = kit.in_error(0)
    listening()

    with transaction.atomic():
        operator_verbs.resubmit(key, by="olga", reason="r")
        transaction.set_rollback(True)

    assert listening() == []


def test_a_batch_is_announced_once_with_all_its_runs(listening):
    keys = submit_many("toy-plain", [{"n": n} for n in range(5)])
    kit.schedule()

    (payload,) = listening()

    assert set(payload.split(",")) == {str(run_of(key).pk) for key in keys}


def test_a_batch_too_large_to_name_is_announced_without_names(listening, tuned):
    tuned(COHORT=400)
    submit_many("toy-plain", [{"n": n} for n in range(350)])
    kit.schedule()

    assert "*" in listening()


def test_a_subscriber_hears_of_news_as_soon_as_they_are_committed(monkeypatch):
    monkeypatch.setattr(live_events, "POLL_SECONDS", 20.0)
    key = submit("toy-plain", {"n": 1})

    async def visit() -> str:
        news = live_events.subscribe(key)
        waiting = asyncio.ensure_future(anext(news))
        while not kit.fetch("SELECT 1 FROM supervision_audience"):
            await asyncio.sleep(0.01)
        run_until_idle()
        await asyncio.wait_for(waiting, 5)
        await news.aclose()
        return kit.state(key)

    assert asyncio.run(visit()) == "Processed"


def test_a_subscriber_keeps_being_announced_to(monkeypatch):
    monkeypatch.setattr(live_events, "AUDIENCE_SECONDS", 0.6)

    async def visit() -> float:
        news = live_events.subscribe("no-such-order")
        waiting = asyncio.ensure_future(anext(news))
        await asyncio.sleep(1.5)
        ((left,),) = kit.fetch("SELECT extract(epoch FROM until - clock_timestamp())::float8 FROM supervision_audience")
        await waiting
        await news.aclose()
        return float(left)

    assert 0 < asyncio.run(visit()) <= 0.6


def test_what_committed_while_a_subscriber_came_is_looked_at_again(monkeypatch):
    """A transaction that looked for an audience before the subscriber came announces nothing, and commits a moment later."""
    monkeypatch.setattr(live_events, "POLL_SECONDS", 20.0)
    monkeypatch.setattr(live_events, "UNDER_WAY_SECONDS", 0.3)

    async def visit() -> float:
        news = live_events.subscribe("no-such-order")
        await anext(news)
        began = asyncio.get_running_loop().time()
        await asyncio.wait_for(anext(news), 5)
        await news.aclose()
        return asyncio.get_running_loop().time() - began

    assert 0.2 < asyncio.run(visit()) < 2


def test_a_subscriber_looks_again_by_itself_when_nothing_is_announced(monkeypatch):
    monkeypatch.setattr(live_events, "POLL_SECONDS", 0.05)

    async def visit() -> int:
        looks = 0
        async for _ in live_events.subscribe("no-such-order"):
            looks += 1
            if looks == 3:
                return looks
        return looks

    assert asyncio.run(visit()) == 3


def test_a_visitor_who_leaves_is_forgotten(monkeypatch):
    monkeypatch.setattr(live_events, "POLL_SECONDS", 0.05)

    async def visit() -> tuple[int, int]:
        news = live_events.subscribe("no-such-order")
        await anext(news)
        before = len(live_events._audience.visitors)
        await news.aclose()
        return before, len(live_events._audience.visitors)

    assert asyncio.run(visit()) == (1, 0)
    kit.until(lambda: "live events" not in {thread.name for thread in threading.enumerate()})
