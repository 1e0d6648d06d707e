"""Branches of one run at the same moment: they end, fail, are cancelled and recovered, and processes and connections die."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from supervision import PermanentFailure, parallel, plan, testing
from supervision.agent import registered
from supervision.execution import runner
from supervision.models import Run, StepState
from supervision.operations import operator_verbs
from supervision.postgres import db
from supervision.recovery import failures, supervisor
from supervision.runtime import failpoints
from supervision.states import Claim
from supervision.store import failure_sql, step_verbs
from supervision.store.records import Started
from supervision.store.runs import attempts
from supervision.store.step_verbs import Successor
from supervision.workflow import StepPosition
from tests.engine import kit
from tests.engine.cutting import by_a_way_that_can_be_cut
from tests.support.shop import until
from tests.workflows.test_branches import B2, C2, A, B, C, D, diamond, of
from tests.workflows.test_races import a_session_is_blocked

__all__ = ["diamond"]
RUNS = 12
TIMES = 3


def at(*names: str) -> list[tuple[StepPosition, list[Started]]]:
    """A cohort of runs that are working on these steps of the diamond, one of each branch."""
    keys = testing.submit_many("waiting", [{"n": n} for n in range(RUNS)])
    found: dict[str, tuple[StepPosition, list[Started]]] = {}
    messages = testing.schedule()
    while messages:
        place, claims = messages.pop()
        items = step_verbs.start(place, claims)
        if place.label in names:
            found[place.label] = place, items
            continue
        handed = kit.finish(place, items)
        messages += [(place.following, handed.claims)] if handed.claims else []
        messages += testing.schedule()
    assert {len(items) for _, items in found.values()} == {RUNS}, (keys, found)
    return [found[name] for name in names]


def together(*calls: Callable[[], Any]) -> list[Any]:
    """The answers of these calls, made at the same moment; none may raise, and no deadlock may be resolved by the database."""
    deadlocks = kit.fetch("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    answers = testing.at_once(*calls)
    assert not [answer for answer in answers if isinstance(answer, Exception)]
    assert kit.fetch("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()") == deadlocks
    return answers


def one_by_one(calls: Sequence[Callable[[], Any]]) -> None:
    for call in calls:
        call()


def refuse(place: StepPosition, items: Sequence[Started]) -> None:
    failures.fail(place, [(item.claim, kit.refusal()) for item in items])


def drain() -> None:
    testing.expire()
    supervisor.sweep_once()
    testing.make_due()
    testing.run_until_idle()


@pytest.mark.parametrize("successor", list(Successor))
def test_of_two_branches_that_end_at_once_one_makes_the_join_due(sas, diamond, successor):
    for _ in range(TIMES):
        ends = at("b2", "c2")
        both = together(*[partial(step_verbs.finish_at(place, successor), [(it, {}) for it in items]) for place, items in ends])
        claims = Counter(claim.run_id for handed in both for claim in handed.claims)
        due = StepState.objects.filter(name="d", process_state="Pending", not_before__isnull=False).count()
        assert len(claims) + due == RUNS
        assert set(claims.values()) <= ({1} if successor != Successor.DUE else set())
        kit.healthy()
        drain()
        assert set(Run.objects.values_list("process_state", flat=True)) == {"Processed"}
        testing.clean()


def test_a_branch_that_fails_while_the_other_ends_stops_the_run_and_keeps_both_answers(sas, diamond):
    for _ in range(TIMES):
        (b2, failing), (c2, ending) = at("b2", "c2")
        together(partial(refuse, b2, failing), partial(kit.finish, c2, ending))
        assert set(Run.objects.values_list("process_state", flat=True)) == {"Error"}
        assert set(StepState.objects.filter(name="c2").values_list("process_state", flat=True)) == {"Processed"}
        assert testing.schedule() == []
        kit.healthy()
        for key in Run.objects.values_list("key", flat=True):
            operator_verbs.resubmit(key, by="operator", reason="again")
        drain()
        assert set(Run.objects.values_list("process_state", flat=True)) == {"Processed"}
        testing.clean()


@pytest.mark.parametrize("verb", ["start", "finish", "checkpoint", "heartbeat"])
def test_a_branch_locks_its_steps_in_the_order_in_which_a_failure_in_another_locks_them(sas, diamond, verb):
    _, (c2, ours) = at("b2", "c2")
    place = "UPDATE supervision_stepstate SET started_at = CASE WHEN %s THEN started_at END WHERE run_id = %s AND name = 'c2'"
    with transaction.atomic():
        for item in 2 * ours[::-1]:  # twice: then the last rows lie on one page, in this order
            kit.fetch(place, [verb != "start", item.run_id])
    go_on = {
        "start": partial(step_verbs.start, c2, [item.claim for item in ours]),
        "finish": partial(kit.finish, c2, ours),
        "checkpoint": partial(attempts.save_checkpoints, [(c2, item.claim, {"n": 1}) for item in ours]),
        "heartbeat": partial(attempts.extend, [(c2, item.claim) for item in ours]),
    }[verb]
    free: list[Any] = []

    def as_the_rows_lie() -> None:
        for way in ("indexscan", "bitmapscan"):
            kit.fetch(f"SET enable_{way} = off")
        go_on()

    with kit.another_connection() as held, kit.another_connection() as other:
        held.execute("SELECT FROM supervision_stepstate WHERE run_id = %s AND name = 'c2' FOR UPDATE", [ours[0].run_id])

        def once_it_waits() -> None:
            until(lambda: kit.fetch(kit.BLOCKED), what="the branch to wait")
            free.extend(other.execute("SELECT FROM supervision_stepstate WHERE name = 'c2' FOR UPDATE SKIP LOCKED"))
            other.rollback()
            held.rollback()

        together(as_the_rows_lie, once_it_waits)
    assert len(free) == RUNS - 1
    kit.healthy()


def test_two_branches_that_fail_at_once_are_one_error_of_the_run(sas, diamond, monkeypatch):
    fetch, readers = db.fetch, []

    def slowly(statement, params=None):
        rows = fetch(statement, params)
        if statement is failure_sql.RUN_FACTS:
            readers.append(statement)
            until(lambda: len(readers) == 2 or a_session_is_blocked(), what="the other branch's failure")
        return rows

    monkeypatch.setattr(db, "fetch", slowly)
    for _ in range(TIMES):
        readers.clear()
        ends = at("b", "c")
        together(*[partial(refuse, place, items) for place, items in ends])
        errors = kit.fetch("SELECT run_id, count(*) FROM supervision_stepevent WHERE position IS NULL AND to_state = 'Error' GROUP BY 1")
        assert {count for _, count in errors} == {1}
        kit.healthy()
        testing.clean()


@pytest.mark.parametrize("verb", [operator_verbs.cancel, operator_verbs.compensate])
def test_a_run_that_is_undone_while_its_branches_end_leaves_no_effect(sas, diamond, verb):
    for _ in range(TIMES):
        ends = at("b2", "c2")
        keys = list(Run.objects.values_list("key", flat=True))
        undo = [partial(verb, key, by="test", reason="no") for key in keys]
        together(*[partial(kit.finish, place, items) for place, items in ends], partial(one_by_one, undo))
        kit.healthy()
        drain()
        assert set(Run.objects.values_list("process_state", flat=True)) == {"Cancelled"}
        assert set(StepState.objects.filter(direction="undo").values_list("process_state", flat=True)) == {"Processed"}
        kit.healthy()
        testing.clean()


def test_two_schedulers_and_a_branch_that_ends_disturb_no_other(sas, flow):
    flow(*plan(parallel(A, B, C), D))
    for _ in range(TIMES):
        testing.submit_many("waiting", [{"n": n} for n in range(RUNS)])
        first = [sent for sent in testing.schedule() if sent[0].label == "a"]
        started = [(place, step_verbs.start(place, claims)) for place, claims in first]
        testing.expire()
        finish = [partial(kit.finish, place, items) for place, items in started]
        together(supervisor.sweep_once, supervisor.sweep_once, testing.schedule, testing.schedule, partial(one_by_one, finish))
        kit.healthy()
        drain()
        drain()
        assert set(Run.objects.values_list("process_state", flat=True)) == {"Processed"}
        testing.clean()


@pytest.mark.parametrize("label", ["a", "b", "b2", "c2", "d"])
def test_a_branch_goes_on_though_the_answer_to_its_finish_was_lost(sas, diamond, label):
    key = testing.submit("waiting", {"n": 1})
    [(place, claims)] = testing.schedule()
    done = "SELECT EXISTS (SELECT FROM supervision_stepstate WHERE direction = 'do' AND name = '{}' AND process_state = 'Processed')"
    with kit.another_connection(autocommit=True) as observe, by_a_way_that_can_be_cut(observe) as lose:
        way = lose(done.format(label))
        testing.perform(place, claims)
        testing.run_until_idle()
    assert way.cuts == 1
    assert set(of(key).values()) == {"Processed"}
    assert kit.fetch("SELECT max(attempt), max(failure_count) FROM supervision_stepstate") == [(1, 0)]
    assert kit.fetch("SELECT count(*) FROM supervision_strayreply") == [(0,)]
    kit.healthy()


@pytest.mark.parametrize("at", [name for name in failpoints.NAMES if name.startswith(("agent.", "scheduler.", "submit."))])
def test_a_process_that_dies_anywhere_in_a_branch_loses_nothing(sas, diamond, at):
    run = sas.submit("waiting")
    for label in ("b2", "c") if at.startswith("agent.") else ("",):
        sas.kill(label, at)
    sas.run()
    sas.advance("1h")
    sas._deaths.clear()  # a point that this workflow does not pass
    run.assert_state("Processed")
    sas.assert_healthy()


@pytest.mark.parametrize("at", ["undo.after_effect", "agent.after_finish", "agent.before_call"])
def test_a_process_that_dies_while_branches_are_undone_loses_nothing(sas, diamond, at):
    sas.fake("d", raises=PermanentFailure("no"))
    run = sas.start("waiting")
    run.compensate()
    sas.kill("undo:b2", at)
    sas.kill("undo:c", at)
    sas.run()
    sas.advance("1h")
    run.assert_state("Cancelled")
    sas.assert_healthy()


def test_a_transactional_agent_works_in_a_branch(sas, flow, monkeypatch):
    monkeypatch.setattr(registered["gamma"], "transactional", True)
    monkeypatch.setattr(registered["gamma"], "perform_many", lambda requests: [{} for _ in requests], raising=False)
    flow(*plan(A, parallel([B, B2], [C, C2]), D))
    runs = [sas.submit("waiting", {"n": n}) for n in range(5)]
    sas.run()
    assert {run.state for run in runs} == {"Processed"}
    sas.assert_healthy()


def test_a_cohort_of_a_transactional_agent_that_fails_in_part_disturbs_no_other_branch(sas, flow, monkeypatch):
    def some(requests):
        return [PermanentFailure("no") if number % 2 else {} for number, _ in enumerate(requests)]

    settling = threading.Event()
    fail = failures.fail

    def slowly(*settled):
        settling.set()
        until(lambda: ended or a_session_is_blocked(), what="the end of the other branch, or its wait")
        return fail(*settled)

    def finish_late(place, items):
        assert settling.wait(30)
        kit.finish(place, items)
        ended.append(place)

    ended = []
    monkeypatch.setattr(failures, "fail", slowly)
    monkeypatch.setattr(registered["gamma"], "transactional", True)
    monkeypatch.setattr(registered["gamma"], "perform_many", some, raising=False)
    flow(*plan(A, parallel([C, C2], [B, B2]), D))
    (b, items), (c, claimed) = at("b", "c")
    kit.fetch("UPDATE supervision_stepstate SET started_at = NULL WHERE name = 'c'")  # it has been claimed, and no worker has it
    together(partial(runner.run, c, [item.claim for item in claimed]), partial(finish_late, b, items))
    assert set(Run.objects.values_list("process_state", flat=True)) == {"Processing", "Error"}
    kit.healthy()


def test_a_claim_of_a_step_whose_run_was_stopped_meanwhile_is_void(sas, diamond):
    (b, b_items), (c, c_items) = at("b", "c")
    failures.fail(b, [(item.claim, kit.refusal()) for item in b_items])
    kit.finish(c, c_items)
    held = StepState.objects.filter(name="c2").values_list("run_id", flat=True)
    assert step_verbs.start(c.following, [Claim(run_id, 1) for run_id in held]) == []


@pytest.mark.parametrize("batch", [100, 3])
def test_a_sweep_leaves_a_run_to_the_next_one_whose_rows_another_process_holds(sas, diamond, settings, batch):
    at("b", "c")
    settings.SUPERVISION = {**settings.SUPERVISION, "SWEEP_BATCH": batch}
    held = Run.objects.order_by("pk").first().pk
    testing.expire()
    kit.fetch(
        "UPDATE supervision_stepstate SET complete_by = complete_by - interval '1 h' WHERE run_id = %s AND process_state = 'Processing'",
        [held],  # both of its steps come first
    )
    with kit.another_connection() as other:
        other.execute("SELECT FROM supervision_stepstate WHERE run_id = %s AND name = 'd' FOR UPDATE", [held])
        supervisor.sweep_once()
        assert set(StepState.objects.filter(process_state="Processing").values_list("run_id", flat=True)) == {held}
    supervisor.sweep_once()
    supervisor.sweep_once()
    assert not StepState.objects.filter(process_state="Processing").exists()
    kit.healthy()


def test_a_cancelled_run_with_nothing_to_undo_ends_with_its_last_running_branch(sas, diamond, monkeypatch):
    for name in ("alpha", "beta", "gamma"):
        monkeypatch.setattr(registered[name], "undoable", False)
    (b, b_items), (c, c_items) = at("b", "c")
    for key in Run.objects.values_list("key", flat=True):
        operator_verbs.cancel(key, by="test", reason="no")
    kit.finish(b, b_items)
    assert set(Run.objects.values_list("process_state", flat=True)) == {"Compensating"}
    kit.finish(c, c_items)
    assert set(Run.objects.values_list("process_state", flat=True)) == {"Cancelled"}
    kit.healthy()
