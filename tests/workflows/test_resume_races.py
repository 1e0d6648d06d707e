"""Runs that go on from an earlier step: verbs at the same moment, lost answers, processes that die at each point, killed processes."""

from __future__ import annotations

from functools import partial

import pytest

from supervision import PermanentFailure, parallel, plan, testing
from supervision.errors import Refused
from supervision.models import Run, StepState
from supervision.operations import operator_verbs, resuming
from supervision.store import step_verbs
from tests.engine import kit
from tests.engine.cutting import by_a_way_that_can_be_cut
from tests.support.shop import until as wait_until
from tests.support.workers import two_workers
from tests.workflows.test_branch_races import one_by_one, together
from tests.workflows.test_move_races import first
from tests.workflows.test_moving import A, B, C, D, version
from tests.workflows.test_resuming_earlier import back, failed

__all__ = ["failed", "first", "version"]
TIMES = 4


def cancel(run):
    return operator_verbs.cancel(run.key, by="customer", reason="no")


def test_a_cancel_that_waited_for_the_verb_undoes_the_whole_order(sas, failed, first):
    assert first(partial(back, failed, "b"), partial(cancel, failed)) == ["Compensating", "Compensating"]
    sas.run()
    failed.assert_state("Cancelled")
    assert sas.undone == ["b", "a"]
    sas.assert_healthy()


def test_a_verb_that_waited_for_the_cancel_is_refused(sas, failed, first):
    one, other = first(partial(cancel, failed), partial(back, failed, "b"))
    assert (one, type(other)) == ("Compensating", Refused)
    sas.run()
    failed.assert_state("Cancelled")
    sas.assert_healthy()


def test_of_two_who_go_back_one_counts(sas, failed, first):
    one, other = first(partial(back, failed, "a"), partial(back, failed, "b"))
    assert (one, type(other)) == ("Compensating", Refused)
    sas.run()
    failed.assert_state("Processed")
    assert sas.undone == ["b", "a"]
    sas.assert_healthy()


@pytest.mark.parametrize("graph", [False, True])
def test_a_cancel_beside_the_last_undo_ends_the_run_whole(sas, version, graph):
    for _ in range(TIMES):
        version(1, *(plan(A, parallel(B, C), D) if graph else (A, B, D)))
        sas.fake("d", raises=PermanentFailure("no"))
        keys = testing.submit_many("moved", [{"n": n} for n in range(6)])
        sas.run()
        for key in keys:
            resuming.resume_from(key, "b", by="olga", reason="r")
        [(place, claims)] = testing.schedule()
        items = step_verbs.start(place, claims)
        cancels = [partial(operator_verbs.cancel, key, by="customer", reason="no") for key in keys]
        together(partial(kit.finish, place, items), partial(one_by_one, cancels))
        kit.healthy()
        testing.run_until_idle()
        assert set(Run.objects.values_list("process_state", flat=True)) == {"Cancelled"}
        kit.healthy()
        testing.clean()
        sas._fakes.clear()


UNDONE = "SELECT EXISTS (SELECT FROM supervision_stepevent WHERE direction = 'undo' AND to_state = 'Processed' AND position = {})"


@pytest.mark.parametrize("label", ["undo:b", "undo:a"])
def test_a_run_turns_round_once_though_the_answer_to_the_undo_was_lost(sas, failed, label):
    back(failed, "a")
    position = ("undo:a", "undo:b").index(label)
    with kit.another_connection(autocommit=True) as observe, by_a_way_that_can_be_cut(observe) as lose:
        way = lose(UNDONE.format(position))
        testing.run_until_idle()
    assert way.cuts == 1
    failed.assert_state("Processed")
    assert sas.undone == ["b", "a"]
    assert kit.fetch("SELECT max(attempt) FROM supervision_stepstate") == [(2,)]
    sas.assert_healthy()


POINTS = [
    (f"undo:{name}", at) for name in "ba" for at in ("agent.after_start", "agent.before_call", "undo.after_effect", "agent.after_finish")
]
POINTS += [(name, at) for name in "ac" for at in ("agent.after_start", "agent.after_effect", "agent.after_finish")]
POINTS += [("", "scheduler.after_claim"), ("", "supervisor.before_commit"), ("", "supervisor.after_commit")]


