"""A run that moves to a newer version while others change it, in both orders; and processes that die meanwhile."""

from __future__ import annotations

import threading
from functools import partial
from time import monotonic, sleep

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from supervision import TransientFailure, parallel, plan, testing
from supervision.errors import Refused
from supervision.models import Run, StepEvent
from supervision.operations import moving, operator_verbs
from supervision.recovery import failures, supervisor
from supervision.runtime import failpoints
from supervision.signals.sending import send_signal
from supervision.store import run_verbs, step_sql, step_verbs
from supervision.store.runs import attempts
from tests.engine import kit
from tests.workflows.test_branch_races import together
from tests.workflows.test_moving import PAID, A, B, C, D, X, move, rows, version

__all__ = ["version"]
TIMES = 4


def until(condition):
    end = monotonic() + 20
    while not condition():
        assert monotonic() < end
        sleep(0.005)


@pytest.fixture
def first(monkeypatch):
    """Two changes of one run: the transaction of the first one stays open until the second one waits for its locks."""

    def both(one, other):
        finish, opened, blocked = run_verbs.finish, threading.Event(), threading.Event()
        me = []

        def slowly(*args):
            finish(*args)
            if threading.current_thread() is me[0]:
                opened.set()
                assert blocked.wait(20)

        def run_first():
            me.append(threading.current_thread())
            return one()

        def run_second():
            assert opened.wait(20)
            return other()

        def watch():
            assert opened.wait(20)
            until(lambda: kit.fetch(kit.BLOCKED))
            blocked.set()

        with monkeypatch.context() as patch:
            patch.setattr(run_verbs, "finish", slowly)
            answers = testing.at_once(run_first, run_second, watch)
        assert not isinstance(answers[2], BaseException), answers[2]
        return answers[:2]

    return both


@pytest.fixture
def waiting(sas, version):
    """A run that waits in the middle of version 1, and a version 2 that it can move to."""
    version(1, A, PAID, B)
    run = sas.start("moved")
    version(2, A, PAID, X, C, B)
    return run


def cancel(run):
    return operator_verbs.cancel(run.key, by="customer", reason="no")


def test_a_cancel_that_waited_for_the_move_cancels_the_steps_of_the_new_plan(sas, waiting, first):
    assert first(partial(move, waiting), partial(cancel, waiting)) == ["Processing", "Compensating"]
    assert [state for _, state in rows(waiting)] == ["Processed", *["Cancelled"] * 4]
    sas.run()
    waiting.assert_state("Cancelled")
    sas.assert_healthy()


def test_a_move_that_waited_for_the_cancel_is_refused(sas, waiting, first):
    one, other = first(partial(cancel, waiting), partial(move, waiting))
    assert (one, type(other)) == ("Compensating", Refused)
    sas.run()
    waiting.assert_state("Cancelled")
    assert Run.objects.get(key=waiting.key).version == 1
    sas.assert_healthy()


def test_a_signal_that_came_while_the_run_moved_wakes_its_step(sas, waiting, first):
    first(partial(move, waiting), lambda: send_signal(waiting.key, "paid", {"amount": 3}))
    sas.run()
    waiting.assert_state("Processed")
    assert waiting.results["paid"]["payload"] == {"amount": 3}
    sas.assert_healthy()


def test_of_two_moves_one_counts(sas, waiting, first):
    one, other = first(partial(move, waiting), partial(move, waiting))
    assert (one, type(other)) == ("Processing", Refused)
    assert StepEvent.objects.filter(run__key=waiting.key, why__startswith="moved").count() == 1
    sas.assert_healthy()


# The statement of a scheduler that has begun before the move, and looks at the run's rows after it.
def _slowly(statement):
    marker = "FROM supervision_stepstate s\n     WHERE"
    assert statement.count(marker) == 1
    return statement.replace(marker, f"{marker} (SELECT pg_advisory_lock_shared(4711)) IS NOT NULL AND")


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("began", ["due", "retry"])
def test_a_claim_that_began_before_the_move_takes_no_step_under_the_old_version(sas, version, monkeypatch, graph, began):
    version(1, *(plan(A, parallel(B, C), D) if graph else (A, B, C)))
    if began == "retry":
        sas.fake("a", raises=TransientFailure("busy"), times=1)
        run = sas.start("moved")
        sas.others_succeed("a")
        testing.make_due()
    else:
        run = Run.objects.get(key=kit.waiting(1, "moved")[0])
    version(2, *(plan(A, parallel(B, C), X, D) if graph else (A, X, C)))
    monkeypatch.setattr(step_sql, "CLAIM", _slowly(step_sql.CLAIM))
    with kit.another_connection(autocommit=True) as holder:
        holder.execute("SELECT pg_advisory_lock(4711)")

        def moves():
            until(lambda: kit.fetch(kit.BLOCKED))
            try:
                return move(run)
            finally:
                holder.execute("SELECT pg_advisory_unlock(4711)")

        def claims():
            try:
                return testing.schedule()
            finally:
                kit.fetch("SELECT pg_advisory_unlock_all()")

        state, sent = testing.at_once(moves, claims)
    assert state in ("Pending", "Processing"), state
    assert {place.version for place, _ in sent} <= {2}, sent
    kit.healthy()


def settle():
    for _ in range(3):
        supervisor.sweep_once()
        testing.make_due()
        testing.run_until_idle()


