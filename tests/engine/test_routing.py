"""The resolver: entity -> partition -> resource; several resources behind one agent; steps that keep their resource."""

from __future__ import annotations

import pytest

from supervision.apps import list_resources
from supervision.errors import OutcomeUnknown, PermanentFailure, TransientFailure
from supervision.governance import circuit_breaker, resources
from supervision.models import Resource, ResourceRoute, Slot
from supervision.operations import operator_verbs, resource_limits
from supervision.testing import run_of, run_until_idle, schedule, step, submit, submit_many
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture
def two_accounts(engine):
    """Two resources behind agent beta."""
    Resource.objects.filter(name="beta").delete()
    for name, settings in (("beta-north", {"url": "north"}), ("beta-south", {"url": "south"})):
        Resource.objects.create(name=name, service="beta", capacity=10, settings=settings)
    circuit_breaker.forget()


def route(partition, resource):
    made, _ = ResourceRoute.objects.update_or_create(service="beta", partition=partition, defaults={"resource": resource})
    circuit_breaker.forget()
    return made


def asked():
    return [request.resource for request in toy.BETA.performed]


def test_a_partition_goes_where_its_route_says_with_that_resources_settings(two_accounts):
    route("it", "beta-north")
    route("pt", "beta-south")
    italian, portuguese = (submit("toy-plain", {"n": 1, "partition": country}) for country in ("it", "pt"))

    run_until_idle()

    assert {request.run_key: request.settings["url"] for request in toy.BETA.performed} == {italian: "north", portuguese: "south"}
    assert (step(italian, "beta-step").resource, step(portuguese, "beta-step").resource) == ("beta-north", "beta-south")
    assert step(italian, "beta-step").resource_version == 1


def test_a_remapped_partition_goes_to_the_new_resource_and_the_running_call_finishes_on_the_old(two_accounts):
    route("it", "beta-north")
    seen = {}

    def remap(request):
        seen[request.run_key] = request.resource
        if len(seen) == 1:
            ResourceRoute.objects.filter(partition="it").update(resource="beta-south", version=2)
            circuit_breaker.forget()

    toy.BETA.on_perform = remap
    first = submit("toy-plain", {"n": 1, "partition": "it"})
    run_until_idle()
    second = submit("toy-plain", {"n": 2, "partition": "it"})
    run_until_idle()

    assert seen == {first: "beta-north", second: "beta-south"}
    assert (step(first, "beta-step").resource_version, step(second, "beta-step").resource_version) == (1, 2)
    assert run_of(first).process_state == run_of(second).process_state == "Processed"


def test_a_call_whose_outcome_is_unknown_is_repeated_at_the_same_resource_whatever_the_routes_say(two_accounts):
    route("*", "beta-north")

    toy.BETA.on_perform = kit.raising(OutcomeUnknown("no answer"))
    key = kit.ran()
    assert step(key, "beta-step").effect == "unknown"
    route("*", "beta-south")
    toy.BETA.on_perform = None

    kit.again()

    assert asked() == ["beta-north", "beta-north"]
    assert run_of(key).process_state == "Processed"


def test_a_call_that_certainly_did_nothing_may_go_elsewhere(two_accounts):
    route("*", "beta-north")

    toy.BETA.on_perform = kit.raising(TransientFailure("connection refused"))
    key = kit.ran()
    route("*", "beta-south")
    toy.BETA.on_perform = None

    kit.again()

    assert asked() == ["beta-north", "beta-south"]
    assert run_of(key).process_state == "Processed"


def test_what_was_done_at_one_resource_is_undone_there(two_accounts):
    route("*", "beta-south")
    key, *_ = kit.at_step(2)
    kit.fetch("UPDATE supervision_stepstate SET resource = 'beta-north' WHERE run_id = %s AND position = 1", [run_of(key).pk])
    kit.fetch("UPDATE supervision_stepstate SET started_at = NULL WHERE run_id = %s AND position = 2", [run_of(key).pk])
    operator_verbs.cancel(key, by="operator", reason="no longer wanted")
    run_until_idle()

    assert [request.resource for request in toy.BETA.undone] == ["beta-north"]
    assert run_of(key).process_state == "Cancelled"


