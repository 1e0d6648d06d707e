"""Why an order waits: one sentence for each reason, from two statements on the current rows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone, translation

from supervision.errors import OutcomeUnknown, PermanentFailure, TransientFailure
from supervision.governance import circuit_breaker
from supervision.insight import waiting
from supervision.models import Pause, Resource, ResourceRoute, Slot
from supervision.operations import operator_verbs, pauses
from supervision.recovery import decisions, failures
from supervision.testing import expire, run_of, schedule, step, submit
from supervision.worker import heartbeats
from tests.engine import kit

pytestmark = pytest.mark.usefixtures("everybody_works")


def why(key: str, **how: Any) -> str | None:
    pk = run_of(key).pk
    return waiting.why_waiting([pk], **how)[pk]


def due(workflow: str = "toy-plain", **payload: Any) -> str:
    """A run whose first step is due and not claimed."""
    return kit.waiting(1, workflow, **payload)[0]


def clock(at: Any) -> str:
    """A moment, as the console tells it."""
    return f"{timezone.localtime(at):%Y-%m-%d %H:%M:%S %Z}"


def test_nobody_waits_while_a_step_is_being_worked_on_or_the_order_has_ended():
    key, *_ = kit.started()
    done = kit.ran("toy")

    assert (why(key), why(done)) == (None, None)


def test_it_waits_for_its_turn_behind_those_that_were_there_before():
    first, second, third = due(), due(), due()
    pauses.pause("order", first, reason="r", by="olga")

    assert why(third) == "alpha-step waits for its turn: 2 orders are before it."
    assert why(second) == "alpha-step waits for its turn: 1 order is before it."
    pauses.lift("order", first, by="olga")
    assert why(first) == "alpha-step waits for its turn: it is the next."


def test_only_the_head_of_a_long_queue_is_counted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("supervision.insight.waiting_facts.COUNTED_UP_TO", 2)
    keys = [due() for _ in range(4)]

    assert why(keys[1]) == "alpha-step waits for its turn: 1 order is before it."
    assert why(keys[3]) == "alpha-step waits for its turn: more than 2 orders are before it."


def test_it_waits_for_a_worker_and_since_when():
    key, *_ = kit.claimed()

    assert why(key) == f"alpha-step waits for a worker since {clock(kit.events(key)[1].at)}."


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (None, "no process that serves the queue agent.alpha has been seen."),
        (180, "no process that serves the queue agent.alpha has been seen for 3\xa0minutes."),
    ],
)
def test_it_waits_for_a_worker_that_nobody_has_seen(seen: int | None, words: str):
    kit.fetch("DELETE FROM supervision_heartbeat")
    if seen:
        heartbeats.beat("agents", {"queues": ["agent.alpha"]}, name="agents@gone")
        kit.fetch("UPDATE supervision_heartbeat SET seen_at = now() - %s * interval '1 s'", [seen])
    heartbeats.beat("agents", {"queues": ["agent.beta"]}, name="another@here")
    key, *_ = kit.claimed()

    assert why(key) == f"alpha-step waits for a worker since {clock(kit.events(key)[1].at)}: {words}"


def test_it_waits_for_a_worker_of_its_own_partition(tuned: Any):
    tuned(PARTITIONS={"alpha": 2})
    key, *_ = kit.claimed()

    assert "no process that serves the queue agent.alpha." in str(why(key))
    for n in range(2):
        heartbeats.beat("agents", {"queues": [f"agent.alpha.{n}"]}, name=f"agents@{n}")
    assert "no process" not in str(why(key))


def test_it_waits_to_be_claimed_while_no_scheduler_is_seen():
    kit.fetch("DELETE FROM supervision_heartbeat")

    assert why(due()) == "alpha-step waits for its turn: no process that serves the queue scheduler has been seen."


def test_a_scheduler_that_runs_as_a_plain_loop_is_one():
    kit.fetch("DELETE FROM supervision_heartbeat")
    heartbeats.beat("scheduler", {"claimed": 0})

    assert why(due()) == "alpha-step waits for its turn: it is the next."


def test_it_waits_for_a_process_that_knows_its_version_while_an_incident_says_that_none_does():
    key, other = due(), due("toy")
    kit.fetch("UPDATE supervision_run SET created_at = now() - interval '2 min'")
    heartbeats.beat("all", {"queues": ["agent.alpha"], "workflows": {"toy": [1]}}, name="all@here")
    kit.looked()

    assert why(key) == (
        "alpha-step waits for its turn: No running process (agents) knows toy-plain version 1: its orders wait for one that does."
    )
    assert "knows" not in str(why(other))


def test_a_late_one_waits_for_the_supervisor():
    key, *_ = kit.started()
    expire(key)

    assert why(key) == "alpha-step gave no answer in time and waits for the supervisor."


def test_it_waits_for_evidence_where_nobody_else_has_called_the_service_meanwhile():
    key, place, items = kit.started("toy")
    failures.fail(place, [(items[0].claim, decisions.as_failure(OutcomeUnknown("the line\nwas cut.")))])

    row = step(key, "alpha-step")
    assert why(key) == (
        f"alpha-step fails since {clock(row.failing_since)} and is tried again at {clock(row.not_before)};"
        " nothing tells yet whose fault it is: the line was cut."
    )


def test_it_cools_down_after_so_many_failures():
    kit.others_succeed("alpha")
    key, place, items = kit.started("toy")
    failures.fail(place, [(items[0].claim, decisions.as_failure(OutcomeUnknown("the line\nwas cut.")))])
    once = step(key, "alpha-step")
    assert why(key) == f"alpha-step cools down until {clock(once.not_before)} after 1 failure: the line was cut."

    kit.fetch("UPDATE supervision_stepstate SET failure_count = 2, not_before = now() + interval '1 h' WHERE position = 0")
    words = why(key)
    assert words is not None
    assert words.endswith(" after 2 failures, the last: the line was cut.")


def test_one_in_error_waits_for_an_operator():
    assert why(kit.in_error(1)) == "beta-step is in error and waits for an operator."


def test_one_that_its_customer_has_to_correct_waits_for_the_customer():
    key, place, items = kit.started("toy")
    refused = decisions.as_failure(PermanentFailure("declined", code="card_declined", for_customer=True))
    failures.fail(place, [(items[0].claim, refused)])

    assert why(key) == "alpha-step is in error and waits for the customer, not for an operator."


def test_an_undo_waits_for_the_step_that_still_runs():
    key, *_ = kit.at_step(1, "toy")
    operator_verbs.cancel(key, by="customer", reason="r")

    assert why(key) == "beta-step is undone as soon as the step that is still running has ended."


# --- Pauses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "name", "what"),
    [
        ("order", "key", "The order"),
        ("all", "", "Everything"),
        ("workflow", "toy-plain", "The workflow toy-plain"),
        ("agent", "alpha", "The agent alpha"),
    ],
)
def test_a_paused_order_says_who_until_when_and_why(scope: str, name: str, what: str):
    key = due()
    name = key if name == "key" else name
    held = pauses.pause(scope, name, reason="the address is checked", by="olga")

    forever = f"{what} is paused by olga since {clock(held.paused_at)}, until an operator resumes it: the address is checked"
    assert why(key) == forever
    assert why(key, inside=False) == f"{what} is paused since {clock(held.paused_at)}."

    held = pauses.pause(scope, name, reason="the address is checked", by="olga", until=timedelta(minutes=5))
    assert why(key) == f"{what} is paused by olga until {clock(held.until)}: the address is checked"
    assert why(key, inside=False) == f"{what} is paused until {clock(held.until)}."


def test_a_pause_that_is_over_holds_nobody():
    key = due()
    pauses.pause("order", key, reason="r", by="olga", until=timedelta(hours=1))
    kit.fetch("UPDATE supervision_pause SET until = now() - interval '1 s'")

    assert why(key) == "alpha-step waits for its turn: it is the next."


def test_a_time_on_another_day_is_told_with_its_day():
    key = due()
    held = pauses.pause("order", key, reason="r", by="olga", until=timedelta(days=3))

    assert why(key) == f"The order is paused by olga until {clock(held.until)}: r"


def test_what_runs_is_not_called_paused():
    key, *_ = kit.started()
    pauses.pause("all", reason="r", by="olga")

    assert why(key) is None


# --- Sessions ---------------------------------------------------------------------------------------------------------


def test_it_waits_behind_the_orders_of_its_session():
    first, second, third = (due(session_key="ada") for _ in range(3))

    assert why(first) == "alpha-step waits for its turn: it is the next."
    assert why(second) == "It waits behind 1 order of its session: they run one after another."
    assert why(third) == "It waits behind 2 orders of its session: they run one after another."
    assert why(due(session_key="bob")) == "alpha-step waits for its turn: 1 order is before it."


def test_it_names_the_order_of_its_session_that_holds_up_the_others():
    first, second, third = (due(session_key="ada") for _ in range(3))
    pauses.pause("order", first, reason="r", by="olga")
    assert why(second) == f"It waits behind 1 order of its session, {first}, which is paused."
    assert why(third) == f"It waits behind 2 orders of its session; the first of them, {first}, is paused."
    pauses.lift("order", first, by="olga")

    ((place, claims),) = schedule()
    from_start = kit.step_verbs.start(place, claims)
    failures.fail(place, [(from_start[0].claim, decisions.as_failure(PermanentFailure("refused")))])

    head = f"{first}, has alpha-step in error and waits for an operator."
    assert why(third) == f"It waits behind 2 orders of its session; the first of them, {head}"
    assert why(second) == (
        f"It waits behind 1 order of its session, {first}, whose alpha-step is in error and waits for an operator."
    )  # fmt: skip


# --- Resources --------------------------------------------------------------------------------------------------------


def resource(name: str = "alpha", **fields: Any) -> Resource:
    row, _made = Resource.objects.update_or_create(name=name, defaults=fields)
    circuit_breaker.forget()
    return row


def take_slots(name: str, count: int) -> None:
    until = timezone.now() + timedelta(seconds=60)
    for n in range(count):
        Slot.objects.create(resource=name, run_id=10_000 + n, direction="do", position=0, attempt=1, holder="test", until=until)


def test_an_open_breaker_is_told_with_its_time():
    key = due()
    now = timezone.now()
    row = resource(breaker_state="open", opened_at=now - timedelta(minutes=3), retry_at=now + timedelta(seconds=40))

    since = clock(row.opened_at)
    assert why(key) == (
        f"alpha does not answer: its breaker is open since {since} (for 3\xa0minutes), next tried at {clock(row.retry_at)}."
    )
    resource(breaker_state="half-open")
    assert why(key) == f"alpha does not answer: its breaker is open since {since} (for 3\xa0minutes), and is being tried out again."


def test_an_outage_is_told_rather_than_the_cool_down_that_came_of_it():
    key, place, items = kit.started("toy")
    for _ in range(2):
        failures.fail(place, [(items[0].claim, decisions.as_failure(TransientFailure("503")))])
    resource(breaker_state="open", opened_at=timezone.now(), retry_at=timezone.now() + timedelta(seconds=40))

    assert str(why(key)).startswith("alpha does not answer")


def test_a_paused_resource_is_told():
    key = due()
    resource(paused=True)

    assert why(key) == "alpha is paused by an operator."


def test_no_free_slot_is_told_with_the_numbers():
    key = due()
    resource(capacity=2)
    take_slots("alpha", 2)
    assert why(key) == "No slot is free at alpha (2 of 2 calls are under way)."

    Slot.objects.update(until=timezone.now() - timedelta(seconds=1))  # the leases of dead holders have expired
    assert why(key) == "alpha-step waits for its turn: it is the next."


def test_the_rate_limit_is_told():
    key = due()
    resource(rate_per_second=2.5, next_call_at=timezone.now() + timedelta(seconds=30))

    assert why(key) == "It waits for the rate limit: alpha takes 2.5 calls a second."


def test_of_several_resources_those_that_take_calls_decide():
    key = due()
    resource("alpha", service="alpha", breaker_state="open", opened_at=timezone.now())
    resource("alpha-two", service="alpha", capacity=1)
    assert why(key) == "alpha-step waits for its turn: it is the next."

    take_slots("alpha-two", 1)
    assert why(key) == "No slot is free at alpha-two (1 of 1 calls are under way)."


def test_a_route_decides_which_resource_it_waits_for():
    key = due()
    resource("alpha", service="alpha")
    resource("alpha-two", service="alpha", paused=True)
    ResourceRoute.objects.create(service="alpha", partition="*", resource="alpha-two")

    assert why(key) == "alpha-two is paused by an operator."


def test_a_step_that_was_sent_somewhere_waits_for_that_resource():
    key = due()
    resource("alpha", service="alpha", paused=True)
    resource("alpha-two", service="alpha")
    kit.fetch("UPDATE supervision_stepstate SET resource = 'alpha', effect = 'unknown' WHERE position = 0")

    assert why(key) == "alpha is paused by an operator."


def test_a_postponed_step_says_until_when():
    key = due()
    kit.fetch("UPDATE supervision_stepstate SET not_before = now() + interval '1 min' WHERE position = 0")

    assert why(key) == f"alpha-step is postponed until {clock(step(key, 'alpha-step').not_before)}."


# --- Many, and none yet -----------------------------------------------------------------------------------------------


def test_a_hundred_orders_are_answered_in_two_statements(django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch):
    keys = [due(session_key="ada") for _ in range(20)] + [due() for _ in range(20)]
    ids = [run_of(key).pk for key in keys]
    asked: list[str] = []
    fetch = waiting.orders.__globals__["db"].fetch
    monkeypatch.setattr("supervision.postgres.db.fetch", lambda *args: asked.append(args[0]) or fetch(*args))

    answers = waiting.why_waiting(ids)

    assert len(asked) == 2
    assert len([words for words in answers.values() if words]) == 40
    assert answers[ids[19]] == "It waits behind 19 orders of its session: they run one after another."
    assert waiting.why_waiting([]) == {}


def test_an_order_that_is_not_taken_up_says_how_many_are_before_it():
    first, second, third = (submit("toy", {"n": 1}) for _ in range(3))

    found = waiting.why_unconsumed([first, second, third, "no-such-order"])

    assert found == {
        first: "It is accepted and waits to be taken up: it is the next.",
        second: "It is accepted and waits to be taken up: 1 order is before it.",
        third: "It is accepted and waits to be taken up: 2 orders are before it.",
        "no-such-order": None,
    }


def test_an_order_that_nobody_takes_up_says_so():
    key = submit("toy", {"n": 1})
    kit.fetch("DELETE FROM supervision_heartbeat")

    silence = "no process that serves the queue submissions has been seen"
    assert waiting.why_unconsumed([key]) == {key: f"It is accepted and waits to be taken up: {silence}."}


def test_times_are_in_the_viewers_zone():
    key = due()
    held = pauses.pause("order", key, reason="r", by="olga", until=timedelta(minutes=2))

    with timezone.override("Asia/Kathmandu"), translation.override("en"):
        assert f"until {timezone.localtime(held.until):%Y-%m-%d %H:%M:%S} +0545" in str(why(key))
    assert Pause.objects.count() == 1
