"""The tutorials' code runs as it stands in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervision import agent, testing, workflow

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "waiting.md").read_text()
FILES = dict(re.findall(r"^```python\n# ([\w/.]+)[^\n]*\n(.*?)^```$", PAGE, re.M | re.S))
TESTS: dict[str, Any] = {}
exec(FILES["bookings/test_booking.py"], TESTS)  # noqa: S102 - our own page


@pytest.fixture
def booking(sas) -> Iterator[dict[str, Any]]:
    """The names of the page's modules. Its workflow is registered for the test."""
    registries = (agent.registered, workflow._workflows, workflow._newest)
    before = [dict(registry) for registry in registries]
    names: dict[str, Any] = {}
    exec(FILES["bookings/workflows.py"] + FILES["bookings/payments.py"], names)  # noqa: S102 - our own page
    yield names
    for registry, kept in zip(registries, before, strict=True):
        registry.clear()
        registry.update(kept)


@pytest.mark.parametrize("name", [name for name in TESTS if name.startswith("test_")])
def test_the_tests_of_the_page_about_waiting_pass(sas, booking, name):
    TESTS[name](sas)


def test_the_page_sends_a_signal_once_for_each_transfer(sas, booking):
    run = sas.start("booking", {"arrival": "2020-01-01T12:00:00+00:00", "breakfast": True})
    for _ in range(2):
        booking["payment_arrived"](run.key, {"id": "t1", "amount": "80"})
    sas.run()
    testing.let_pass(1)
    sas.run()
    run.assert_state("Processed")
    assert run.results["order-breakfast"] == {"sent": 12}
