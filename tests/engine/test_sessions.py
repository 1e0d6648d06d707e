"""Sessions: one client's orders with one key run one after another; nobody else waits for them."""

from __future__ import annotations

import pytest

from supervision import consuming, operations, sessions, supervisor
from supervision.models import Run
from supervision.testing import run_of, run_until_idle, schedule, step, submit, submit_many
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


def in_session(count, session="ada", **fields):
    return [submit("toy-plain", {"n": n, "session_key": session}, **fields) for n in range(count)]


def finished_in_order(keys):
    rows = Run.objects.filter(key__in=keys).order_by("finished_at").values_list("key", flat=True)
    return list(rows)


def test_twenty_orders_of_one_customer_run_strictly_in_sequence_while_others_pass(tuned):
    tuned(LINGER_SECONDS=10.0)
    mine = in_session(10)
    others = submit_many("toy-plain", [{"n": n} for n in range(30)])  # with one of mine they are begun at once
    mine += in_session(10)
    busy: set[str] = set()
    overlaps = []

    def watch(request):
        if request.run_key in mine:
            if busy - {request.run_key}:
                overlaps.append(request.run_key)
            busy.add(request.run_key)

    def leave(request):
        busy.discard(request.run_key)

    toy.ALPHA.on_perform, toy.GAMMA.on_perform = watch, leave
    kit.go(schedule())
    assert {run_of(key).process_state for key in others} == {"Processed"}  # nobody waits for a stranger's session

    run_until_idle()

    assert finished_in_order(mine) == mine
    assert {run_of(key).process_state for key in mine} == {"Processed"}
    assert overlaps == []
    assert [request.run_key for request in toy.ALPHA.performed if request.run_key in mine] == mine
    assert kit.healthy()


def test_a_waiting_order_of_a_session_is_not_even_looked_at_by_the_claim():
    keys = in_session(3)
    schedule()

    assert [step(key, "alpha-step").process_state for key in keys] == ["Processing", "Pending", "Pending"]
    assert [step(key, "alpha-step").not_before is None for key in keys] == [False, True, True]


def test_two_clients_may_use_the_same_key_without_waiting_for_each_other():
    (first,) = in_session(1, client="user:1")
    (second,) = in_session(1, client="user:2")

    schedule()

    assert {run_of(key).process_state for key in (first, second)} == {"Processing"}


def test_an_order_in_error_holds_its_session_until_somebody_decides():
    def refuse(request):
        raise kit.PermanentFailure("no")

    toy.BETA.on_perform = refuse
    first, second = in_session(2)
    run_until_idle()
    toy.BETA.on_perform = None
    assert (run_of(first).process_state, run_of(second).process_state) == ("Error", "Pending")

    operations.resubmit(first, by="operator", reason="mended")
    run_until_idle()

    assert (run_of(first).process_state, run_of(second).process_state) == ("Processed", "Processed")


@pytest.mark.parametrize("begun", [False, True])
def test_a_cancelled_order_lets_the_next_of_its_session_go(begun):
    first, second, third = in_session(3)
    schedule()
    if begun:
        operations.cancel(first, by="operator", reason="not wanted")
    else:
        operations.cancel(second, by="operator", reason="not wanted")
        kit.expire()
        supervisor.sweep_once()
    run_until_idle()

    assert run_of(first if begun else second).process_state == "Cancelled"
    assert {run_of(key).process_state for key in (third, second if begun else first)} == {"Processed"}


def test_a_release_forgotten_by_a_killed_process_is_made_up_for_by_the_supervisor(monkeypatch):
    first, second = in_session(2)
    monkeypatch.setattr(sessions, "release", lambda ended: 0)  # the process died between its commit and the release
    run_until_idle()
    assert (run_of(first).process_state, step(second, "alpha-step").not_before) == ("Processed", None)

    supervisor.sweep_once()
    run_until_idle()

    assert run_of(second).process_state == "Processed"


def test_two_consumers_never_let_a_later_order_of_a_session_overtake_an_earlier_one():
    earlier, later = in_session(2)
    with kit.another_connection() as other:
        other.execute("SELECT id FROM supervision_submission WHERE public_id = %s FOR UPDATE", [earlier])  # in other hands
        report = consuming.consume_batch()
        assert (report.consumed, report.deferred) == (0, 1)

    run_until_idle()

    assert finished_in_order([earlier, later]) == [earlier, later]


def test_an_order_that_is_written_while_the_one_before_it_ends_is_never_forgotten():
    """The end of one and the arrival of the next, at the same moment, many times."""
    for turn in range(15):
        session = f"s{turn}"
        (first,) = in_session(1, session)
        _, place, items = None, *_walk_to_last(first)
        (second,) = in_session(1, session)

        kit.at_once(lambda p=place, i=items: kit.finish(p, i), lambda: consuming.consume_batch(born=False))

        assert run_of(first).process_state == "Processed"
        assert step(second, "alpha-step").not_before is not None, "nobody will ever run it"


def _walk_to_last(key):
    ((place, claims),) = schedule()
    items = kit.store.start(place, claims)
    while not place.is_last:
        claims = kit.finish(place, items).claims
        place = place.following
        items = kit.store.start(place, claims)
    return place, items


def test_priority_and_session_go_together():
    plain = in_session(2, "low")
    urgent = submit("toy-plain", {"n": 1, "session_key": "high", "priority": 1})
    consuming.consume_batch(born=False)

    order = [claims[0].run_id for _ in range(2) for claims in kit.store.claim(1).values()]

    assert order == [run_of(urgent).pk, run_of(plain[0]).pk]
    assert kit.store.claim(5) == {}
