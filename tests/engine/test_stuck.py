"""Runs whose next step was never made due: the supervisor finds them and lets them go on."""

from __future__ import annotations

import pytest

from supervision.intake import consuming
from supervision.recovery import supervisor
from supervision.store import run_verbs
from supervision.testing import submit
from tests.engine import kit
from tests.support import toy
from tests.support.history import rewrite

pytestmark = pytest.mark.usefixtures("engine")


@pytest.fixture(autouse=True)
def _from_the_beginning(monkeypatch):
    monkeypatch.setattr(supervisor, "_window_after", ("", "-infinity", 0), raising=False)


def loses_its_successor() -> str:
    """A run whose first step is done and whose second step was never made due."""
    key, place, items = kit.started("toy")
    kit.finish(place, items)
    rewrite(
        "DELETE FROM supervision_stepevent WHERE position = 1 AND run_id = %s",
        [items[0].run_id],
    )
    kit.fetch(
        "UPDATE supervision_stepstate SET process_state = 'Pending', attempt = 0, seq = seq - 1, locked_by = NULL, complete_by = NULL"
        " WHERE position = 1 AND run_id = %s",
        [items[0].run_id],
    )
    return key


def all_done() -> str:
    """A run whose steps are all done and that was never closed."""
    key, *_ = kit.at_step(2, "toy")
    kit.fetch(
        "UPDATE supervision_stepstate SET process_state = 'Processed', effect = 'done', finished_at = now(), locked_by = NULL,"
        " complete_by = NULL, seq = seq + 1 WHERE process_state = 'Processing'"
    )
    kit.fetch(
        "INSERT INTO supervision_stepevent (run_id, seq, position, direction, attempt, from_state, to_state, actor)"
        " SELECT id, (SELECT max(seq) + 1 FROM supervision_stepevent WHERE run_id = id), 2, 'do', 1, 'Processing', 'Processed', 'me'"
        " FROM supervision_run WHERE key = %s",
        [key],
    )
    return key


def test_a_run_whose_steps_are_all_done_is_closed_and_its_workflow_told():
    key = all_done()

    supervisor.sweep_once()

    assert kit.state(key) == "Processed"
    assert toy.TOLD["processed"] == [key]
    assert kit.events(key)[-1].why == "the order stood still: the change that should have followed was lost"
    assert kit.healthy()


def test_a_run_whose_next_step_nobody_made_due_goes_on():
    key = loses_its_successor()

    supervisor.sweep_once()
    assert kit.idle_state(key) == "Processed"
    assert kit.healthy()


def test_a_run_that_never_became_due_goes_on():
    (key,) = kit.waiting(workflow="toy")
    kit.fetch("UPDATE supervision_stepstate SET not_before = NULL, turn_at = NULL")

    supervisor.sweep_once()
    assert kit.idle_state(key) == "Processed"


def test_what_runs_waits_failed_or_has_its_session_before_it_is_left_alone():
    running, *_ = kit.started("toy")
    failed = kit.in_error()
    waiting = submit("toy", {"n": 1})
    first, second = (submit("toy", {"n": n, "session_key": "s"}, client="shop") for n in (1, 2))
    consuming.consume_batch(born=False)
    before = {key: (kit.state(key), kit.states(key), len(kit.events(key))) for key in (running, failed, waiting, first, second)}

    runs = [row[0] for row in kit.fetch("SELECT id FROM supervision_run ORDER BY id")]
    with kit.transaction.atomic():
        assert run_verbs.go_on_with_stuck(runs, "me") == 0
    supervisor.sweep_once()

    assert before == {key: (kit.state(key), kit.states(key), len(kit.events(key))) for key in before}


def test_every_run_is_looked_at_window_by_window(monkeypatch):
    monkeypatch.setattr(supervisor, "WINDOW", 3, raising=False)
    keys = kit.waiting(10, "toy")
    kit.fetch("UPDATE supervision_stepstate SET not_before = NULL, turn_at = NULL")

    for _ in range(4):
        supervisor.sweep_once()

    assert kit.fetch("SELECT count(*) FROM supervision_stepstate WHERE position = 0 AND not_before IS NULL") == [(0,)]
    assert kit.idle_states(keys) == {"Processed"}


def test_two_supervisors_at_once_go_on_once():
    keys = [all_done() for _ in range(5)]

    kit.at_once(supervisor.sweep_once, supervisor.sweep_once)

    assert {kit.state(key) for key in keys} == {"Processed"}
    assert sorted(toy.TOLD["processed"]) == sorted(keys)
    assert kit.seqs_are_gapless()
