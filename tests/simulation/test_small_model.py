"""All reachable states of the small model, breadth first: each satisfies the invariants, and from each the order can end.

`test_conformance` replays random walks of the model on the real store, so that what is proved of the model holds for the
engine.
"""

from __future__ import annotations

import time
from array import array
from collections import deque

import pytest

from tests.simulation import small_model
from tests.simulation.small_model import World


class Broken(AssertionError):
    """A forbidden state."""


def look(world: World) -> None:
    """Check the invariants of one state."""
    rows = list(world.rows())
    if sum(row.state == "Processing" for _, row in rows) > 1:
        raise Broken("two live attempts", world)
    for position, (step, keys) in enumerate(zip(world.steps, world.remote, strict=True)):
        there = [generation for generation, state in enumerate(keys, 1) if state == "there"]
        if len(there) > 1:
            raise Broken("an effect came twice", world)
        if there and step.effect == "none" and not (step.state == "Processing" and step.started):
            raise Broken("an effect that the order does not know of", world)
        if step.state == "Processed" and step.effect != "done":
            raise Broken("Processed without its effect", world)
        if world.state == "Processed" and step.state == "Processed" and there != [step.generation]:
            raise Broken("Processed, but its effect is not there", world)
        if world.state == "Cancelled" and there:
            raise Broken("Cancelled, but an effect is left", world)
        undo = world.undos[position]
        if undo is not None and undo.state in ("Processing", "Processed", "Error"):
            if step.state == "Processing":
                raise Broken("undone while it is still being done", world)
            if any(later is not None and later.state != "Processed" for later in world.undos[position + 1 :]):
                raise Broken("undone in the wrong order", world)
    done = [step.state in ("Processed", "Skipped") for step in world.steps]
    if world.direction == "do" and done != sorted(done, reverse=True):
        raise Broken("done in the wrong order", world)
    if world.state == "Processed" and (not all(done) or world.direction != "do"):
        raise Broken("Processed before every step is", world)
    if world.final and any(row.state in ("Pending", "Processing") for _, row in rows):
        raise Broken("final with an open step", world)
    if (world.state == "Error") != any(row.state == "Error" and at[0] == world.direction for at, row in rows):
        raise Broken("a run in Error without a step in Error, or the other way round", world)


def order(world: World) -> tuple:
    """The order's own rows, without messages, agents and the remote."""
    return world.state, world.direction, world.steps, world.undos


def _too_late(world: World, what: tuple) -> bool:
    """Whether this is an answer of an earlier attempt, or of one whose deadline has passed."""
    if what[0] not in ("finish", "fail"):
        return False
    held = world.agents[what[1]]
    row = world.row((held.direction, held.position))
    return row is None or row.attempt != held.attempt or row.overdue or row.state != "Processing"


def walk(first: World, policy: str, most: int) -> tuple[int, int]:
    """Check every reachable state and that none is a dead end; returns the number of states and of moves."""
    first = small_model.canonical(first)
    numbers = {first: 0}
    ends = []
    sources, targets = array("l"), array("l")
    todo = deque([first])
    while todo:
        world = todo.popleft()
        number = numbers[world]
        look(world)
        if world.final:
            ends.append(number)
        for what, raw in small_model.nexts(world, policy):
            after = small_model.canonical(raw)
            if order(after) != order(world) and (world.final or _too_late(world, what)):
                raise Broken("a final order moved on, or an old attempt moved it", what, world, after)
            known = numbers.get(after)
            if known is None:
                known = numbers[after] = len(numbers)
                todo.append(after)
                assert known < most, f"more than {most} states"
            sources.append(number)
            targets.append(known)
    stuck = _cannot_reach(len(numbers), ends, sources, targets)
    if stuck:
        raise Broken("no way to an end", next(world for world, number in numbers.items() if number in stuck))
    return len(numbers), len(sources)


def _cannot_reach(count: int, ends: list[int], sources: array, targets: array) -> set[int]:
    before: list[list[int]] = [[] for _ in range(count)]
    for source, target in zip(sources, targets, strict=True):
        before[target].append(source)
    reached = bytearray(count)
    todo = list(ends)
    for number in ends:
        reached[number] = 1
    while todo:
        for source in before[todo.pop()]:
            if not reached[source]:
                reached[source] = 1
                todo.append(source)
    return {number for number in range(count) if not reached[number]}


# Agents, supervisors, duplicates. Two agents allow zombies, two supervisors a race, a duplicate a second delivery. The full model
# contains the small ones, so every run of the tests walks one of them for each policy.
SMALL = [("error", 1, 1, 0), ("compensate", 2, 1, 0), ("skip", 1, 1, 1)]
FULL = (2, 2, 1)
MOST_STATES = 2_000_000


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("policy", "agents", "supervisors", "duplicates"), SMALL)
def test_every_state_of_the_small_model_is_sound_and_can_end(policy, agents, supervisors, duplicates):
    began = time.perf_counter()

    states, moves = walk(small_model.new(2, agents, supervisors, duplicates), policy, MOST_STATES)

    print(f"{policy}: {states} states, {moves} moves, {time.perf_counter() - began:.1f} s")
    assert states > 1000


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("policy", small_model.POLICIES)
def test_every_state_with_two_agents_two_supervisors_and_a_duplicate_is_sound_and_can_end(policy):
    began = time.perf_counter()

    states, moves = walk(small_model.new(2, *FULL), policy, MOST_STATES)

    print(f"{policy}: {states} states, {moves} moves, {time.perf_counter() - began:.1f} s")


def _finish_without_its_fence(monkeypatch):
    monkeypatch.setattr(small_model, "_stands", lambda row, held: row.state == "Processing" and not row.overdue)


def _finish_after_its_deadline(monkeypatch):
    monkeypatch.setattr(small_model, "_stands", lambda row, held: row.state == "Processing" and row.attempt == held.attempt)


def _an_expired_attempt_counts_as_without_effect(monkeypatch):
    settle = small_model.settle

    def forgetful(world, at, kind, policy):
        after = settle(world, at, kind, policy)
        return after.put(at, after.row(at)._replace(effect=world.row(at).effect)) if kind == "expired" else after

    monkeypatch.setattr(small_model, "settle", forgetful)


def _undone_in_forward_order(monkeypatch):
    monkeypatch.setattr(small_model, "reversed", iter, raising=False)


def _a_cancel_does_not_wait_for_what_has_begun(monkeypatch):
    undo = small_model.undo
    monkeypatch.setattr(
        small_model, "undo", lambda world: undo(world._replace(steps=tuple(row._replace(started=False) for row in world.steps)))
    )


def _an_order_without_a_sweep(monkeypatch):
    monkeypatch.setattr(small_model, "sweep", lambda world, policy: iter(()))


@pytest.mark.parametrize(
    "mutate",
    [
        _finish_without_its_fence,
        _finish_after_its_deadline,
        _an_expired_attempt_counts_as_without_effect,
        _undone_in_forward_order,
        _a_cancel_does_not_wait_for_what_has_begun,
        _an_order_without_a_sweep,
    ],
)
def test_the_walk_finds_out_a_model_that_is_wrong(monkeypatch, mutate):
    mutate(monkeypatch)

    with pytest.raises(Broken):
        walk(small_model.new(2, 1, 1, 0), "error", MOST_STATES)
