"""Of several resources behind one agent some take no calls now: steps that only they may take wait unclaimed, and hold up no others."""

from __future__ import annotations

import celery
import pytest

from supervision import testing
from supervision.dispatch import scheduler
from supervision.errors import OutcomeUnknown
from supervision.governance import circuit_breaker, resources
from supervision.insight.waiting import why_waiting
from supervision.intake.submission import new_public_id
from supervision.models import Resource
from supervision.operations import operator_verbs
from supervision.store.bounds.reachable_sql import MOST_BYTES, NUMBER
from supervision.testing import run_of, run_until_idle, schedule, step, submit_many
from supervision.wakeup import hints
from tests.engine import kit
from tests.engine.test_routing import a_second_resource, asked, route, two_accounts
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")
__all__ = ["a_second_resource", "two_accounts"]


def paused(name, *, lifted=False):
    Resource.objects.filter(name=name).update(paused=not lifted)
    circuit_breaker.forget()


def bound(count, resource):
    """Orders whose second step is due and whose effect at this resource is unknown."""
    keys = submit_many("toy-plain", [{"n": n} for n in range(count)])
    kit.go(schedule())
    kit.fetch(
        "UPDATE supervision_stepstate s SET effect = 'unknown', resource = %s FROM supervision_run r"
        " WHERE r.id = s.run_id AND r.key = ANY (%s) AND s.position = 1",
        [resource, keys],
    )
    return keys


def test_steps_that_only_a_paused_resource_may_take_are_not_claimed_and_hold_up_no_order_of_the_other(two_accounts):
    held = bound(10, "beta-north")
    paused("beta-north")
    keys = submit_many("toy-plain", [{"n": n} for n in range(3)])
    kit.go(schedule())

    kit.go(schedule())

    assert asked() == ["beta-south"] * 3
    assert {step(key, "beta-step").attempt for key in held} == {0}
    run_until_idle()
    assert {run_of(key).process_state for key in keys} == {"Processed"}
    assert not scheduler.due()
    paused("beta-north", lifted=True)
    assert scheduler.due()
    assert kit.idle_states(held) == {"Processed"}
    assert asked().count("beta-north") == 10


def test_an_undo_waits_unclaimed_for_the_paused_resource_that_did_the_work(two_accounts):
    route("*", "beta-south")
    key, *_ = kit.at_step(2)
    kit.fetch("UPDATE supervision_stepstate SET resource = 'beta-north' WHERE run_id = %s AND position = 1", [run_of(key).pk])
    kit.fetch("UPDATE supervision_stepstate SET started_at = NULL WHERE run_id = %s AND position = 2", [run_of(key).pk])
    paused("beta-north")
    operator_verbs.cancel(key, by="operator", reason="no longer wanted")

    run_until_idle()

    assert kit.states(key, "undo")[1] == "Pending"
    assert not [event for event in kit.events(key) if (event.direction, event.position, event.to_state) == ("undo", 1, "Processing")]
    paused("beta-north", lifted=True)
    assert kit.idle_state(key) == "Cancelled"
    assert [request.resource for request in toy.BETA.undone] == ["beta-north"]


def test_a_step_that_is_bound_to_the_one_with_the_open_breaker_probes_it_when_that_is_due(two_accounts):
    (key,) = bound(1, "beta-north")
    Resource.objects.filter(name="beta-north").update(breaker_state="open", retry_at="2999-01-01T00:00:00Z")
    circuit_breaker.forget()
    assert (schedule(), scheduler.due()) == ([], False)

    Resource.objects.filter(name="beta-north").update(retry_at="2020-01-01T00:00:00Z")
    circuit_breaker.forget()

    assert scheduler.due()
    assert kit.idle_state(key) == "Processed"
    assert asked() == ["beta-north"]


