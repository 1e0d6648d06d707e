"""The history names the actor and the reason of every change: an agents process, the supervisor, or an operator."""

from __future__ import annotations

import pytest

from supervision.errors import TransientFailure
from supervision.operations import operator_verbs
from supervision.recovery import failures, supervisor
from supervision.runtime.identity import me
from supervision.testing import expire, run_until_idle

from . import kit

pytestmark = pytest.mark.usefixtures("engine")


def told(key: str, *, to: str) -> list[tuple[int | None, str, str]]:
    """(position, actor, why) of every event of a run that led to this state, in order."""
    return [(event.position, event.actor, event.why) for event in kit.events(key) if event.to_state == to]


def test_an_error_names_who_reported_it_and_the_services_words():
    key = kit.in_error(1)

    assert told(key, to="Error") == [(1, me(), "refused"), (None, me(), "refused")]


def test_a_retry_names_who_decided_it_and_why():
    key, place, items = kit.started()
    failures.fail(place, [(items[0].claim, failures.as_failure(TransientFailure("busy")))])

    assert told(key, to="Pending")[1:] == [(0, me(), "busy")]


def test_an_expiry_names_the_supervisor_and_the_deadline():
    key, *_ = kit.started()
    expire(key)
    supervisor.sweep_once()

    assert told(key, to="Pending")[1:] == [(0, me(), "no answer by complete_by")]


def test_an_order_past_its_own_time_names_the_supervisor_and_says_so():
    key, *_ = kit.claimed()
    kit.fetch("UPDATE supervision_run SET complete_by = now() - interval '1 s' WHERE key = %s", [key])
    expire(key)
    supervisor.sweep_once()
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
