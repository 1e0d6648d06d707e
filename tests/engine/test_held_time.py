"""Held time: the time that an order waits for an outage, a pause, a limit or a session does not count against its own time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from supervision.governance import circuit_breaker
from supervision.intake import consuming
from supervision.models import Resource, Run
from supervision.operations import operator_verbs, pauses
from supervision.recovery import held_time, supervisor
from supervision.testing import expire, run_of, schedule, step, submit
from tests.engine import kit
from tests.support import pages

pytestmark = pytest.mark.usefixtures("engine")

HOUR = timedelta(hours=1)
waiting, sweep = kit.waiting, supervisor.sweep_once


@pytest.fixture
def service(monkeypatch):
    """Agent alpha calls a service of this name."""
    kit.only_agent_with_a_service(monkeypatch, "alpha")
    return "the-service"


def goes_down(name: str) -> None:
    kit.fetch(
        "UPDATE supervision_resource SET breaker_state = 'open', failures = 5, opened_at = now(), retry_at = now() + interval '9 days'"
        " WHERE name = %s",
        [name],
    )
    circuit_breaker.forget()


def comes_back(name: str) -> None:
    circuit_breaker.close([name])


def left(key: str) -> float:
    """Hours until the order's complete_by."""
    return float(kit.fetch("SELECT extract(epoch FROM complete_by - now()) / 3600 FROM supervision_run WHERE key = %s", [key])[0][0])


def test_an_outage_of_25_hours_leads_no_waiting_order_to_error(service):
    keys = waiting(3)
    kit.hours_pass(1)
    goes_down(service)
    for _ in range(5):
        kit.hours_pass(5)
        sweep()

    assert {kit.state(key) for key in keys} == {"Pending"}
    comes_back(service)
    kit.hours_pass(22.5)
    sweep()
    assert {kit.state(key) for key in keys} == {"Pending"}  # each order had used one hour of its 24
    assert left(keys[0]) == pytest.approx(0.5, abs=0.01)
    assert kit.idle_states(keys) == {"Processed"}


def test_what_was_left_before_an_outage_is_left_after_it_and_not_more(service):
    (key,) = waiting()
    kit.hours_pass(20)
    goes_down(service)
    kit.hours_pass(30)
    comes_back(service)
    kit.hours_pass(3.9)
    sweep()
    assert kit.state(key) == "Pending"
    assert left(key) == pytest.approx(0.1, abs=0.01)

    kit.hours_pass(0.2)
    sweep()

    assert kit.state(key) == "Error"
    assert step(key, "alpha-step").last_error == "the time for the whole order is over"


def test_a_step_that_only_the_first_of_two_resources_may_take_is_given_the_time_in_which_that_was_down(service):
    (key,) = waiting()
    kit.fetch("UPDATE supervision_stepstate SET effect = 'unknown' WHERE position = 0")
    Resource.objects.create(name="another", service=service)
    goes_down(service)
    kit.hours_pass(25)

    sweep()

    assert (kit.state(key), left(key)) == ("Pending", pytest.approx(24, abs=0.01))


def test_an_order_of_another_service_is_not_given_time(service):
    key, place, items = kit.at_step(0)
    goes_down(service)
    comes_back(service)
    kit.step_verbs.finish_at(place, kit.step_verbs.Successor.DUE)([(items[0], {})])  # the step of beta, which calls no service, is due now
    goes_down(service)
    kit.hours_pass(25)

    sweep()

    assert kit.state(key) == "Error"


def test_what_an_earlier_step_waited_counts_too(service):
    (key,) = waiting()
    goes_down(service)
    kit.hours_pass(23)
    comes_back(service)
    for place, claims in schedule():
        kit.step_verbs.finish_at(place, kit.step_verbs.Successor.DUE)([(item, {}) for item in kit.step_verbs.start(place, claims)])
    kit.hours_pass(2)

    sweep()

    assert kit.states(key) == ["Processed", "Pending", "Pending"]
    assert kit.state(key) == "Processing"
    assert left(key) == pytest.approx(22, abs=0.01)


