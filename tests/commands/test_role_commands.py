"""The commands schedule and supervise: one pass with --once, else a loop that ends cleanly."""

from __future__ import annotations

import pytest

from supervision import testing
from supervision.models import DeadLetter
from tests.commands.conftest import Manage, place_an_order

pytestmark = pytest.mark.django_db


def test_schedule_consumes_then_claims_and_says_how_much(manage: Manage, mug: object):
    place_an_order()
    place_an_order()

    assert manage("schedule", "--once").json == {"consumed": 2, "dead_letters": 0, "claimed": 2, "dispatched": 1}
    assert manage("schedule", "--once").json == {"consumed": 0, "dead_letters": 0, "claimed": 0, "dispatched": 0}


def test_schedule_counts_what_it_could_not_read(manage: Manage, db: None):
    testing.submit("no-such-workflow", {})

    assert manage("schedule", "--once").json["dead_letters"] == 1
    assert DeadLetter.objects.count() == 1


def test_supervise_finds_the_overdue_and_says_what_it_did(manage: Manage, an_order: str):
    testing.expire(an_order)

    report = manage("supervise", "--once").json

    assert list(report) == ["overdue", "retried", "redispatched", "waiting", "compensating", "errors", "relayed"]
    assert report["overdue"] == 1
    assert report["redispatched"] == 1
    assert testing.step(an_order, "reserve-stock").dispatch_count == 1


def test_supervise_says_so_when_there_is_nothing_to_do(manage: Manage, db: None):
    assert set(manage("supervise", "--once").json.values()) == {0}
