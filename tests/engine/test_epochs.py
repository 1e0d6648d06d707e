"""A restored database begins a new epoch: attempt numbers jump, old claims are void, and agents look before they call."""

from __future__ import annotations

import json

import pytest
from django.core.management import CommandError, call_command
from django.db import connection

from supervision.errors import PermanentFailure
from supervision.intake import consuming
from supervision.models import Epoch, Run
from supervision.operations import operator_verbs
from supervision.recovery import supervisor
from supervision.states import ATTEMPTS_PER_EPOCH
from supervision.store import epochs
from supervision.testing import run_until_idle, submit
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine", "first_epoch")


def put_back() -> None:
    """Make the rows look as after a promotion: written on an earlier timeline."""
    kit.fetch("UPDATE supervision_epoch SET timeline = timeline - 1")


def begin_anew() -> epochs.Epoch:
    """A process sees that the database was promoted; returns the epoch that it begins."""
    put_back()
    return epochs.look()


def test_an_epoch_lasts_while_the_database_is_the_same():
    submit("toy-plain", {"n": 1})

    assert (epochs.look().number, epochs.look().number) == (1, 1)
    assert Epoch.objects.get().first_run_id == 0


def test_one_epoch_begins_however_many_processes_see_the_promotion():
    kit.waiting()
    before = Run.objects.get().pk
    put_back()

    seen = kit.at_once(*[epochs.look] * 4)

    assert {epoch.number for epoch in seen} == {2}
    assert Epoch.objects.count() == 2
    newest = Epoch.objects.get(number=2)
    assert "timeline" in newest.reason
    assert newest.first_run_id > before + epochs.NUMBERS_PER_EPOCH
    kit.ran("toy-plain", n=2)
    assert Run.objects.order_by("-pk")[0].pk > newest.first_run_id


def test_a_worker_of_the_lost_time_holds_no_good_claim_and_its_failure_is_not_counted():
    key, place, items = kit.started()
    begin_anew()
    handed = kit.finish(place, items)

    step = kit.step(key, "alpha-step")
    assert handed.stale == [items[0].claim]
    assert (step.process_state, step.failure_count, step.effect) == ("Pending", 0, "unknown")
    assert kit.healthy()
    assert kit.idle_state(key) == "Processed"
    assert [request.attempt > ATTEMPTS_PER_EPOCH for request in toy.ALPHA.performed] == [True]
    assert kit.healthy()


def test_a_step_that_runs_while_its_order_is_undone_is_abandoned_by_a_new_epoch_and_not_run_again():
    key, _place, _items = kit.started("toy-undo")
    operator_verbs.cancel(key, by="ada", reason="changed my mind")
    assert (kit.step(key, "alpha-step").process_state, kit.state(key)) == ("Processing", "Compensating")
    begin_anew()
    supervisor.sweep_once()
    run_until_idle()

    assert toy.ALPHA.performed == []
    assert (kit.step(key, "alpha-step").process_state, kit.state(key)) == ("Cancelled", "Cancelled")
    assert len(toy.ALPHA.undone) == 1
    assert kit.healthy()


def test_the_first_attempts_of_older_orders_look_before_they_act_and_those_of_newer_ones_do_not():
    kit.waiting()
    begin_anew()
    run_until_idle()
    kit.ran("toy-plain", n=2)

    for agent in (toy.ALPHA, toy.BETA, toy.GAMMA):
        assert [request.look_first for request in agent.performed] == [True, False]
    assert kit.healthy()


def test_an_order_that_is_consumed_after_the_epoch_began_looks_first_when_it_was_accepted_before():
    submit("toy-plain", {"n": 1})
    begin_anew()
    kit.ran("toy-plain", n=2)

    looked = {request.payload["n"]: request.look_first for request in toy.ALPHA.performed}
    assert looked == {1: True, 2: False}
    assert kit.healthy()