def test_steps_whose_route_leads_to_a_paused_resource_are_not_claimed_and_hold_up_no_order_of_the_other(two_accounts):
    route("it", "beta-north")
    held = submit_many("toy-plain", [{"n": n, "partition": "it"} for n in range(10)])
    kit.go(schedule())
    paused("beta-north")
    keys = submit_many("toy-plain", [{"n": 11}, {"n": 12, "partition": "pt"}])
    kit.go(schedule())

    kit.go(schedule())

    assert asked() == ["beta-south"] * 2
    assert {step(key, "beta-step").attempt for key in held} == {0}
    assert kit.idle_states(keys) == {"Processed"}
    assert not scheduler.due()
    route("it", "beta-south")
    assert scheduler.due()
    assert kit.idle_states(held) == {"Processed"}


def test_where_the_route_for_all_leads_to_a_paused_resource_only_what_has_another_route_is_claimed(two_accounts):
    route("*", "beta-north")
    route("pt", "beta-south")
    paused("beta-north")
    unnamed, italian, portuguese = submit_many("toy-plain", [{"n": 1}, {"n": 2, "partition": "it"}, {"n": 3, "partition": "pt"}])

    run_until_idle()

    assert [step(key, "beta-step").attempt for key in (unnamed, italian, portuguese)] == [0, 0, 1]
    assert not scheduler.due()
    route(resources.partition_of(unnamed), "beta-south")
    assert kit.idle_state(unnamed) == "Processed"


def test_the_wait_for_the_paused_resource_that_did_the_work_is_no_starvation(two_accounts):
    key, *_ = kit.at_step(2)
    paused("beta-north")
    kit.fetch("UPDATE supervision_stepstate SET resource = 'beta-north' WHERE run_id = %s AND position = 1", [run_of(key).pk])
    kit.fetch("UPDATE supervision_stepstate SET started_at = NULL WHERE run_id = %s AND position = 2", [run_of(key).pk])
    operator_verbs.cancel(key, by="operator", reason="no longer wanted")
    run_until_idle()
    assert kit.states(key, "undo")[1] == "Pending"
    kit.fetch("UPDATE supervision_stepstate SET not_before = now() - interval '10 min', complete_by = NULL WHERE direction = 'undo'")

    assert kit.incidents() == []


def test_a_refusal_after_the_claim_tells_the_scheduler_that_others_may_go(two_accounts, monkeypatch):
    bound(1, "beta-north")
    claimed = schedule()
    paused("beta-north")
    sent = []
    monkeypatch.setattr(celery.current_app, "send_task", lambda task, **_: sent.append(task))
    monkeypatch.setattr(hints, "enabled", True)

    kit.go(claimed)
    hints.flush()

    assert asked() == []
    assert hints.SCHEDULE in sent


def of_number(keys, numbers):
    """Those of these orders, which name no partition, that fall into one of these."""
    return [key for key in keys if resources.partition_of(key) in numbers]


def test_orders_whose_number_is_routed_to_a_paused_resource_are_not_claimed_and_hold_up_no_order_of_the_other(two_accounts):
    keys = kit.waiting(30)
    numbers = {resources.partition_of(key) for key in keys[:4]}
    for number in numbers:
        route(number, "beta-north")
    paused("beta-north")
    held = of_number(keys, numbers)

    run_until_idle()

    assert {step(key, "beta-step").attempt for key in held} == {0}
    assert {run_of(key).process_state for key in keys if key not in held} == {"Processed"}
    assert not scheduler.due()
    paused("beta-north", lifted=True)
    assert scheduler.due()
    assert kit.idle_states(held) == {"Processed"}


def test_where_the_route_for_all_leads_to_a_paused_resource_only_orders_whose_number_has_another_are_claimed(two_accounts):
    keys = kit.waiting(30)
    route("*", "beta-north")
    route(resources.partition_of(keys[0]), "beta-south")
    paused("beta-north")

    run_until_idle()

    others = of_number(keys, {resources.partition_of(keys[0])})
    assert {key: step(key, "beta-step").attempt for key in keys} == {key: int(key in others) for key in keys}
    assert not scheduler.due()


