"""Links are made after the fact, in batches: each event once and in order, also where a process is killed, late, or there twice."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.models import Count

from supervision import tasks, testing
from supervision.audit import chain, registry
from supervision.history import ends, linking
from supervision.models import ArchivedRun, HistoryBatch, HistoryLink, StepEvent
from supervision.operations import archive
from supervision.postgres import db
from supervision.runtime import failpoints
from tests.engine import kit
from tests.support.history import rewrite

RUNS = 12
NEWEST = (
    "UPDATE supervision_stepevent SET at = now() - interval '{}' WHERE run_id = {} AND seq = (SELECT max(seq) FROM supervision_stepevent)"
)


def found() -> list[str]:
    return [*chain.batches(), *chain.histories()]


def ended(count: int = RUNS) -> None:
    kit.waiting(count)
    kit.run_until_idle()


def unlinked() -> int:
    """How many events have no link; no event may have two."""
    covered = sum(len(bytes(link.marks)) // 4 for link in HistoryLink.objects.filter(kind="run"))
    return StepEvent.objects.count() - covered


def run_id(key: str) -> int:
    return int(StepEvent.objects.filter(run__key=key).values_list("run_id", flat=True)[0])


def test_a_process_that_is_killed_between_two_batches_leaves_whole_ones_and_another_goes_on(engine):
    ended()
    killed = kit.Process("link", "5", FAILPOINTS="history.before_commit=kill9@2", ALLOW_FAILPOINTS="1").ready()

    assert killed.begin().code() == -9

    assert [batch.links for batch in HistoryBatch.objects.all()] == [5]
    assert found() == []
    assert linking.turn(60.0) is False
    assert [batch.links for batch in HistoryBatch.objects.order_by("number")] == [5, 7]
    assert (unlinked(), found()) == (0, [])


def test_two_processes_that_link_at_once_link_each_event_once_in_one_chain(engine):
    ended(30)
    both = [kit.Process("link", "3").ready() for _ in range(2)]
    for process in both:
        process.begin()
    for process in both:
        process.answer()

    assert (unlinked(), found()) == (0, [])
    assert set(HistoryLink.objects.values("subject").annotate(n=Count("*")).values_list("n", flat=True)) == {1}


def test_two_threads_that_link_the_same_runs_make_one_link_for_each(engine):
    ended(5)
    runs = sorted(set(StepEvent.objects.values_list("run_id", flat=True)))

    failpoints.load({"FAILPOINTS": "history.before_commit=sleep=1", "ALLOW_FAILPOINTS": "1"})  # the other one comes meanwhile

    first, second = testing.at_once(*[lambda: linking.link(runs=runs)] * 2)

    assert [batch.links for batch in (first, second) if batch is not None] == [5]
    assert (unlinked(), found()) == (0, [])


def test_an_event_that_commits_late_waits_for_the_next_link_with_all_that_follow_it(engine):
    """The second of two transactions commits first, as events of two branches may."""
    run = run_id(kit.waiting()[0])
    last = StepEvent.objects.filter(run_id=run).count()
    row = "INSERT INTO supervision_stepevent (run_id, seq, to_state, actor) VALUES (%s, %s, 'Pending', 'x')"
    written, commit = threading.Event(), threading.Event()

    def late() -> None:
        with transaction.atomic():
            kit.fetch(row, [run, last + 1])
            written.set()
            commit.wait(30)
        connection.close()

    thread = threading.Thread(target=late)
    thread.start()
    try:
        assert written.wait(30)
        kit.fetch(row, [run, last + 2])
        assert linking.link(runs=[run])
        assert HistoryLink.objects.get().through == last
        assert linking.link(runs=[run]) is None
    finally:
        commit.set()
        thread.join()
    assert linking.link(runs=[run])

    assert sorted(HistoryLink.objects.values_list("through", flat=True)) == [last, last + 2]
    assert (unlinked(), found()) == (0, [])


def test_a_run_is_linked_when_it_ends_or_is_quiet_or_has_waited_long(engine):
    key = kit.waiting()[0]
    run = run_id(key)
    linking.turn()
    assert not HistoryLink.objects.exists()  # it has just written

    linking.forget()
    rewrite(NEWEST.format("2 minutes", run))
    linking.turn()
    quiet = HistoryLink.objects.get().through

    kit.run_until_idle()
    linking.forget()
    linking.turn()
    assert HistoryLink.objects.filter(through__gt=quiet).count() == 1
    assert unlinked() == 0


def test_an_event_waits_ten_minutes_at_most_however_busy_its_run_is(engine):
    run = run_id(kit.waiting()[0])
    last = StepEvent.objects.filter(run_id=run).count()
    rewrite(NEWEST.format("11 minutes", run))
    for seq in (last + 1, last + 2):
        kit.fetch("INSERT INTO supervision_stepevent (run_id, seq, to_state, actor) VALUES (%s, %s, 'Pending', 'x')", [run, seq])

    linking.turn()

    assert HistoryLink.objects.get().through == last + 2


def test_the_sweep_links_and_what_cannot_be_linked_keeps_it_from_nothing(engine, monkeypatch):
    ended(1)
    monkeypatch.setattr(tasks.leader_lease, "lead", lambda role: object())
    monkeypatch.setattr(tasks.delivery_worker, "wake", lambda: None)  # it would start a thread
    tasks.sweep()
    assert unlinked() == 0

    linking.forget()
    monkeypatch.setattr(linking, "_ended", lambda: 1 / 0)
    tasks.sweep()


def test_a_turn_ends_after_its_time_and_the_next_ones_go_on(engine, monkeypatch):
    ended(6)
    monkeypatch.setattr(linking, "PAGE", 2)

    turns = 1
    while linking.turn(0.0):
        turns += 1

    assert turns > 3
    assert (unlinked(), found()) == (0, [])
    made = HistoryBatch.objects.count()
    assert linking.turn() is False
    assert HistoryBatch.objects.count() == made


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE supervision_historylink SET digest = sha256('x')",
        "UPDATE supervision_historybatch SET head = sha256('x')",
        "DELETE FROM supervision_historylink",
        "DELETE FROM supervision_historybatch",
    ],
)
def test_the_chain_is_append_only_itself(engine, statement):
    ended(1)
    linking.turn()

    with pytest.raises(DatabaseError, match="is append-only"), transaction.atomic():
        kit.fetch(statement)


def test_old_batches_go_oldest_first_when_all_that_they_cover_is_gone(engine, tuned):
    tuned(RECORD_DAYS=100)
    for _ in range(4):
        ended(1)
        linking.forget()
        linking.turn()
    runs = list(HistoryLink.objects.order_by("batch").values_list("subject", flat=True))
    kit.fetch("UPDATE supervision_run SET finished_at = now() - interval '1 year'")
    assert sum(moved.runs for moved in archive.batches(timedelta(days=1))) == 4
    ends.delete_old()
    assert HistoryBatch.objects.count() == 4  # young
    rewrite("UPDATE supervision_historybatch SET made_at = now() - interval '101 days'")
    ArchivedRun.objects.filter(run_id__in=[runs[0], runs[2], runs[3]]).delete()

    ends.delete_old()

    assert sorted(HistoryBatch.objects.values_list("number", flat=True)) == [2, 3, 4]
    assert sorted(HistoryLink.objects.values_list("batch", flat=True)) == [2, 3, 4]
    ArchivedRun.objects.all().delete()
    ends.delete_old()
    assert list(HistoryBatch.objects.values_list("number", flat=True)) == [4]  # the next one follows it
    ended(1)
    linking.forget()
    linking.turn()
    assert not [line for line in chain.batches() if "follow" in line]
    assert HistoryBatch.objects.latest("number").number == 5


def test_the_audit_says_when_no_process_links_any_more(engine):
    ended(2)
    linking.turn()
    late = next(check for check in registry.checks() if check.invariant == "what happens comes under the chain within an hour")
    ended(1)
    assert not list(registry.violations_of(late))
    rewrite("UPDATE supervision_stepevent SET at = at - interval '2 hours'")
    assert not list(registry.violations_of(late))  # batches are made

    rewrite("UPDATE supervision_historybatch SET made_at = now() - interval '2 hours'")

    assert len(list(registry.violations_of(late))) == 1


def plans_of_events(statement: str, params: dict[str, object]) -> list[str]:
    """How the events are found: the condition of each index, or the kind of scan where there is none."""
    found: list[str] = []

    def walk(node: dict[str, Any]) -> None:
        if node.get("Relation Name") == "supervision_stepevent":
            found.append(node.get("Index Cond") or node.get("Recheck Cond") or node["Node Type"])
        for child in node.get("Plans", []):
            walk(child)

    walk(db.fetch(f"EXPLAIN (FORMAT JSON) {statement}", params)[0][0][0]["Plan"])
    return found


def test_events_are_found_by_their_run_also_while_the_database_knows_nothing_of_its_tables(engine):
    """A plan that reads all events once was 100 times slower than this one, beside 200,000 events that were not analysed yet."""
    with transaction.atomic():
        # What autovacuum has found of earlier tests' rows: one run with 3,000 events lets the planner read all events.
        kit.fetch("DELETE FROM pg_statistic WHERE starelid IN ('supervision_run'::regclass, 'supervision_stepevent'::regclass)")
        kit.fetch(
            "INSERT INTO supervision_run (id, workflow, key, process_state, finished_at) OVERRIDING SYSTEM VALUE"
            " SELECT n, 'toy', 'k' || n, 'Processed', now() FROM generate_series(1, 5000) n"
        )
        kit.fetch(
            "INSERT INTO supervision_stepevent (run_id, seq, position, direction, attempt, from_state, to_state, actor)"
            " SELECT n, seq, 0, 'do', 1, 'Pending', 'Processing', 'a' FROM generate_series(1, 5000) n, generate_series(1, 10) seq"
        )

        ended = plans_of_events(linking._ENDED, {"since": "-infinity", "size": linking.PAGE})
        linked = plans_of_events(linking._LINK, {"runs": list(range(1, linking.SIZE + 1)), "entries": []})

        assert [condition for condition in (*ended, *linked) if "run_id =" not in condition] == []
        assert (len(ended), len(linked)) == (2, 1)
        transaction.set_rollback(True)
