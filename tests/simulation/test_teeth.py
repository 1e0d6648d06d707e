"""The simulation finds bugs: it fails with each of these, switched on by patching the running code.

`tests/simulation` plays the engine as it is. The mutations of `tests/mutants` prove the tests of single rules in the same way.
"""

from __future__ import annotations

import dataclasses
from typing import Any
from unittest import mock

import pytest
from hypothesis import Phase

from supervision.recovery import decisions, failures
from supervision.retry import Outcome, Retry
from supervision.store import run_verbs, step_sql, step_verbs
from tests.simulation import scenarios, test_store_machine
from tests.simulation.world import World, failure

SCENARIOS = 60
NOT_BEGUN = "AND s.started_at IS NULL"


def any_events() -> None:
    """No order of events breaks an invariant."""
    test_store_machine.play(SCENARIOS, test_store_machine.SEED, Phase.generate)


def claimed() -> World:
    world = World()
    world.submit(scenarios.WORKFLOWS[0].name)
    world.consume(born=False)
    world.claim()
    return world


def a_repeated_message() -> None:
    """A message that comes twice starts its attempt once."""
    world = claimed()
    (message,) = world.messages
    world.deliver(message, keep=True)
    world.deliver(message)


def a_postponed_call() -> None:
    """A service that asks to be called later has not failed."""
    world = claimed()
    (work,) = world.deliver(world.messages[0])
    world.fail(work, failure("postponed"))


# ------------------------------------------------------------------------------------------------------------ bugs


def attempt_in_key(real: Any) -> Any:
    return lambda *args: [item._replace(idempotency_key=f"{item.idempotency_key}:{item.attempt}") for item in real(*args)]


def undo_forward(real: Any) -> Any:
    def next_undo(self: Any, *args: Any) -> None:
        self.undos = sorted(self.undos, key=lambda step: step.position)
        real(self, *args)

    return next_undo


def counted(outcome: Outcome) -> Any:
    def replacement(real: Any) -> Any:
        def decide(count: int, failure: Any, *args: Any, **more: Any) -> Any:
            decision = real(count, failure, *args, **more)
            wrong = failure.outcome is outcome and isinstance(decision, Retry)
            return dataclasses.replace(decision, counted=True) if wrong else decision

        return decide

    return replacement


def never_unknown(real: Any) -> Any:
    return lambda *args: real(*args)._replace(effect=None)


BUGS = {
    "START takes an attempt that has begun": (step_sql, "START", lambda text: text.replace(NOT_BEGUN, ""), a_repeated_message),
    "a postponed step counts as a failure": (decisions, "decide", counted(Outcome.POSTPONED), a_postponed_call),
    "a lost dispatch counts as a failure": (decisions, "decide", counted(Outcome.EXPIRED), any_events),
    "the idempotency key contains the attempt": (step_verbs, "start", attempt_in_key, any_events),
    "steps are undone in forward order": (run_verbs.LockedRun, "next_undo", undo_forward, any_events),
    "an expired attempt has had no effect": (failures, "as_row", never_unknown, any_events),
}


@pytest.mark.parametrize("story", [a_repeated_message, a_postponed_call])
def test_a_story_is_right_on_the_engine_as_it_is(story, simulated):
    story()


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found(bug, simulated):
    owner, name, replacement, story = BUGS[bug]
    right = getattr(owner, name)
    wrong = replacement(right)
    assert wrong != right, f"{name} has changed: change the bug with it"

    with mock.patch.object(owner, name, wrong), pytest.raises(Exception) as caught:
        story()

    print(f"{type(caught.value).__name__}: {caught.value}")
