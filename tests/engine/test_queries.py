"""The queries behind pages and metrics show what the rows say."""

from __future__ import annotations

import pytest

from supervision.insight import queries
from supervision.intake import consuming
from supervision.operations import operator_verbs
from supervision.recovery import supervisor
from supervision.testing import expire, make_due, run_of, run_until_idle, submit, submit_many
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


def test_steps_come_in_the_order_they_run():
    key = kit.undoing(2, "toy")
    run_until_idle()

    steps = queries.steps_of([run_of(key).pk])[run_of(key).pk]

    assert [(row.direction, row.position) for row in steps] == [("do", 0), ("do", 1), ("do", 2), ("undo", 1), ("undo", 0)]


def test_the_steps_of_several_orders_come_in_one_query(django_assert_num_queries):
    ids = [run_of(kit.claimed()[0]).pk for _ in range(3)]

    with django_assert_num_queries(1):
        found = queries.steps_of(ids)

    assert [len(found[run_id]) for run_id in ids] == [3, 3, 3]


def test_a_timeline_tells_transitions_in_order_with_stray_answers_where_they_came():
    key, place, items = kit.started("toy")
    expire(key)
    kit.finish(place, items)
    supervisor.sweep_once()
    make_due(key)
    run_until_idle()

    entries = queries.timeline(run_of(key).pk)

    assert [entry.seq for entry in entries if entry.kind == "event"] == list(range(1, len(kit.events(key)) + 1))
    strays = [n for n, entry in enumerate(entries) if entry.kind == "stray"]
    assert len(strays) == 1
    assert entries[strays[0] + 1].to_state == "Pending"
    assert (entries[strays[0]].step, entries[strays[0]].attempt) == ("alpha-step", 1)
    assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)


def test_events_after_a_number_are_only_the_news():
    key, *_ = kit.claimed()

    assert [event.seq for event in queries.events_after(run_of(key).pk, 1)] == [2]


def test_counts_cover_every_unfinished_state():
    kit.in_error(0)
    kit.claimed()
    submit_many("toy", [{"n": 1}, {"n": 2}])
    consuming.consume_batch(born=False)
    done = submit("toy-plain", {"n": 1})
    kit.fetch("UPDATE supervision_submission SET consumed_at = now() WHERE public_id = %s", [done])

    assert queries.counts_by_state() == {"Pending": 2, "Processing": 1, "Error": 1, "Compensating": 0}


def test_overdue_counts_what_is_late_and_not_yet_recovered():
    key, *_ = kit.started()
    kit.started()
    expire(key)

    assert queries.overdue_count() == 1
    supervisor.sweep_once()
    assert queries.overdue_count() == 0


def test_open_alerts_are_those_nobody_has_seen():
    kit.in_error(0)
    kit.in_error(1)
    newest, oldest = queries.open_alerts(10)

    operator_verbs.acknowledge([newest.pk], by="olga")

    assert list(queries.open_alerts(10)) == [oldest]


def test_failing_steps_counts_orders_by_the_step_they_stand_at():
    kit.in_error(0)
    kit.in_error(1)
    kit.in_error(1)

    assert queries.failing_steps() == {"beta-step": 2, "alpha-step": 1}


def test_a_run_that_goes_back_stands_at_its_undo_and_not_at_the_step_that_had_failed_before():
    key = kit.undoing(1)
    pk = run_of(key).pk

    def stands_at() -> tuple[str, str, str]:
        found = queries.named_steps([pk])[pk]
        return found.name, found.direction, found.process_state

    assert stands_at() == ("alpha-step", "undo", "Pending")

    toy.ALPHA.on_compensate = kit.raising(kit.PermanentFailure("it is locked"))
    run_until_idle()
    assert stands_at() == ("alpha-step", "undo", "Error")
    assert queries.failing_steps() == {"alpha-step": 1}

    toy.ALPHA.on_compensate = None
    operator_verbs.resubmit(key, by="olga", reason="unlocked")
    run_until_idle()
    assert stands_at() == ("beta-step", "do", "Error"), "once it is cancelled, where it had stopped"
