"""Sessions: one client's orders with one session key run one after another; other orders do not wait for them."""

from __future__ import annotations

import secrets

import pytest

from supervision.intake import consuming
from supervision.models import DeadLetter, Run
from supervision.operations import operator_verbs
from supervision.recovery import supervisor
from supervision.runtime.application import MOST_SESSION_BYTES
from supervision.store import claiming, sessions
from supervision.testing import run_of, run_until_idle, schedule, step, submit, submit_many
from tests.engine import kit
from tests.support import pages, toy

pytestmark = pytest.mark.usefixtures("engine")


def in_session(count, session="ada", **fields):
    return [submit("toy-plain", {"n": n, "session_key": session}, **fields) for n in range(count)]


def finished_in_order(keys):
    rows = Run.objects.filter(key__in=keys).order_by("finished_at").values_list("key", flat=True)
    return list(rows)


def test_twenty_orders_of_one_customer_run_strictly_in_sequence_while_others_pass(tuned):
    tuned(LINGER_SECONDS=10.0)
    mine = in_session(10)
    others = submit_many("toy-plain", [{"n": n} for n in range(30)])  # all of them start together with the first order of the session
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
    assert {run_of(key).process_state for key in others} == {"Processed"}  # other clients' orders do not wait for this session

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
    toy.BETA.on_perform = kit.raising(kit.PermanentFailure("no"))
    first, second = in_session(2)
    run_until_idle()
    toy.BETA.on_perform = None
    assert (run_of(first).process_state, run_of(second).process_state) == ("Error", "Pending")

    operator_verbs.resubmit(first, by="operator", reason="mended")
    assert (kit.idle_state(first), run_of(second).process_state) == ("Processed", "Processed")


@pytest.mark.parametrize("begun", [False, True])
def test_a_cancelled_order_lets_the_next_of_its_session_go(begun):
    first, second, third = in_session(3)
    schedule()
    if begun:
        operator_verbs.cancel(first, by="operator", reason="not wanted")
    else:
        operator_verbs.cancel(second, by="operator", reason="not wanted")
        kit.expire_and_sweep()
    run_until_idle()

    assert run_of(first if begun else second).process_state == "Cancelled"
    assert {run_of(key).process_state for key in (third, second if begun else first)} == {"Processed"}


def test_a_release_forgotten_by_a_killed_process_is_made_up_for_by_the_supervisor(monkeypatch):
    first, second = in_session(2)
    monkeypatch.setattr(sessions, "release", lambda ended: 0)  # as if the process had died between its commit and the release
    assert (kit.idle_state(first), step(second, "alpha-step").not_before) == ("Processed", None)

    supervisor.sweep_once()
    assert kit.idle_state(second) == "Processed"


def blocked(sessions_: int, each: int) -> None:
    """Write sessions of several orders each: the first order may begin, the others wait for it."""
    kit.ran("toy-plain", n=0)
    statements = (
        "INSERT INTO supervision_submission (public_id, workflow, payload, client, consumed_at)"
        " SELECT format('s%%s-%%s', s, n), 'toy-plain', '{}', 'ada', now() FROM generate_series(1, %s) n, generate_series(1, %s) s",
        "INSERT INTO supervision_run (workflow, version, key, process_state, session_key)"
        " SELECT 'toy-plain', 1, format('s%%s-%%s', s, n), 'Pending', 's' || s FROM generate_series(1, %s) n, generate_series(1, %s) s",
    )
    for statement in statements:
        kit.fetch(statement, [each, sessions_])
    kit.fetch(
        "INSERT INTO supervision_stepstate (run_id, position, direction, name, agent, process_state, idempotency_key, seq, not_before)"
        " SELECT id, 0, 'do', 'alpha-step', 'alpha', 'Pending', key, 1, CASE WHEN key LIKE '%%-1' THEN now() END"
        " FROM supervision_run WHERE session_key IS NOT NULL",
        [],
    )
    kit.fetch("ANALYZE supervision_run, supervision_stepstate, supervision_submission")


def test_looking_for_forgotten_heads_costs_by_sessions_and_not_by_the_orders_that_wait():
    blocked(10, 1_000)

    cost = pages.touched(sessions.release_forgotten)

    assert cost < 10 * 20


def test_a_release_costs_the_same_however_many_wait():
    blocked(1, 5_000)
    (head,) = kit.fetch("SELECT min(id) FROM supervision_run WHERE session_key IS NOT NULL")[0]
    kit.fetch("UPDATE supervision_run SET process_state = 'Processed', finished_at = now() WHERE id = %s", [head])
    kit.fetch("DELETE FROM supervision_stepstate WHERE run_id = %s", [head])

    cost = pages.touched(lambda: sessions.release([head]))

    assert cost < 100


def test_every_session_is_looked_at_a_few_at_a_time(monkeypatch):
    monkeypatch.setattr(sessions, "SESSIONS_A_LOOK", 2)
    monkeypatch.setattr(sessions, "_looked_to", ("", ""))
    blocked(5, 3)
    kit.fetch("UPDATE supervision_stepstate SET not_before = NULL WHERE not_before IS NOT NULL AND position = 0")

    released = [sessions.release_forgotten() for _ in range(4)]

    assert released == [2, 2, 1, 0]
    assert kit.fetch("SELECT count(*) FROM supervision_stepstate WHERE not_before IS NOT NULL AND position = 0") == [(5,)]