def test_an_order_with_a_very_long_key_is_claimed_all_the_same(two_accounts):
    (key,) = kit.waiting()
    run, long = run_of(key), "long" * MOST_BYTES
    kit.fetch("UPDATE supervision_run SET key = %s WHERE id = %s", [long, run.pk])
    route("*", "beta-north")
    route(resources.partition_of(long), "beta-south")
    paused("beta-north")

    assert kit.idle_state(long) == "Processed"


def test_the_database_computes_the_same_partition_as_every_process():
    words = ["a", "größer:Ω:child", *("x" * count for count in range(1, MOST_BYTES + 1)), *(new_public_id() for _ in range(200))]
    statement = f"SELECT b.key, {NUMBER} FROM unnest(%(keys)s::text[]) b(key)"  # noqa: S608 - our own expression

    found = kit.fetch(statement, {"keys": words, "crc": resources._crc()})

    assert found == [(key, resources.partition_of(key)) for key in words]


def test_a_step_that_was_sent_to_the_first_resource_before_there_was_a_second_waits_unclaimed_while_that_is_down(a_second_resource):
    toy.BETA.on_perform = kit.raising(OutcomeUnknown("no answer"))
    key = kit.ran()
    toy.BETA.on_perform = None
    a_second_resource()
    paused("beta")
    testing.make_due()
    attempt = step(key, "beta-step").attempt

    assert (schedule(), scheduler.due()) == ([], False)

    other = kit.ran()
    assert run_of(other).process_state == "Processed"
    assert step(key, "beta-step").attempt == attempt
    assert why_waiting([run_of(key).pk])[run_of(key).pk] == "beta is paused by an operator."
    long_ago = "UPDATE supervision_stepstate SET not_before = now() - interval '10 min', complete_by = NULL WHERE process_state = 'Pending'"
    kit.fetch(f"{long_ago} AND not_before IS NOT NULL")
    assert kit.incidents() == []
    paused("beta", lifted=True)
    assert scheduler.due()
    assert kit.idle_state(key) == "Processed"
    assert asked() == ["beta", "beta-south", "beta"]


def test_an_undo_of_what_the_first_resource_did_before_there_was_a_second_waits_unclaimed_while_that_is_down(a_second_resource):
    key, *_ = kit.at_step(2)
    kit.fetch("UPDATE supervision_stepstate SET started_at = NULL WHERE run_id = %s AND position = 2", [run_of(key).pk])
    a_second_resource()
    paused("beta")
    operator_verbs.cancel(key, by="operator", reason="no longer wanted")

    run_until_idle()

    assert (kit.states(key, "undo")[1], scheduler.due()) == ("Pending", False)
    assert not [event for event in kit.events(key) if (event.direction, event.position, event.to_state) == ("undo", 1, "Processing")]
    paused("beta", lifted=True)
    assert kit.idle_state(key) == "Cancelled"
    assert [request.resource for request in toy.BETA.undone] == ["beta"]


def test_a_step_that_only_another_resource_may_take_is_no_probe(two_accounts):
    key, *_ = kit.at_step(2)
    kit.fetch("UPDATE supervision_stepstate SET resource = 'beta-north' WHERE run_id = %s AND position = 1", [run_of(key).pk])
    kit.fetch("UPDATE supervision_stepstate SET started_at = NULL WHERE run_id = %s AND position = 2", [run_of(key).pk])
    Resource.objects.filter(name="beta-south").update(breaker_state="open", retry_at="2020-01-01T00:00:00Z")
    paused("beta-north")
    operator_verbs.cancel(key, by="operator", reason="no longer wanted")

    run_until_idle()

    assert (kit.states(key, "undo")[1], scheduler.due()) == ("Pending", False)
    south = Resource.objects.get(name="beta-south")
    assert (south.probes, south.probing) == (0, [])
    assert toy.BETA.undone == []
