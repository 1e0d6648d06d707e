"""Messages that no process of the engine sent: within bounds they cause no more than a legal claim, and none circulates."""

from __future__ import annotations

import pytest

from supervision import tasks, testing
from supervision.models import DeadLetter, Run, StepEvent
from supervision.testing import run_until_idle, submit
from supervision.worker import consumption_check
from supervision.worker.consumption_check import NAME, Watch
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


def forge(key: str, attempt: int, position: int = 0, direction: str = "do") -> None:
    run = Run.objects.get(key=key)
    tasks.perform([[run.pk, attempt]], run.workflow, run.version, direction, position)


def test_a_forged_cohort_does_no_step_that_was_not_claimed_for_it():
    key = submit("toy-plain", {"n": 1})
    testing.schedule()
    claimed = kit.claimed()[0]
    ended = kit.ran()
    for each in (key, claimed, ended):
        states, told, performed = kit.states(each), StepEvent.objects.count(), len(toy.BETA.performed)
        for attempt in (0, 2, 5, 2**31 - 1):
            for position in (0, 1, 2):
                forge(each, attempt, position)
                forge(each, attempt, position, "undo")
        assert (kit.states(each), StepEvent.objects.count(), len(toy.BETA.performed)) == (states, told, performed)
    assert not DeadLetter.objects.exists()


def test_a_forged_cohort_of_a_claim_does_its_step_once_and_the_real_message_finds_it_done():
    key, place, claims = kit.claimed()
    forge(key, claims[0].attempt)
    testing.perform(place, claims)
    forge(key, claims[0].attempt)
    kit.expire_and_sweep(key)  # the message to the next step went nowhere, because no broker runs here
    run_until_idle()

    assert len(toy.ALPHA.performed) == 1
    assert kit.state(key) == "Processed"


def test_a_canary_that_no_supervisor_sent_goes_no_further(monkeypatch):
    sent: list[tuple[str, int, int]] = []
    monkeypatch.setattr(consumption_check, "_send", lambda *told: sent.append(told))
    monkeypatch.setattr(consumption_check.threading, "Timer", lambda pause, call, args: AtOnce(call, args))
    monkeypatch.setattr(consumption_check, "watch", Watch(["agent.alpha"], 4))
    kit.fetch(
        "INSERT INTO supervision_heartbeat (incarnation, role, detail) VALUES (%(name)s, 'supervisor-canaries', '{\"round\": 7}')",
        {"name": NAME},
    )
    for queue, number, hops in (
        ("agent.alpha", 8, 0), ("agent.alpha", 8, 0), ("supervisor", 7, 0), ("supervisor", 7, 0),
        ("agent.alpha", 7, 20), ("agent.alpha", 7, -3),
    ):  # fmt: skip
        consumption_check.heard(queue, number, hops)
    assert sent == []

    consumption_check.heard("agent.alpha", 7, 1)

    assert sent == [("agent.alpha", 7, 2)]


class AtOnce:
    """A timer that does not wait."""

    daemon = False

    def __init__(self, call, args):
        self.start = lambda: call(*args)