@pytest.fixture
def a_second_resource(engine):
    """Gives agent beta, which has had one resource, a second one with more room."""

    def add():
        Resource.objects.update_or_create(name="beta", defaults={"capacity": 1})
        Resource.objects.create(name="beta-south", service="beta", capacity=50)
        circuit_breaker.forget()

    return add


def test_what_was_done_before_the_service_had_a_second_resource_is_undone_at_the_first(a_second_resource):
    key, *_ = kit.at_step(2)
    kit.fetch("UPDATE supervision_stepstate SET started_at = NULL WHERE run_id = %s AND position = 2", [run_of(key).pk])
    a_second_resource()
    assert resource_limits.hindrances(Resource.objects.get(name="beta"))
    operator_verbs.cancel(key, by="operator", reason="no longer wanted")

    run_until_idle()

    assert [request.resource for request in toy.BETA.undone] == ["beta"]
    assert run_of(key).process_state == "Cancelled"


def test_a_call_of_unknown_outcome_is_repeated_at_the_first_resource_although_the_service_has_a_second_one_now(a_second_resource):
    toy.BETA.on_perform = kit.raising(OutcomeUnknown("no answer"))
    key = kit.ran()
    toy.BETA.on_perform = None
    a_second_resource()

    kit.again()

    assert asked() == ["beta", "beta"]
    assert run_of(key).process_state == "Processed"


def test_without_a_route_the_healthy_one_with_most_room_is_taken(two_accounts):
    Resource.objects.filter(name="beta-north").update(capacity=2)
    Resource.objects.filter(name="beta-south").update(capacity=6)
    circuit_breaker.forget()
    submit_many("toy-plain", [{"n": n} for n in range(8)])

    kit.go(schedule())
    kit.go(schedule())

    assert sorted(asked()) == ["beta-north"] * 2 + ["beta-south"] * 6


def test_the_one_whose_breaker_is_open_is_passed_over(two_accounts):
    Resource.objects.filter(name="beta-north").update(breaker_state="open", retry_at="2999-01-01T00:00:00Z")
    circuit_breaker.forget()
    keys = submit_many("toy-plain", [{"n": n} for n in range(5)])

    run_until_idle()

    assert set(asked()) == {"beta-south"}
    assert {run_of(key).process_state for key in keys} == {"Processed"}
    assert {step(key, "beta-step").failure_count for key in keys} == {0}


def test_failures_count_for_the_resource_that_was_called_and_the_others_stay_closed(two_accounts):
    route("*", "beta-north")

    toy.BETA.on_perform = kit.raising(TransientFailure("connection refused"))
    submit_many("toy-plain", [{"n": n} for n in range(6)])
    run_until_idle()

    states = dict(Resource.objects.values_list("name", "breaker_state"))
    assert (states["beta-north"], states["beta-south"]) == ("open", "closed")
    assert Slot.objects.count() == 0


def test_the_broken_one_of_several_is_tried_out_again(two_accounts):
    Resource.objects.filter(name="beta-north").update(breaker_state="open", retry_at="2020-01-01T00:00:00Z")
    circuit_breaker.forget()
    submit_many("toy-plain", [{"n": n} for n in range(3)])

    run_until_idle()

    assert "beta-north" in asked()
    assert Resource.objects.get(name="beta-north").breaker_state == "closed"


def test_the_static_rule_gives_an_entity_the_same_partition_everywhere():
    assert [resources.partition_of(entity) for entity in ("ada", "grace", "linus")] == ["40", "51", "7"]
    spread = {resources.partition_of(f"order-{n}") for n in range(2000)}
    assert len(spread) == resources.PARTITIONS