@pytest.mark.parametrize("consumed", [True, False])
def test_cancelling_an_older_order_undoes_what_may_have_been_done_in_the_lost_time(consumed: bool):
    key = submit("toy-undo", {"n": 1})
    if consumed:
        consuming.consume_batch(10, born=False)
    begin_anew()

    operator_verbs.cancel(key, by="olga", reason="the customer called")
    assert kit.idle_state(key) == "Cancelled"
    assert [len(agent.undone) for agent in (toy.ALPHA, toy.BETA, toy.GAMMA)] == [1, 1, 1]
    assert all(request.look_first for request in toy.ALPHA.undone)
    assert kit.healthy()


def test_an_operators_resubmission_keeps_the_key_because_the_effect_is_not_known_any_more():
    key = kit.in_error()
    begin_anew()

    operator_verbs.resubmit(key, by="olga", reason="again")
    assert kit.idle_state(key) == "Processed"
    assert toy.ALPHA.performed[-1].idempotency_key.endswith(":1")
    assert toy.ALPHA.performed[-1].look_first


def test_a_new_connection_sees_that_it_leads_to_another_life_of_the_database():
    submit("toy-plain", {"n": 1})
    with kit.another_connection() as other:
        other.execute("UPDATE supervision_epoch SET timeline = timeline - 1")
        other.commit()
    epochs._current = None  # a process that has just started knows no epoch
    connection.close()

    connection.ensure_connection()

    assert Epoch.objects.count() == 2


def test_the_sweep_sees_it_too():
    submit("toy-plain", {"n": 1})
    put_back()

    kit.supervisor.sweep_once()

    assert Epoch.objects.count() == 2


def test_an_epoch_of_an_empty_store_moves_no_number():
    assert begin_anew().first_run_id == 0


def test_an_epoch_is_declared_with_a_reason(capsys: pytest.CaptureFixture[str]):
    submit("toy-plain", {"n": 1})
    with pytest.raises(CommandError, match="--reason"):
        call_command("epoch", "--begin")

    call_command("epoch", "--begin", "--reason", "restored the tables of Monday", "--json")

    newest, first = json.loads(capsys.readouterr().out)
    assert (newest["number"], newest["reason"], first["number"]) == (2, "restored the tables of Monday", 1)
    call_command("epoch")
    assert "restored the tables of Monday" in capsys.readouterr().out


def test_transactional_effects_went_back_with_their_steps(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(epochs, "_transactional", lambda: ["alpha"])
    (key,) = kit.waiting()
    begin_anew()

    assert [kit.step(key, f"{name}-step").effect for name in ("alpha", "beta")] == ["none", "unknown"]


def test_a_late_answer_to_a_run_that_the_failover_lost_breaks_no_invariant():
    kit.waiting()
    lost = Run.objects.get().pk + 7
    first = begin_anew().first_run_id
    kit.fetch(
        "INSERT INTO supervision_strayreply (run_id, direction, position, attempt, outcome, detail, actor)"
        " VALUES (%s, 'do', 0, 1, 'done', '', 'agents')",
        [lost],
    )

    assert kit.healthy()

    kit.fetch("UPDATE supervision_strayreply SET run_id = %s", [first + 7])
    with pytest.raises(AssertionError, match="nothing belongs to a run"):
        kit.healthy()


def test_a_step_that_was_refused_before_its_order_was_undone_has_no_effect_after_a_new_epoch():
    key = kit.undoing(2)
    toy.BETA.on_compensate = kit.raising(PermanentFailure("gone"))
    run_until_idle()
    assert kit.state(key) == "Error"
    epochs.begin("a failover", declared=True)
    toy.BETA.on_compensate = None
    operator_verbs.resubmit(key, by="olga", reason="it is back")
    run_until_idle()
    assert kit.state(key) == "Cancelled"
    assert kit.step(key, "gamma-step").effect == "none"
    assert kit.healthy()
