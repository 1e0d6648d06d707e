"""A database's clock that ran ahead and is put back takes no order from the pulse or from the totals, and counts none twice (H26)."""

from __future__ import annotations

from collections import Counter

import pytest

from supervision.incidents import pulse
from supervision.insight import totals
from supervision.insight.pulse import points
from supervision.recovery import corrected_clock
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture(autouse=True)
def nothing_counted(engine):
    """The totals begin with these tests."""
    kit.fetch("DELETE FROM supervision_pulsetotal")


def finished(count: int, *, ago: float = 0) -> None:
    """So many orders ended so many minutes ago, each after two seconds."""
    kit.fetch(
        "INSERT INTO supervision_run (workflow, key, process_state, finished_at, created_at)"
        " SELECT 'toy', gen_random_uuid(), 'Processed', t.at, t.at - interval '2 s'"
        " FROM generate_series(1, %s), (SELECT now() - %s * interval '1 minute') t(at)",
        [count, ago],
    )


def looked() -> None:
    """Look some seconds later: the rows of the last minutes are counted again."""
    kit.fetch("UPDATE supervision_pulse SET recorded_at = recorded_at - interval '11 s'")
    pulse.record()


def put_back(minutes: float) -> None:
    """Put the database's clock back: every time that it wrote lies so much later than the clock says now."""
    for table, columns in {
        "run": ["finished_at", "created_at"],
        "pulse": ["minute", "recorded_at"],
        "pulsetotal": ["until"],
    }.items():
        for move in (f"+ interval '9999 days {minutes} minutes'", "- interval '9999 days'"):  # minutes are keys, and would meet each other
            moves = ", ".join(f"{column} = {column} {move}" for column in columns)
            kit.fetch(f"UPDATE supervision_{table} SET {moves}")  # noqa: S608 - our own names


def told() -> tuple[int, int]:
    """How many orders the pulse of the last hour has, and the totals."""
    whole = points("hour")[1]
    return (whole.processed if whole is not None else 0), totals.ends().processed


def test_orders_that_end_after_the_clock_was_put_back_are_counted_at_once():
    finished(3, ago=30)
    looked()
    put_back(120)
    assert told() == (0, 3)
    finished(4)

    looked()

    assert told() == (4, 7)
    finished(1)
    looked()
    assert told() == (5, 8)
    assert kit.fetch(corrected_clock._WAS_AHEAD, {"slack": 60.0}) == [(True,)]


def test_minutes_that_were_written_ahead_of_their_time_are_counted_again_and_nothing_twice():
    """The clock jumps two hours ahead and is put back by 100 minutes. The supervisor is away at first, and orders end meanwhile."""
    finished(2, ago=20)
    looked()
    put_back(-120)
    for _hour in range(3):  # a look counts an hour of those that are missing
        looked()
    finished(5)
    looked()
    put_back(-15)
    looked()
    assert told() == (5, 7)
    put_back(100)
    finished(4)
    finished(6, ago=10)

    looked()

    assert told() == (2 + 6 + 4, 2 + 5 + 6 + 4)
    put_back(-100)
    for _hour in range(3):
        looked()
    found = totals.ends()
    assert (found.processed, found.seconds, +Counter(found.classes)) == (17, pytest.approx(34), {14: 17})
    assert kit.fetch("SELECT processed, seconds FROM supervision_pulsetotal") == [(17, pytest.approx(34))]
