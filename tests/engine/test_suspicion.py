"""A submission or a message is blamed for a process's death only if the process was reading it alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from supervision.deadletters import lone_readings
from supervision.intake import consuming, suspicion
from supervision.models import DeadLetter, Run, Submission
from supervision.store import claiming
from supervision.testing import submit, submit_many
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")

TABLE = "supervision_submission"


def died_with(*keys: str) -> None:
    """Let a consumer lock these in one batch and end before its commit."""
    with kit.another_connection() as other:
        other.execute(f"SELECT id FROM {TABLE} WHERE public_id = ANY(%s) FOR UPDATE", [list(keys)])  # noqa: S608


def died_alone_with(key: str, times: int) -> None:
    """Write the row as if this many processes had died while each was reading it alone."""
    kit.fetch(f"UPDATE {TABLE} SET suspected_at = now(), reader = 'the dead', deliveries = %s WHERE public_id = %s", [times, key])  # noqa: S608


def row(key: str) -> tuple[bool, int, str | None]:
    """(is suspected, lone readings that have not ended, the last reader)."""
    ((suspected, deliveries, reader),) = kit.fetch(
        f"SELECT suspected_at IS NOT NULL, deliveries, reader FROM {TABLE} WHERE public_id = %s",  # noqa: S608
        [key],
    )
    return suspected, deliveries, reader


@contextmanager
def in_other_hands(key: str) -> Iterator[None]:
    with kit.another_connection() as other:
        other.execute(f"SELECT id FROM {TABLE} WHERE public_id = %s FOR UPDATE", [key])  # noqa: S608
        yield


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The list of batches: the submissions that were read together."""
    seen: list[list[str]] = []
    real = consuming._turn_into_runs

    def noted(taken: Any, **rest: Any) -> Any:
        seen.append([item.public_id for item in taken])
        return real(taken, **rest)

    monkeypatch.setattr(consuming, "_turn_into_runs", noted)
    return seen


def test_what_was_in_a_dead_process_s_hands_is_read_alone_and_not_blamed(batches):
    keys = submit_many("toy-plain", [{"n": n} for n in range(5)])
    died_with(*keys[:3])

    report = consuming.consume_batch()

    assert (report.consumed, report.dead_letters) == (5, 0)
    assert batches == [keys[3:], [keys[0]], [keys[1]], [keys[2]]]
    assert Run.objects.count() == 5


def test_age_alone_makes_no_suspect_and_costs_no_statement():
    def statements(count: int) -> list[str]:
        with CaptureQueriesContext(connection) as fresh:
            assert consuming.consume_batch(count).consumed == count
        return [query["sql"].split()[0] for query in fresh]

    submit_many("toy-plain", [{"n": n} for n in range(5)])
    fresh = statements(5)
    submit_many("toy-plain", [{"n": n} for n in range(5)])
    kit.fetch(f"UPDATE {TABLE} SET created_at = now() - interval '1 day' WHERE consumed_at IS NULL")  # noqa: S608

    assert statements(5) == fresh


def test_the_evidence_survives_a_batch_that_leaves_the_suspect_out(monkeypatch):
    """The second consumer's lock replaces the first one's mark, so it records the suspicion in the same commit."""
    suspect, innocent = submit_many("toy-plain", [{"n": 1}, {"n": 2}])
    died_with(suspect)
    monkeypatch.setattr(consuming, "_one_by_one", lambda suspects: consuming.ConsumeReport())  # it ends before it reads the suspects

    consuming.consume_batch()

    assert Run.objects.get().key == innocent
    assert row(suspect) == (True, 0, None)


def test_the_fourth_lone_reading_is_not_begun():
    poison, innocent = submit_many("toy-plain", [{"n": 1}, {"n": 2}])
    died_alone_with(poison, suspicion.MOST_READINGS)

    report = consuming.consume_batch()

    assert (report.consumed, report.dead_letters) == (1, 1)
    letter = DeadLetter.objects.get()
    assert (letter.public_id, letter.deliveries) == (poison, 3)
    assert "read alone 3 times" in letter.reason
    assert "the dead" in letter.reason
    assert Run.objects.get().key == innocent


def test_a_lone_reading_that_ends_clears_its_reader():
    (key,) = submit_many("toy-plain", [{"n": 1}])
    died_alone_with(key, 2)
    toy.INTAKE.refuse[1] = RuntimeError("the application's own mistake")

    consuming.consume_batch()

    assert row(key) == (False, 0, None)
    assert DeadLetter.objects.count() == 0


