"""Definitions of plans that branch: large ones are checked quickly, and a wrong one is refused with the field named."""

from __future__ import annotations

import time

import pytest

from supervision import Step, Workflow, parallel, plan
from supervision.errors import DefinitionError
from tests.support import toy

assert toy.ALPHA


def a_step(name, **fields):
    return Step(name, agent="alpha", **fields)


def test_a_long_row_of_joins_is_checked_at_once():
    pairs = [parallel(a_step(f"a{n}"), a_step(f"b{n}")) for n in range(60)]
    began = time.process_time()
    Workflow("joins", plan(*pairs, a_step("last", reads=("a0", "b59"))))
    assert time.process_time() - began < 1


def test_a_branch_may_have_thousands_of_steps():
    branch = [a_step(f"s{n}") for n in range(3_000)]
    long = Workflow("long", plan(parallel(a_step("beside"), branch), a_step("last", reads=("s0",))))
    assert len(long.shape.before(long.last)) == 3_001


@pytest.mark.parametrize("field", ["after", "reads"])
def test_one_name_in_the_place_of_a_tuple_of_names_is_refused(field):
    with pytest.raises(DefinitionError, match=f"step 'c': {field} must be a tuple of names of steps, got 'ab'"):
        Workflow("text", (a_step("a"), a_step("b"), a_step("c", **{field: "ab"})))


def test_more_steps_than_the_store_can_number_are_refused():
    steps = tuple(a_step(f"s{n}") for n in range(32_768))
    with pytest.raises(DefinitionError, match="'wide' has 32,768 steps, at most 32,767 are kept"):
        Workflow("wide", steps)
    assert Workflow("wide", steps[1:]).last == 32_766


def test_a_step_that_comes_twice_after_another_waits_for_it_once():
    twice = Workflow("twice", (a_step("a"), a_step("b", after=()), a_step("c", after=("a", "a", "b"))))
    assert twice.shape.after == ((), (), (0, 1))
