"""An old snapshot (a backup, a long report) keeps dead index entries: the look for work does not read them again."""

from __future__ import annotations

import pytest

from supervision.dispatch import scheduler
from supervision.intake import consuming
from supervision.store import claiming, step_sql
from supervision.store.bounds import searching
from supervision.testing import submit, submit_many
from tests.engine import kit
from tests.support import pages

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture
def slow(monkeypatch):
    """Let every look count as slow."""
    monkeypatch.setattr(searching, "SLOW_SECONDS", -1.0)
    monkeypatch.setattr(searching, "SHARE", 1e-6)  # so that only `forget` or time makes a look start at the first row again


def test_what_was_consumed_while_a_snapshot_is_held_is_not_walked_over_again():
    with kit.another_connection() as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM supervision_submission").fetchone()
        for _ in range(6):
            submit_many("toy-plain", [{"n": n} for n in range(1000)])
            kit.fetch("UPDATE supervision_submission SET consumed_at = now() WHERE consumed_at IS NULL")
        (newest,) = kit.fetch("SELECT max(id) FROM supervision_submission")[0]
        look = step_sql.TAKE_SUBMISSIONS.replace("FOR UPDATE SKIP LOCKED", "")
        params = {"limit": 10, "only": None, "names": ["toy-plain"]}

        everything = pages.of(look, {**params, "since": 0})
        the_front = pages.of(look, {**params, "since": newest - 100})

    assert everything > 100
    assert the_front < everything / 10


def test_after_a_slow_look_the_next_begins_near_the_newest_row(slow, monkeypatch):
    monkeypatch.setattr(claiming, "OVERLAP_IDS", 10)
    submit_many("toy-plain", [{"n": n} for n in range(30)])
    assert len(claiming.take_submissions(20)) == 20
    mark = claiming._waiting._mark

    assert mark == kit.fetch("SELECT min(id) + 9 FROM supervision_submission")[0][0]
    assert [taken.id for taken in claiming.take_submissions(3)] == [mark, mark + 1, mark + 2]


def test_what_lies_behind_that_point_is_found_when_its_time_is_over(slow, monkeypatch):
    monkeypatch.setattr(claiming, "OVERLAP_IDS", 0)
    monkeypatch.setattr(searching, "WAIT_SECONDS", 0.5)
    early = submit("toy-plain", {"n": 1})
    submit_many("toy-plain", [{"n": n} for n in range(5)])
    claiming.take_submissions(10)

    assert early not in {taken.public_id for taken in claiming.take_submissions(10)}
    assert kit.until(lambda: early in {taken.public_id for taken in claiming.take_submissions(10)}, within=5)


def test_claims_look_near_the_newest_turn_and_come_back_for_the_others(slow, monkeypatch):
    monkeypatch.setattr(searching, "WAIT_SECONDS", 0.5)
    kit.waiting()
    assert claiming.claim(5)
    old = submit("toy-plain", {"n": 2})
    consuming.consume_batch(born=False)
    kit.fetch("UPDATE supervision_stepstate SET turn_at = now() - interval '1 hour' WHERE idempotency_key LIKE %s", [f"{old}:%"])

    assert claiming.claim(5) == {}
    assert kit.until(lambda: claiming.claim(5), within=5)


def test_the_scheduler_ends_its_turn_only_when_it_has_seen_everything(slow, monkeypatch):
    monkeypatch.setattr(searching, "WAIT_SECONDS", 0.5)
    monkeypatch.setattr(scheduler, "dispatch", lambda *_: None)
    kit.waiting()
    scheduler.claim_due()
    old = submit("toy-plain", {"n": 2})
    consuming.consume_batch(born=False)
    kit.fetch("UPDATE supervision_stepstate SET turn_at = now() - interval '1 hour' WHERE idempotency_key LIKE %s", [f"{old}:%"])

    scheduler.claim_due()

    assert kit.states(old)[0] == "Processing"


def test_quick_looks_always_see_everything(monkeypatch):
    monkeypatch.setattr(searching, "SLOW_SECONDS", 60.0)
    submit_many("toy-plain", [{"n": n} for n in range(5)])

    assert len(claiming.take_submissions(2)) == 2
    assert len(claiming.take_submissions(5)) == 5
    assert claiming._waiting._everything_at == 0.0


def test_steps_in_flight_are_counted_from_a_point_behind_which_few_are(slow):
    submit_many("toy-plain", [{"n": n} for n in range(40)])
    consuming.consume_batch()

    assert claiming.in_flight.count() == 40
    assert 36 <= claiming.in_flight.count() <= 40