def test_two_holds_at_once_count_once(service):
    (key,) = waiting()
    goes_down(service)
    pauses.pause("all", reason="an inventory", by="ada")
    pauses.pause("agent", "alpha", reason="an inventory", by="ada")
    kit.hours_pass(23.9)
    comes_back(service)
    pauses.lift("all", by="ada")
    pauses.lift("agent", "alpha", by="ada")
    kit.hours_pass(0.2)

    sweep()

    assert kit.state(key) == "Pending"
    assert left(key) == pytest.approx(23.8, abs=0.01)


def test_a_step_that_expires_in_an_outage_past_its_orders_time_is_no_error(service):
    key, *_ = kit.started()
    kit.hours_pass(23)
    goes_down(service)
    kit.fetch("UPDATE supervision_run SET complete_by = now() - interval '1 s'")
    expire(key)

    sweep()

    assert (kit.state(key), kit.states(key)[0]) == ("Processing", "Pending")


def test_while_the_service_is_down_an_order_whose_time_was_over_is_not_stopped(service):
    (key,) = waiting()
    kit.hours_pass(24.5)
    goes_down(service)

    sweep()

    assert kit.state(key) == "Pending"
    comes_back(service)
    sweep()
    assert kit.state(key) == "Error"


def test_a_service_is_down_when_every_resource_of_it_is(service):
    Resource.objects.create(name="the-spare", service=service)
    (key,) = waiting()
    goes_down(service)
    kit.hours_pass(25)

    sweep()

    assert kit.state(key) == "Error"


@pytest.mark.parametrize("closed_by", ["an operator", "its probe"])
def test_a_breaker_that_closes_ends_what_is_counted(service, closed_by):
    goes_down(service)
    if closed_by == "its probe":
        kit.fetch("UPDATE supervision_resource SET breaker_state = 'half-open'")
        kit.fetch("UPDATE supervision_resource SET breaker_state = 'closed', failures = 0, opened_at = NULL")
    else:
        comes_back(service)

    assert kit.fetch("SELECT count(*), count(ended_at) FROM supervision_closure") == [(1, 1)]
    goes_down(service)
    assert kit.fetch("SELECT count(*), count(ended_at) FROM supervision_closure") == [(2, 1)]


# ------------------------------------------------------------------------------------------- pauses, limits, sessions


@pytest.mark.parametrize("scope", ["all", "agent", "workflow", "order"])
def test_a_pause_takes_no_time(scope):
    (key,) = waiting()
    name = {"all": "", "agent": "alpha", "workflow": "toy-plain", "order": key}[scope]
    pauses.pause(scope, name, reason="an inventory", by="ada")
    kit.hours_pass(30)
    sweep()
    assert kit.state(key) == "Pending"

    pauses.lift(scope, name, by="ada")
    sweep()

    assert left(key) == pytest.approx(24, abs=0.05)
    assert kit.idle_state(key) == "Processed"


def test_a_pause_that_has_ended_by_itself_counts_to_its_end():
    (key,) = waiting()
    pauses.pause("all", reason="an inventory", by="ada", until=2 * HOUR)
    kit.hours_pass(25)

    sweep()

    assert kit.state(key) == "Pending"
    assert left(key) == pytest.approx(1, abs=0.01)


def test_a_pause_of_others_takes_time():
    (key,) = waiting()
    (other,) = waiting()
    pauses.pause("order", other, reason="an inventory", by="ada")
    pauses.pause("agent", "beta", reason="an inventory", by="ada")
    kit.hours_pass(25)

    sweep()

    assert (kit.state(key), kit.state(other)) == ("Error", "Pending")


def test_an_order_released_after_its_time_starts_with_its_budget_and_in_no_hurry():
    """The sweep moves complete_by on before it passes, so that START does not shorten the step's own time."""
    waiting()
    pauses.pause("all", reason="an inventory", by="ada")
    kit.hours_pass(23.9)
    kit.hours_pass(0.099)  # the row leaves 3.6 s; without the held time all 24 hours are left
    sweep()
    pauses.lift("all", by="ada")

    ((place, claims),) = schedule()
    (item,) = kit.step_verbs.start(place, claims)

    assert kit.fetch("SELECT complete_by - started_at FROM supervision_stepstate WHERE run_id = %s AND position = 0", [item.run_id]) == [
        (timedelta(seconds=30),)
    ]