ACTS = {
    "finish": lambda keys, place, items: kit.finish(place, items),
    "fail": lambda keys, place, items: failures.fail(place, [(item.claim, kit.refusal()) for item in items]),
    "heartbeat": lambda keys, place, items: attempts.extend([(place, item.claim) for item in items]),
    "sweep": lambda *_: supervisor.sweep_once(),
    "schedule": lambda *_: testing.schedule(),
    "signal": lambda keys, *_: [send_signal(key, "paid", {}) for key in keys],
    "cancel": lambda keys, *_: [operator_verbs.cancel(key, by="customer", reason="no") for key in keys],
}


def move_all(keys, by):
    return list(moving.move_many(keys, by=by, reason="r"))


@pytest.mark.parametrize("what", ACTS)
def test_a_move_beside_any_other_change_leaves_the_run_whole(sas, version, what):
    for _ in range(TIMES):
        version(1, *plan(A, parallel(B, PAID), C))
        testing.submit_many("moved", [{"n": n} for n in range(6)])
        [(place, claims)] = testing.schedule()
        items = step_verbs.start(place, claims)
        if what not in ("finish", "fail", "heartbeat"):
            kit.finish(place, items)
            if what == "sweep":
                kit.start_all()
                testing.expire()
            else:
                testing.run_until_idle()
        keys = list(Run.objects.order_by("pk").values_list("key", flat=True))
        version(2, *plan(A, parallel(B, PAID), X, D))
        together(partial(ACTS[what], keys, place, items), partial(move_all, keys, "olga"), partial(move_all, keys, "otto"))
        kit.healthy()
        testing.expire()
        settle()
        for key in keys:
            if kit.state(key) == "Error":
                operator_verbs.resubmit(key, by="olga", reason="again")
            if kit.state(key) == "Processing":
                send_signal(key, "paid", {})
        settle()
        assert set(Run.objects.values_list("process_state", flat=True)) <= {"Processed", "Cancelled"}
        kit.healthy()
        testing.clean()


def test_a_process_that_dies_while_it_moves_a_run_changes_nothing(sas, waiting, monkeypatch):
    before = kit.fetch("SELECT s::text FROM supervision_stepstate s ORDER BY position")
    with monkeypatch.context() as patch:
        patch.setattr(run_verbs, "save_all", lambda runs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            move(waiting)
    assert kit.fetch("SELECT s::text FROM supervision_stepstate s ORDER BY position") == before
    assert Run.objects.get(key=waiting.key).version == 1
    assert move(waiting) == "Processing"
    sas.assert_healthy()


def test_many_moves_that_stop_in_the_middle_are_repeated_and_nothing_is_done_twice(sas, version, monkeypatch):
    monkeypatch.setattr(moving, "BATCH", 4)
    version(1, *plan(A, parallel(B, PAID), D))
    keys = testing.submit_many("moved", [{"n": n} for n in range(10)])
    sas.run()
    olga = User.objects.create_superuser("olga")
    version(2, *plan(A, parallel(B, PAID), X, D))
    with monkeypatch.context() as patch:
        hits = iter(range(1, 100))
        patch.setattr(failpoints, "hit", lambda name: 1 / (6 - next(hits)))
        with pytest.raises(ZeroDivisionError):
            list(moving.move_many(moving.runs_of("moved", 1), by=olga, reason="new law"))
    assert Run.objects.filter(version=2).count() == 4  # the first batch; the one that died left nothing
    assert LogEntry.objects.count() == 4

    moved = list(moving.move_many(moving.runs_of("moved", 1), by=olga, reason="new law"))
    assert [one.code for one in moved] == [""] * 6
    assert sorted(StepEvent.objects.filter(why__contains="to version 2").values_list("run__key", flat=True)) == sorted(keys)
    assert LogEntry.objects.count() == 10
    for key in keys:
        send_signal(key, "paid", {})
    sas.run()
    assert set(Run.objects.values_list("process_state", "version")) == {("Processed", 2)}
    kit.healthy()


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_batch_of_moves_takes_as_many_statements_as_one_move(sas, version, dry_run):
    version(1, *plan(A, parallel(B, PAID), D))
    keys = testing.submit_many("moved", [{"n": n} for n in range(61)])
    sas.run()
    olga = User.objects.create_superuser("olga")
    version(2, *plan(A, parallel(B, PAID), X, D))
    ask = partial(moving.move_many, by=olga, reason="new law", dry_run=dry_run)
    counts = []
    for some in (keys[:1], keys[1:]):
        with CaptureQueriesContext(connection) as seen:
            assert [one.code for one in ask(some)] == [""] * len(some)
        counts.append(len(seen))
    assert counts[1] <= counts[0] + 2


def test_a_run_that_is_refused_stops_none_of_its_batch(sas, version):
    version(1, *plan(A, parallel(B, PAID), D))
    keys = testing.submit_many("moved", [{"n": n} for n in range(4)])
    sas.run()
    operator_verbs.cancel(keys[1], by="olga", reason="no")
    version(2, *plan(A, parallel(B, PAID), X, D))
    seen = [list(moving.move_many([*keys, "unknown"], by="olga", reason="new law", dry_run=dry_run)) for dry_run in (True, False)]
    assert seen[0] == seen[1]
    assert [one.code for one in seen[1]] == ["", "not_movable", "", "", "unknown_run"]
    assert sorted(Run.objects.filter(version=2).values_list("key", flat=True)) == sorted(keys[:1] + keys[2:])
