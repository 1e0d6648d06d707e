"""The state tables: every state can be reached, final states have no exit, and the models have the same states."""

from __future__ import annotations

import pytest

from supervision.models import labels
from supervision.states import (
    FINAL_RUN_STATES,
    FINAL_STEP_STATES,
    RUN_MOVES,
    STEP_MOVES,
    Direction,
    Effect,
    ProcessState,
    RunState,
)


@pytest.mark.parametrize(("moves", "states"), [(RUN_MOVES, RunState), (STEP_MOVES, ProcessState)], ids=["run", "step"])
def test_every_state_is_reached_from_the_beginning(moves, states):
    reached = {None}

    while new := {move.target for move in moves if move.source in reached} - reached:
        reached |= new

    assert reached - {None} == set(states)


def test_nothing_leaves_a_final_run_state():
    assert [move for move in RUN_MOVES if move.source in FINAL_RUN_STATES] == []


def test_nothing_leaves_a_final_step_state():
    assert [move for move in STEP_MOVES if move.source in FINAL_STEP_STATES] == []


def test_every_unfinished_run_state_leads_to_both_ends():
    for start in set(RunState) - FINAL_RUN_STATES - {RunState.COMPENSATING}:
        reached = {start}
        while new := {move.target for move in RUN_MOVES if move.source in reached} - reached:
            reached |= new

        assert reached >= FINAL_RUN_STATES, start


@pytest.mark.parametrize("moves", [RUN_MOVES, STEP_MOVES], ids=["run", "step"])
def test_a_transition_is_listed_once_and_says_who_and_why(moves):
    assert len({(move.source, move.target) for move in moves}) == len(moves)
    assert all(move.mover and move.why for move in moves)


@pytest.mark.parametrize(
    ("labels", "enum"),
    [
        (labels.RUN_LABELS, RunState),
        (labels.STEP_LABELS, ProcessState),
        (labels.DIRECTION_LABELS, Direction),
        (labels.EFFECT_LABELS, Effect),
    ],
)
def test_every_state_has_a_label(labels, enum):
    assert set(labels) == set(enum)
    assert all(str(label) for label in labels.values())
