"""A redelivered message is blamed only for processes that died while they read it."""

from __future__ import annotations

import pytest

from supervision.deadletters import lone_readings
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("engine")


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
