"""What the matrix relies on: a failpoint acts at the given time and step, and its log line comes before its act."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervision.runtime import failpoints


@pytest.fixture(autouse=True)
def _none_afterwards() -> Iterator[None]:
    yield
    failpoints.load({})


def load(text: str, **more: str) -> None:
    failpoints.load({"FAILPOINTS": text, "ALLOW_FAILPOINTS": "1", **more})


@pytest.mark.parametrize("chance", ["", ":1:7"], ids=["always", "probability and seed"])
def test_a_failpoint_acts_at_the_named_times_only(chance: str) -> None:
    load(f"scheduler.after_claim=drop@1+3{chance}")

    assert [failpoints.hit("scheduler.after_claim") for _ in range(4)] == [True, False, True, False]


def test_a_failpoint_that_is_narrowed_to_a_step_lets_the_others_pass_uncounted() -> None:
    load("scheduler.after_claim=drop@2", FAILPOINT_STEP="undo:charge-payment")
    passed = [["charge-payment"], ["undo:charge-payment"], ["reserve-stock"], ["reserve-stock", "undo:charge-payment"]]

    assert [failpoints.hit("scheduler.after_claim", steps) for steps in passed] == [False, False, False, True]


def test_narrowing_does_not_concern_points_without_steps() -> None:
    load("relay.after_publish=drop", FAILPOINT_STEP="charge-payment")

    assert failpoints.hit("relay.after_publish")


def test_what_acts_is_noted_before_and_what_passes_is_not(tmp_path: Path) -> None:
    log = tmp_path / "log"
    load("agent.after_start=raise@2", FAILPOINT_LOG=str(log))

    assert not failpoints.hit("agent.after_start")
    assert not log.exists()
    with pytest.raises(failpoints.Injected):
        failpoints.hit("agent.after_start")
    assert log.read_text().startswith("agent.after_start raise 2 ")


@pytest.mark.parametrize(
    "text", ["agent.after_start=raise@", "agent.after_start=raise@x", "agent.after_start=@2", "agent.after_start=stop=1"]
)
def test_a_selector_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        load(text)
