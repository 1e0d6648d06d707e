"""The small model agrees with the engine: random walks of the model are replayed on the real store step by step."""

from __future__ import annotations

import os
import random

import pytest

from supervision.postgres import db
from tests.simulation import scenarios, small_model
from tests.simulation.small_model import Step
from tests.simulation.world import World, failure

WALKS = int(os.environ.get("SIMULATION_WALKS", 15))  # of each policy
STEPS = 45
SEED = int(os.environ.get("SIMULATION_SEED", 20_260_101))
RARE = {"lose": 0.2, "agent dies": 0.2, "supervisor dies": 0.2, "clock back": 0.3, "cancel": 0.15, "expire": 0.5}

_CLOCK_BACK = "UPDATE supervision_stepstate SET complete_by = now() + interval '1 hour' WHERE process_state = 'Processing'"


class Replay:
    """Replays the model's moves on a real order."""

    def __init__(self, policy: str) -> None:
        self.world = World()
        self.key = self.world.submit(scenarios.BY_POLICY[policy].name)
        self.world.consume(born=False)
        self.hands = [None, None]

    def do(self, what: tuple) -> None:
        """Make this move of the model on the real store."""
        name, *facts = what
        world = self.world
        match name:
            case "claim":
                world.claim(1)
            case "deliver":
                agent, message, again = facts
                begun = world.deliver(self._message(message), agent, keep=again)
                self.hands[agent] = begun[0] if begun else None
            case "call":
                world.call(self.hands[facts[0]])
            case "finish":
                agent, fused = facts
                before = set(map(id, world.works))
                world.answer([self.hands[agent]], go_on=fused)
                self.hands[agent] = next((work for work in world.works if id(work) not in before), None)
            case "fail":
                agent, kind = facts
                world.fail(self.hands[agent], failure(kind))
                self.hands[agent] = None
            case "settle":
                world.sweep()
            case "cancel":
                world.cancel(self.key)
            case "resubmit":
                world.resubmit(self.key)
            case "lose":
                world.messages.remove(self._message(facts[0]))
            case "agent dies":
                world.works.remove(self.hands[facts[0]])
                self.hands[facts[0]] = None
            case "expire":
                world.expire(self.key)
            case "clock back":
                db.run(_CLOCK_BACK)
                world.look()
            case "wait":
                world.make_due(self.key)

    def _message(self, wanted: tuple):
        direction, position, attempt = wanted
        return next(
            message
            for message in self.world.messages
            if (message.place.direction, message.place.position, message.claims[0].attempt) == (direction, position, attempt)
        )

    def order(self) -> tuple:
        """The real order's rows in the form of the model."""
        (order,) = self.world.orders
        undos = {row.position: _step(row) for row in order.undo}
        steps = tuple(_step(row) for row in order.do)
        return order.state, order.direction, steps, tuple(undos.get(position) for position in range(len(steps)))


def _step(row) -> Step:
    wait = "due" if row.due else "later" if row.released else "no"
    return _comparable(
        Step(
            row.state, row.attempt, row.generation, row.failures, row.effect, wait, row.started, row.overdue and row.state == "Processing"
        ),
        row.direction,
    )


def _comparable(step: Step, direction: str) -> Step:
    """Without meaningless values: the wait of a step that does not wait, and an undo step's own key."""
    return step._replace(wait=step.wait if step.state == "Pending" else "no", generation=step.generation if direction == "do" else 1)


def _order(world: small_model.World) -> tuple:
    steps = tuple(_comparable(step, "do") for step in world.steps)
    return world.state, world.direction, steps, tuple(undo and _comparable(undo, "undo") for undo in world.undos)


def _choose(dice: random.Random, moves: list) -> tuple:
    """Draw one of the moves; mishaps are drawn only now and then."""
    names = sorted({what[0] for what, _ in moves})
    name = dice.choices(names, [RARE.get(name, 1.0) for name in names])[0]
    return dice.choice([move for move in moves if move[0][0] == name])


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("policy", small_model.POLICIES)
@pytest.mark.parametrize("walk", range(WALKS))
def test_the_engine_does_what_the_model_does(simulated, policy, walk):
    dice = random.Random(f"{SEED} {policy} {walk}")
    replay, model, story = Replay(policy), small_model.new(), []

    for _ in range(STEPS):
        moves = sorted(small_model.nexts(model, policy), key=lambda move: str(move[0]))
        if not moves:
            break
        what, model = _choose(dice, moves)
        story.append(what)
        replay.do(what)
        if what[0] in ("finish", "settle"):  # the engine closes an undone run in its next transaction, unless the process dies before it
            model = next((after for _, after in small_model.close_undone(model)), model)
        assert replay.order() == _order(model), story
