"""The history names the actor and the reason of every change: an agents process, the supervisor, or an operator."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator

import pytest
from django.core.management import call_command

from supervision.errors import TransientFailure
from supervision.execution import local_pickup, runner
from supervision.insight import queries
from supervision.operations import operator_verbs
from supervision.recovery import decisions, failures, supervisor
from supervision.runtime import identity
from supervision.runtime.identity import me
from supervision.testing import run_of, run_until_idle, schedule, submit
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


def told(key: str, *, to: str) -> list[tuple[int | None, str, str]]:
    """(position, actor, why) of every event of a run that led to this state, in order."""
    return [(event.position, event.actor, event.why) for event in kit.events(key) if event.to_state == to]


def test_an_error_names_who_reported_it_and_the_services_words():
    key = kit.in_error(1)

    assert told(key, to="Error") == [(1, me(), "refused"), (None, me(), "refused")]


def test_a_retry_names_who_decided_it_and_why():
    key, place, items = kit.started()
    failures.fail(place, [(items[0].claim, decisions.as_failure(TransientFailure("busy")))])

    assert told(key, to="Pending")[1:] == [(0, me(), "busy")]


def test_an_expiry_names_the_supervisor_and_the_deadline():
    key, *_ = kit.started()
    kit.expire_and_sweep(key)

    assert told(key, to="Pending")[1:] == [(0, me(), "no answer by complete_by")]


def test_an_order_past_its_own_time_names_the_supervisor_and_says_so():
    key, *_ = kit.claimed()
    kit.fetch("UPDATE supervision_run SET complete_by = now() - interval '1 s' WHERE key = %s", [key])
    kit.expire_and_sweep(key)
    supervisor.sweep_once()

    assert kit.state(key) == "Error"
    assert {(actor, "time for the whole order is over" in why) for _, actor, why in told(key, to="Error")} == {(me(), True)}


def test_what_an_operator_does_is_under_the_operators_name_and_reason():
    key = kit.in_error(1)

    operator_verbs.resubmit(key, by="anna", reason="the card is good again")
    run_until_idle()

    assert ("anna", "the card is good again") in {(actor, why) for _, actor, why in told(key, to="Pending")}
    assert kit.state(key) == "Processed"
    assert {actor for _, actor, _ in told(key, to="Processed")} == {me()}


@pytest.fixture
def play() -> Iterator[Callable[[str], str]]:
    """Let this process play a role; the result is its name, as Celery shows it."""

    def begin(role: str) -> str:
        identity.set_role(role)
        return f"{role}-{os.getpid()}@{socket.gethostname()}"

    yield begin
    identity.set_role("")


def reasons(key: str) -> list[str]:
    """Why an order was consumed and each of its steps claimed."""
    return [entry.why for entry in queries.timeline(run_of(key).pk) if entry.to_state == "Processing" or entry.seq == 1]


def test_an_order_of_the_scheduler_says_so_and_which_agents_handed_it_over(play):
    key = submit("toy", {"n": 1})
    scheduler = play("scheduler")
    ((place, claims),) = schedule()
    agents = play("agents-order")
    runner.process.serve({toy.ALPHA.queue, toy.BETA.queue})
    runner.run(place, claims)

    assert reasons(key) == [f"scheduled in {scheduler}"] * 2 + [f"handed over in {agents}"] * 2


def test_an_order_that_idle_agents_picked_up_says_so(play, tuned):
    tuned(HOLD_OFF_SECONDS=0)
    agents = play("agents")
    runner.process.serve({toy.ALPHA.queue})
    key = submit("toy", {"n": 1})
    local_pickup.schedule()

    assert reasons(key) == [f"scheduled in {agents}"] * 2 + [f"handed over in {agents}"]


def test_the_command_schedules_as_a_scheduler(play):
    scheduler = play("scheduler")
    play("")
    key = submit("toy", {"n": 1})
    call_command("schedule", "--once")

    assert reasons(key) == [f"scheduled in {scheduler}"] * 2