def test_a_lone_reading_that_has_not_come_to_the_order_clears_nothing():
    """The order waits for an earlier one of its session, so the part that kills its reader has not run yet."""
    earlier, poison = (submit("toy-plain", {"n": n, "session_key": "s"}) for n in range(2))
    died_alone_with(poison, 2)

    with in_other_hands(earlier):
        assert consuming.consume_batch().deferred == 1

    assert row(poison) == (True, 2, "the dead")


def test_what_another_process_has_locked_is_not_met():
    (key,) = submit_many("toy-plain", [{"n": 1}])
    died_alone_with(key, 2)
    pk = Submission.objects.get().pk

    with in_other_hands(key):
        report = consuming._one_by_one([pk])

    assert (report.consumed, report.dead_letters, report.deferred) == (0, 0, 1)
    assert row(key) == (True, 2, "the dead")


def test_a_reading_under_way_is_no_evidence():
    (key,) = submit_many("toy-plain", [{"n": 1}])
    pk = Submission.objects.get().pk

    def blame() -> None:
        for _ in range(5):
            consuming.consume_batch()

    with suspicion.alone(pk) as reading:
        assert reading is not None
        assert kit.at_once(blame) == [None]
        assert (row(key)[1], DeadLetter.objects.count()) == (1, 0)


def test_the_same_process_does_not_count_its_own_reading_twice():
    (key,) = submit_many("toy-plain", [{"n": 1}])
    kit.fetch(f"UPDATE {TABLE} SET suspected_at = now(), reader = %s, deliveries = 1", [suspicion.me()])  # noqa: S608

    with suspicion.alone(Submission.objects.get().pk) as reading:
        assert reading is not None
        assert (reading.unfinished, row(key)[1]) == (0, 1)


def test_what_older_code_counted_is_no_evidence():
    (key,) = submit_many("toy-plain", [{"n": 1}])
    kit.fetch(f"UPDATE {TABLE} SET deliveries = 4")  # noqa: S608
    died_with(key)

    report = consuming.consume_batch()

    assert (report.consumed, report.dead_letters) == (1, 0)


def test_what_a_consumer_put_back_is_no_suspect(batches):
    keys = submit_many("toy-plain", [{"n": n} for n in range(3)])
    with transaction.atomic():
        claiming.take_submissions(3)  # this transaction locked the rows, wrote nothing and committed

    assert consuming.consume_batch().consumed == 3
    assert batches == [keys]


@pytest.mark.parametrize("mark", [1, 3, 2**31, 2**32 - 1])
def test_a_mark_that_is_no_number_of_this_round_raises_nothing(mark):
    """A row keeps 32 of the 64 bits of a transaction id, and a shared lock stores a multixact id instead."""
    with transaction.atomic():
        assert kit.fetch(suspicion._ROLLED_BACK, {"ids": [1], "marks": [mark]}) in ([], [(1,)])


def test_a_batch_that_is_refused_is_halved_until_the_culprit_is_alone(batches):
    keys = submit_many("toy-plain", [{"n": n} for n in range(8)])
    toy.INTAKE.refuse[5] = RuntimeError("no")

    report = consuming.consume_batch()

    assert (report.consumed, report.dead_letters) == (7, 1)
    assert [len(batch) for batch in batches] == [8, 4, 4, 2, 1, 1, 2]
    assert DeadLetter.objects.get().public_id == keys[5]


@pytest.mark.parametrize(
    ("reader", "counted", "unfinished"),
    [("another", 2, 2), (None, 3, 0), ("me", 2, 1)],
    ids=["processes that died", "what older code counted", "a reading of our own whose end could not be written"],
)
def test_only_readings_of_other_processes_count(reader, counted, unfinished):
    row = ["digest", counted, lone_readings.me() if reader == "me" else reader]
    kit.fetch("INSERT INTO supervision_receipt (digest, deliveries, reader) VALUES (%s, %s, %s)", row)

    with lone_readings.alone("digest") as reading:
        assert reading.unfinished == unfinished

    assert kit.fetch("SELECT * FROM supervision_receipt") == []


def test_a_reading_that_raised_takes_back_its_own_count_and_no_other():
    kit.fetch("INSERT INTO supervision_receipt (digest, deliveries, reader) VALUES ('digest', 2, 'another')")

    for _ in range(3):
        with pytest.raises(ValueError), lone_readings.alone("digest") as reading:
            raise ValueError
        assert reading.unfinished == 2

    assert kit.fetch("SELECT deliveries FROM supervision_receipt") == [(2,)]
