"""How often each verb waits for PostgreSQL. A database on another host adds its distance once for each of these round trips."""

from __future__ import annotations

import pytest

from supervision.execution import local_pickup, runner
from supervision.governance import resources
from supervision.intake import consuming
from supervision.postgres import db
from supervision.runtime.application import Intake
from supervision.states import Claim, Direction
from supervision.store import claiming, step_verbs
from supervision.testing import submit, submit_many
from supervision.workflow import StepPosition, Workflow
from tests.engine import kit
from tests.support import toy
from tests.support.trips import counted_trips

pytestmark = pytest.mark.usefixtures("engine")
AGENTS = (toy.ALPHA, toy.BETA, toy.GAMMA)


@pytest.fixture
def trips(tuned):
    """The round trips since the last call, with statements prepared and every periodic look just made."""
    tuned(HOLD_OFF_SECONDS=0)
    kit.define(Workflow("bare", toy.steps()))
    runner.process.serve(agent.queue for agent in AGENTS)
    with counted_trips() as since:
        for _ in range(2):
            submit("bare", {"n": 0})
            local_pickup.schedule()
        since()
        yield since


def test_an_order_at_rest_takes_a_round_trip_for_each_step_and_three_more(trips):
    key = submit("bare", {"n": 1})
    assert trips() == 1, "accepted"

    local_pickup.schedule()

    assert trips() == 2 + len(AGENTS), "taken; written and begun; each step finished"
    assert kit.state(key) == "Processed"
    assert kit.healthy()


def test_looking_at_resources_and_counting_steps_in_flight_cost_no_round_trip_of_their_own(trips):
    submit("bare", {"n": 1})
    resources.forget()
    claiming.in_flight.forget()
    trips()

    consuming.consume_batch(performs=runner.performs)

    assert trips() == 2
    assert resources.questions() == []
    assert not claiming.in_flight.is_old()


def test_an_application_with_rows_of_its_own_pays_for_its_statements_and_the_commit(trips):
    for _ in range(2):
        submit_many("toy", [{"n": n} for n in range(3)])
        trips()
        consuming.consume_batch()

    assert trips() == 3


def test_a_step_is_locked_in_the_round_trip_of_its_earlier_steps(trips):
    place = StepPosition("bare", 1, Direction.DO, 1)
    for _ in range(2):
        trips()
        db.transact(lambda: step_verbs.hold(place, [Claim(1, 1)]))
    assert trips() == 2, "locked; committed"


def test_an_acceptance_that_notifies_takes_one_round_trip_too(trips, monkeypatch):
    monkeypatch.setattr("supervision.wakeup.hints.announces", lambda _task: True)
    monkeypatch.setattr("supervision.wakeup.hints.announced", lambda _task: None)
    submit("bare", {"n": 1})
    trips()

    submit("bare", {"n": 1})

    assert trips() == 1


def test_a_write_that_belongs_to_one_intake_alone_is_called_before_the_commit(trips):
    intake, written = Intake(), []
    intake.write = written.extend  # type: ignore[method-assign]
    kit.define(Workflow("bare", toy.steps(), intake=intake))
    key = submit("bare", {"n": 1})

    consuming.consume_batch()

    assert [run.key for run in written] == [key]