@pytest.mark.parametrize(("step", "at"), POINTS)
def test_a_process_that_dies_anywhere_on_the_way_back_and_forth_loses_nothing(sas, failed, step, at):
    back(failed, "a")
    sas.kill(step, at)
    sas.run()
    sas.advance("1h")
    sas._deaths.clear()  # a point that was not passed
    failed.assert_state("Processed")
    assert [name for name, times in ((name, sas.undone.count(name)) for name in "ba") if times not in (1, 2)] == []
    keys = {row.name: row.idempotency_key.rpartition(":")[2] for row in StepState.objects.filter(run__key=failed.key)}
    assert keys == {"a": "2", "b": "2", "c": "2", "d": "1"}
    sas.assert_healthy()


def test_a_verb_that_dies_changes_nothing(sas, failed, monkeypatch):
    before = kit.fetch("SELECT s::text FROM supervision_stepstate s ORDER BY direction, position")
    with monkeypatch.context() as patch:
        patch.setattr("supervision.store.run_verbs.save_all", lambda runs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            back(failed, "a")
    assert kit.fetch("SELECT s::text FROM supervision_stepstate s ORDER BY direction, position") == before
    assert failed.alerts == ["error"]


# ------------------------------------------------------------------------------------------------- killed processes

ORDERS, KILLS = 24, 6
UNHURT = 4  # orders that come after the last kill: all others may stop where a worker was killed, and not go back


@pytest.fixture
def going_back(sas):
    """The module of the workers, whose workflow is also known here."""
    return __import__("tests.workflows.going_back", fromlist=["NAME"])


@pytest.mark.nightly
def test_runs_that_go_back_survive_kills_and_do_each_step_once_for_each_key(sas, going_back, tmp_path):
    keys = testing.submit_many(going_back.NAME, [{"n": n} for n in range(ORDERS - UNHURT)])
    calls = tmp_path / "calls"
    calls.touch()
    gone_back, cancelled = set(), set()

    def operate():
        for key in Run.objects.filter(process_state="Error").values_list("key", flat=True):
            try:
                resuming.resume_from(key, "cut", by="olga", reason="too long")
            except Refused:  # a worker was killed while it joined: whether it did is not known
                operator_verbs.resubmit(key, by="olga", reason="looked at it: it did not", new_generation=True)
                continue
            gone_back.add(key)
            if keys.index(key) % 5 == 3:
                operator_verbs.cancel(key, by="customer", reason="no")
                cancelled.add(key)
        return Run.objects.filter(process_state__in=("Processed", "Cancelled")).count() == len(keys)

    def progress():
        return StepState.objects.filter(attempt__gt=0).count() + Run.objects.filter(finished_at__isnull=False).count()

    def busy(before):
        return operate() or progress() > before + 3

    for kill in range(KILLS + 1):
        if kill == KILLS:
            keys += testing.submit_many(going_back.NAME, [{"n": n} for n in range(UNHURT)])
        with two_workers("tests.workflows.going_back", calls):
            wait_until(partial(busy, progress()) if kill < KILLS else operate, within=100)
    lines = calls.read_text().split()
    assert gone_back
    assert {kit.state(key) for key in set(keys) - gone_back} <= {"Processed"}
    for key in gone_back:
        mine = [line.removeprefix(f"{key}:") for line in lines if line.startswith(f"{key}:")]
        assert kit.state(key) == ("Cancelled" if key in cancelled else "Processed")
        assert "join:do:1" in mine
        assert {"cut:undo:1", "plane:undo:1"} <= set(mine)
        assert mine.index("plane:undo:1") < mine.index("cut:undo:1")
        forward = [call for call in mine if call.endswith(":do:2")]
        assert set(forward) == (set() if key in cancelled else {"cut:do:2", "plane:do:2", "join:do:2"})
        assert ("drill:undo:1" in mine) == (key in cancelled)
        if forward:
            last = max(place for place, call in enumerate(mine) if ":undo:" in call)
            assert last < mine.index(forward[0])
    sas.assert_healthy()
