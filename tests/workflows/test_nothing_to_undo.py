"""Undo steps of agents that have no undo: a wait, and an agent whose release with an undo is gone."""

from __future__ import annotations

import pytest

from supervision.agent import CHILD, WAIT, Agent, ChildAgent, WaitAgent, get_agent, registered
from supervision.models import StepState
from supervision.operations import operator_verbs
from tests.engine import kit
from tests.support import toy
from tests.workflows.conftest import ALPHA, BETA, paid


def undos(key):
    return dict(StepState.objects.filter(run__key=key, direction="undo").values_list("name", "process_state"))


def dying_wait():
    """A run whose wait is being begun by an agents process that dies."""
    key, _place, _items = kit.at_step(1, "waiting")
    return key


def cancel(key):
    operator_verbs.cancel(key, by="olga", reason="no longer wanted")


def test_a_process_whose_workflows_have_no_waits_cancels_an_order_that_waits(transactional_db, sas, flow, monkeypatch):
    flow(ALPHA, paid(), BETA)
    key = dying_wait()
    with monkeypatch.context() as other:
        other.delitem(registered, WAIT)
        cancel(key)
    kit.expire_and_sweep(key)

    assert kit.idle_state(key) == "Cancelled"
    assert undos(key) == {"alpha-step": "Processed"}


def test_an_undo_of_a_wait_that_such_a_process_wrote_once_ends(transactional_db, sas, flow, monkeypatch):
    flow(ALPHA, paid(), BETA)
    key = dying_wait()
    with monkeypatch.context() as other:
        other.setattr(WaitAgent, "undoable", True)
        cancel(key)
    kit.expire_and_sweep(key)

    assert kit.idle_state(key) == "Cancelled"
    assert undos(key) == {"alpha-step": "Processed", "paid": "Processed"}


@pytest.mark.parametrize("transactional", [False, True])
def test_an_undo_whose_agent_has_none_any_more_stops_at_once_and_says_why(transactional_db, sas, flow, monkeypatch, transactional):
    flow(ALPHA, BETA)
    key = kit.undoing(1, "waiting")
    if transactional:
        monkeypatch.setattr(get_agent("alpha"), "transactional", True, raising=False)
    else:
        monkeypatch.setattr(toy.ToyAgent, "compensate", Agent.compensate)

    assert kit.idle_state(key) == "Error"
    undo = StepState.objects.get(run__key=key, direction="undo", name="alpha-step")
    assert (undo.process_state, undo.attempt) == ("Error", 1)
    assert "the agent alpha has no undo" in undo.last_error


def test_the_agents_of_the_engine_are_known_without_a_workflow_that_uses_them(monkeypatch):
    for name in (WAIT, CHILD):
        monkeypatch.delitem(registered, name, raising=False)

    assert [type(get_agent(name)) for name in (WAIT, CHILD)] == [WaitAgent, ChildAgent]