def test_an_order_whose_time_ran_out_between_release_and_claim_is_sent_again():
    """No sweep has added the held time yet: START refuses the step, and the next sweep adds it."""
    (key,) = waiting()
    pauses.pause("all", reason="an inventory", by="ada")
    kit.hours_pass(25)
    pauses.lift("all", by="ada")
    ((place, claims),) = schedule()
    assert kit.step_verbs.start(place, claims) == []
    expire(key)

    sweep()
    assert kit.idle_state(key) == "Processed"
    assert step(key, "alpha-step").failure_count == 0


def test_waiting_behind_a_limit_takes_no_time(service):
    Resource.objects.filter(name=service).update(capacity=1)
    (key,) = waiting()
    kit.hours_pass(30)

    sweep()

    assert kit.state(key) == "Pending"


def test_waiting_behind_a_session_takes_no_time():
    first = submit("toy-plain", {"n": 1, "session_key": "s"}, client="shop")
    second = submit("toy-plain", {"n": 2, "session_key": "s"}, client="shop")
    consuming.consume_batch(born=False)
    pauses.pause("order", first, reason="an inventory", by="ada")
    kit.hours_pass(30)
    sweep()
    assert (kit.state(first), kit.state(second)) == ("Pending", "Pending")
    pauses.lift("order", first, by="ada")

    assert (kit.idle_state(first), kit.state(second)) == ("Processed", "Processed")


def test_a_new_start_by_an_operator_gives_the_whole_time_once(service):
    (key,) = waiting()
    goes_down(service)
    kit.hours_pass(20)
    comes_back(service)
    kit.hours_pass(25)
    sweep()
    assert kit.state(key) == "Error"

    operator_verbs.resubmit(key, by="ada", reason="again")
    kit.hours_pass(24.5)
    sweep()

    assert kit.state(key) == "Error"  # the resubmit gave the whole time; the earlier held hours are not added again


def test_every_order_that_is_over_is_stopped_and_every_held_one_is_not_however_many(tuned, service):
    tuned(SWEEP_BATCH=7)
    held = waiting(25)
    keys = waiting(25, "toy-plain", partition="x")
    kit.fetch("UPDATE supervision_stepstate s SET agent = 'gamma' FROM supervision_run r WHERE r.id = s.run_id AND r.key = ANY(%s)", [keys])
    goes_down(service)
    kit.hours_pass(25)

    supervisor.sweep_once()

    assert {kit.state(key) for key in held} == {"Pending"}
    assert {kit.state(key) for key in keys} == {"Error"}


def test_a_held_order_is_written_once_for_all_its_wait_and_not_at_every_sweep(service):
    (key,) = waiting()
    goes_down(service)
    kit.hours_pass(25)
    sweep()
    before = run_of(key).held_until

    for _ in range(3):
        sweep()

    assert run_of(key).held_until == before


def test_two_supervisors_at_once_add_held_time_once(service):
    waiting(200)
    goes_down(service)
    kit.hours_pass(25)

    kit.at_once(supervisor.sweep_once, supervisor.sweep_once)

    assert {round(left(key), 1) for key in Run.objects.values_list("key", flat=True)} == {24.0}


def test_an_order_that_somebody_is_changing_is_left_to_the_next_sweep():
    (key,) = waiting()
    kit.hours_pass(25)
    with kit.another_connection() as other:
        other.execute("SELECT FROM supervision_run FOR UPDATE")
        sweep()
        assert kit.state(key) == "Pending"

    sweep()

    assert kit.state(key) == "Error"


def test_the_cost_follows_the_orders_looked_at_and_not_the_finished_ones():
    waiting(20)
    ids = sorted(Run.objects.values_list("pk", flat=True))
    params = {"runs": ids, "agents": ["alpha"], "services": ["the-service"]}
    small = pages.of(held_time._WAITING, params)
    kit.fetch(
        "INSERT INTO supervision_run (workflow, key, process_state, finished_at)"
        " SELECT 'toy', 'k' || n, 'Processed', now() FROM generate_series(1, 20000) n"
    )
    kit.fetch(
        "INSERT INTO supervision_stepevent (run_id, seq, to_state, actor) SELECT id, s, 'Processed', 'me'"
        " FROM supervision_run, generate_series(1, 5) s WHERE process_state = 'Processed'"
    )
    kit.fetch("ANALYZE supervision_run, supervision_stepevent, supervision_stepstate")

    assert pages.of(held_time._WAITING, params) <= 2 * small + 100