def test_looking_for_earlier_orders_of_a_session_does_not_read_what_waits_of_others():
    submit_many("toy-plain", [{"n": n, "session_key": f"s{n % 100}"} for n in range(5_000)])
    kit.fetch("ANALYZE supervision_submission")
    last = kit.fetch("SELECT max(id) FROM supervision_submission")[0][0]
    late = set()

    cost = pages.touched(lambda: late.update(sessions.overtaking([sessions.Member(last + 1, "", "s7")])))

    assert late == {last + 1}
    assert cost < 20


def test_a_stuck_order_holds_up_only_its_own_session():
    stuck = submit("toy-plain", {"n": 1, "session_key": "ada"}, client="user:1")
    same = submit("toy-plain", {"n": 2, "session_key": "ada"}, client="user:1")
    others = [
        submit("toy-plain", {"n": 3, "session_key": "eva"}, client="user:1"),
        submit("toy-plain", {"n": 4, "session_key": "ada"}, client="user:2"),
        submit("toy-plain", {"n": 5}, client="user:1"),
    ]
    with kit.another_connection() as other:
        other.execute("SELECT id FROM supervision_submission WHERE public_id = %s FOR UPDATE", [stuck])

        report = consuming.consume_batch()

        assert (report.consumed, report.deferred) == (3, 1)
        assert set(Run.objects.values_list("key", flat=True)) == set(others)
    run_until_idle()
    assert list(Run.objects.filter(key__in=[stuck, same]).order_by("id").values_list("key", flat=True)) == [stuck, same]


def test_an_order_whose_door_did_not_say_its_session_holds_up_all_of_its_client():
    """Older code accepted it without a session key, so it may belong to any session of its client."""
    unknown = submit("toy-plain", {"n": 1, "session_key": "ada"}, client="user:1", session_key="")
    same = submit("toy-plain", {"n": 2, "session_key": "ada"}, client="user:1")
    stranger = submit("toy-plain", {"n": 3, "session_key": "ada"}, client="user:2")
    with kit.another_connection() as other:
        other.execute("SELECT id FROM supervision_submission WHERE public_id = %s FOR UPDATE", [unknown])

        assert consuming.consume_batch().deferred == 1

        assert list(Run.objects.values_list("key", flat=True)) == [stranger]
    run_until_idle()
    assert list(Run.objects.exclude(key=stranger).order_by("id").values_list("key", flat=True)) == [unknown, same]


def test_two_consumers_never_let_a_later_order_of_a_session_overtake_an_earlier_one():
    earlier, later = in_session(2)
    with kit.another_connection() as other:
        other.execute("SELECT id FROM supervision_submission WHERE public_id = %s FOR UPDATE", [earlier])  # another consumer holds it
        report = consuming.consume_batch()
        assert (report.consumed, report.deferred) == (0, 1)

    run_until_idle()

    assert finished_in_order([earlier, later]) == [earlier, later]


def test_an_order_that_is_written_while_the_one_before_it_ends_is_never_forgotten():
    """The first order ends and the next one is consumed at the same moment, many times."""
    for turn in range(15):
        session = f"s{turn}"
        (first,) = in_session(1, session)
        _, place, items = None, *_walk_to_last()
        (second,) = in_session(1, session)

        kit.at_once(lambda p=place, i=items: kit.finish(p, i), lambda: consuming.consume_batch(born=False))

        assert run_of(first).process_state == "Processed"
        assert step(second, "alpha-step").not_before is not None, "no process will ever run it"


def _walk_to_last():
    ((place, claims),) = schedule()
    items = kit.step_verbs.start(place, claims)
    while not place.is_last:
        claims = kit.finish(place, items).claims
        place = place.following
        items = kit.step_verbs.start(place, claims)
    return place, items


def test_priority_and_session_go_together():
    plain = in_session(2, "low")
    urgent = submit("toy-plain", {"n": 1, "session_key": "high", "priority": 1})
    consuming.consume_batch(born=False)

    order = [claims[0].run_id for _ in range(2) for claims in claiming.claim(1).values()]

    assert order == [run_of(urgent).pk, run_of(plain[0]).pk]
    assert claiming.claim(5) == {}


def test_a_session_key_that_no_index_holds_stops_no_other_order():
    longest, name = secrets.token_urlsafe(MOST_SESSION_BYTES)[:MOST_SESSION_BYTES], secrets.token_urlsafe(600)[:600]
    sick = submit("toy-plain", {"n": 1, "session_key": secrets.token_urlsafe(6_000)}, session_key="")
    long, short = submit("toy-plain", {"n": 2, "session_key": longest}, client=name), submit("toy-plain", {"n": 3})

    run_until_idle()

    assert DeadLetter.objects.get().public_id == sick
    assert "the session key has more than 2,000 bytes" in DeadLetter.objects.get().reason
    assert {run_of(key).process_state for key in (long, short)} == {"Processed"}
