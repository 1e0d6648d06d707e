"""Failpoints: each has a name, needs ALLOW_FAILPOINTS, and acts exactly as configured."""

from __future__ import annotations

import re

import pytest

from supervision.dispatch import scheduler
from supervision.intake import submission
from supervision.runtime import failpoints
from supervision.testing import run_until_idle, schedule, submit
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("engine")


def load(text: str) -> None:
    failpoints.load({"FAILPOINTS": text, "ALLOW_FAILPOINTS": "1"})


def test_nothing_happens_when_none_is_set():
    failpoints.load({})

    assert [failpoints.hit(name) for name in failpoints.NAMES] == [False] * len(failpoints.NAMES)


def test_failpoints_are_refused_unless_they_are_allowed():
    with pytest.raises(ValueError, match="ALLOW_FAILPOINTS is not 1"):
        failpoints.load({"FAILPOINTS": "agent.after_start=raise"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("agent.before_lunch=raise", "no failpoint is named 'agent.before_lunch'"),
        ("agent.after_start=explode", "expected kill9"),
        ("agent.after_start=sleep", "expected kill9"),
        ("agent.after_start=raise=3", "expected kill9"),
        ("agent.after_start", "expected kill9"),
        ("agent.after_start=raise:often", "could not convert"),
    ],
)
def test_a_failpoint_that_cannot_be_read_is_refused_with_what_was_expected(text, words):
    with pytest.raises(ValueError, match=words):
        load(text)


def test_several_failpoints_are_read_at_once_and_replace_the_former():
    load("agent.after_start=raise, scheduler.after_claim=drop")
    with pytest.raises(failpoints.Injected):
        failpoints.hit("agent.after_start")
    assert failpoints.hit("scheduler.after_claim")

    load("agent.after_start=drop")

    assert failpoints.hit("agent.after_start")
    assert not failpoints.hit("scheduler.after_claim")


def test_a_probability_with_a_seed_gives_the_same_faults_again():
    def draw() -> list[bool]:
        load("relay.after_publish=drop:0.5:42")
        return [failpoints.hit("relay.after_publish") for _ in range(50)]

    first = draw()

    assert draw() == first
    assert 10 < sum(first) < 40


def test_a_claim_whose_message_was_dropped_is_recovered_after_its_lease():
    load("scheduler.mid_dispatch=drop")
    key = submit("toy-plain", {"n": 1})
    assert scheduler.schedule_once(lambda place, claims: None).dispatched == 0
    failpoints.load({})
    assert schedule() == []

    kit.expire_and_sweep(key)
    assert kit.idle_state(key) == "Processed"


@pytest.mark.parametrize("point", ["submit.after_commit", "scheduler.mid_dispatch"])
def test_a_scheduler_killed_at_any_point_loses_no_order_and_doubles_none(point):
    key = submit("toy-plain", {"n": 1})
    killed = kit.Process("schedule", FAILPOINTS=f"{point}=kill9", ALLOW_FAILPOINTS="1").ready().begin()
    assert killed.code() == -9

    run_until_idle()
    kit.expire_and_sweep()
    assert kit.idle_state(key) == "Processed"
    assert kit.healthy()


def test_every_failpoint_stands_somewhere_in_the_code_and_no_other_is_hit():
    text = "".join(path.read_text() for folder in ("supervision", "orders") for path in (kit.ROOT / folder).rglob("*.py"))

    places = "|".join(sorted({name.partition(".")[0] for name in failpoints.NAMES}))
    hit = set(re.findall(rf'"((?:{places})\.[a-z_]+)"', text))

    assert hit - {"journal.after_write"} >= set(failpoints.NAMES) - {"journal.after_write"}
    assert submission