def test_a_route_for_a_static_partition_takes_the_entities_that_fall_into_it(two_accounts):
    keys = submit_many("toy-plain", [{"n": n} for n in range(12)])
    for partition in {resources.partition_of(key) for key in keys[:6]}:
        route(partition, "beta-south")
    route("*", "beta-north")

    run_until_idle()

    south = {request.run_key for request in toy.BETA.performed if request.resource == "beta-south"}
    assert set(keys[:6]) <= south


def test_the_routes_are_read_again_by_timer_without_anybody_telling(two_accounts):
    route("*", "beta-north")
    assert resources.look().route("beta", "x") == ("beta-north", 1)
    ResourceRoute.objects.filter(partition="*").update(resource="beta-south", version=2)

    kit.until(lambda: resources.look().route("beta", "x") == ("beta-south", 2), within=5)


def test_an_agent_with_one_resource_of_its_own_name_knows_its_settings():
    Resource.objects.update_or_create(name="beta", defaults={"settings": {"account": "main"}})
    circuit_breaker.forget()
    kit.ran()

    assert [(request.resource, request.settings) for request in toy.BETA.performed] == [("beta", {"account": "main"})]


@pytest.fixture
def one_account(engine):
    """The only resource behind agent beta has another name."""
    Resource.objects.filter(name="beta").delete()
    Resource.objects.create(name="beta-north", service="beta", settings={"url": "north"})
    circuit_breaker.forget()


def test_the_only_resource_is_named_on_the_steps_that_it_took_if_its_name_is_not_the_services(one_account):
    key = kit.ran()

    assert [(request.resource, request.settings) for request in toy.BETA.performed] == [("beta-north", {"url": "north"})]
    assert step(key, "beta-step").resource == "beta-north"
    assert run_of(key).process_state == "Processed"


def test_a_resource_without_limits_takes_as_many_calls_under_another_name_than_its_services(engine, tuned):
    tuned(COHORT=5)
    Resource.objects.filter(name="alpha").delete()
    Resource.objects.create(name="alpha-north", service="alpha")
    circuit_breaker.forget()
    keys = submit_many("toy-plain", [{"n": n} for n in range(20)])

    for _turn in range(6):  # none of them begins
        schedule()

    assert [step(key, "alpha-step").process_state for key in keys] == ["Processing"] * 20


def test_what_the_only_resource_did_is_repeated_and_undone_there_although_the_service_has_a_second_one_now(one_account):
    toy.BETA.on_perform = kit.raising(OutcomeUnknown("no answer"))
    key = kit.ran()
    toy.BETA.on_perform = None
    Resource.objects.filter(name="beta-north").update(capacity=1)
    Resource.objects.create(name="beta-south", service="beta", capacity=50)
    circuit_breaker.forget()
    toy.GAMMA.on_perform = kit.raising(PermanentFailure("no"))

    kit.again()
    operator_verbs.compensate(key, by="operator", reason="no longer wanted")
    run_until_idle()

    assert asked() == ["beta-north"] * 2
    assert [request.resource for request in toy.BETA.undone] == ["beta-north"]
    assert run_of(key).process_state == "Cancelled"


def test_failures_open_the_breaker_of_the_only_resource_whatever_its_name_is(one_account):
    toy.BETA.on_perform = kit.raising(TransientFailure("connection refused"))
    submit_many("toy-plain", [{"n": n} for n in range(6)])
    run_until_idle()

    assert Resource.objects.get(name="beta-north").breaker_state == "open"
    assert not Resource.objects.filter(name="beta").exists()


def test_a_resource_that_was_removed_does_not_come_back_with_migrate_while_others_serve_its_service(two_accounts):
    list_resources()
    assert not Resource.objects.filter(name="beta").exists()

    Resource.objects.filter(service="beta").delete()
    list_resources()
    assert Resource.objects.filter(name="beta").exists()
