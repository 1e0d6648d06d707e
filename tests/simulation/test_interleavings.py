"""All pairs and some triples of verbs that can meet at one order, interleaved statement by statement on real SQL.

For every state of a step, the test runs each pair of verbs that are possible then, in an interleaving drawn from a seed.
Afterwards the invariants hold and the order still ends. `SIMULATION_INTERLEAVINGS` is the number of draws for each pair.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from itertools import combinations, combinations_with_replacement
from typing import Any

import pytest

from supervision import testing
from supervision.errors import Refused
from supervision.models import StrayReply
from supervision.operations import operator_verbs
from supervision.recovery import decisions, failures, supervisor
from supervision.states import Claim
from supervision.store import claiming, step_verbs
from tests.simulation.interleaving import Stage, stage
from tests.simulation.invariants import Broken
from tests.simulation.world import Message, Work, World, failure
from tests.support.soak import sized

ROUNDS = int(os.environ.get("SIMULATION_INTERLEAVINGS", 1))
SEED = int(os.environ.get("SIMULATION_SEED", 20_260_101))
HEAL_EVERY = 4  # every fourth story goes on until its orders have ended


class Scene:
    """One order in a given state, with its message and its attempt."""

    def __init__(self, workflow: str = "sim-error") -> None:
        self.world = World()
        self.key = self.world.submit(workflow)
        self.world.consume(born=False)
        self.message: Message | None = None
        self.work: Work | None = None

    def claimed(self) -> Scene:
        """The next step is claimed; its message is on the way."""
        self.world.claim()
        (self.message,) = self.world.messages
        return self

    def begun(self) -> Scene:
        """An agent has begun the step."""
        self.claimed()
        assert self.message is not None
        (self.work,) = self.world.deliver(self.message, keep=True)
        return self

    def called(self) -> Scene:
        """The remote has had its effect."""
        self.begun()
        assert self.work is not None
        self.world.call(self.work)
        return self

    def done(self, steps: int) -> Scene:
        """This many steps are done, and the next is claimed."""
        self.claimed()
        for _ in range(steps):
            (work,) = self.world.deliver(self.world.messages[-1])
            self.world.call(work)
            self.world.answer([work])
        (self.message,) = self.world.messages
        return self

    def failed(self) -> Scene:
        """The current step fails for good."""
        if self.work is None:
            self.begun()
        assert self.work is not None
        self.world.fail(self.work, failure("permanent"))
        self.world.messages.clear()
        self.message = None
        return self

    def expired(self) -> Scene:
        """The step's deadline has passed."""
        self.world.expire(self.key)
        return self

    def cancelled(self) -> Scene:
        """The customer has cancelled; earlier messages are still in the broker."""
        self.world.cancel(self.key)
        return self

    def undoing(self) -> Scene:
        """Two steps are done and the order is cancelled."""
        self.done(2).cancelled()
        self.world.messages.clear()
        self.message = None
        return self

    def begin_here(self, *, call: bool = True) -> Scene:
        """An agent begins the step whose message is on the way."""
        assert self.message is not None
        (self.work,) = self.world.deliver(self.message, keep=True)
        if call:
            self.world.call(self.work)
        return self


PLACES: dict[str, Callable[[], Scene]] = {
    "due": Scene,
    "claimed": lambda: Scene().claimed(),
    "claimed, overdue": lambda: Scene().claimed().expired(),
    "begun": lambda: Scene().begun(),
    "begun, policy undoes": lambda: Scene("sim-compensate").begun(),
    "begun, policy skips": lambda: Scene("sim-skip").begun(),
    "called": lambda: Scene().called(),
    "called, overdue": lambda: Scene().called().expired(),
    "second step begun, policy undoes": lambda: Scene("sim-compensate").done(1).begin_here(call=False),
    "second step begun, policy skips": lambda: Scene("sim-skip").done(1).begin_here(call=False),
    "second step overdue, policy undoes": lambda: Scene("sim-compensate").done(1).begin_here().expired(),
    "last step called": lambda: Scene("sim-compensate").done(2).begin_here(),
    "called, cancelled": lambda: Scene().called().cancelled(),
    "called, cancelled, overdue": lambda: Scene().called().cancelled().expired(),
    "in Error": lambda: Scene().failed(),
    "undo due": lambda: Scene("sim-compensate").undoing(),
    "undo called": lambda: Scene("sim-compensate").undoing().called(),
    "undo overdue": lambda: Scene("sim-compensate").undoing().called().expired(),
    "undo in Error": lambda: Scene("sim-compensate").undoing().failed(),
}
# The suite plays at one place of each kind: each direction, before and after a step's begin, its call, its deadline and its failure,
# and under each policy once. `./run chaos soak` plays at all.
SHORT = {
    "due",
    "claimed, overdue",
    "begun, policy skips",
    "called",
    "second step overdue, policy undoes",
    "last step called",
    "called, cancelled, overdue",
    "in Error",
    "undo called",
    "undo in Error",
}
EVERY = pytest.mark.parametrize("place", [place for place in PLACES if place in SHORT or sized(0, 1)])


def _refusing(verb: Callable[[], Any]) -> Callable[[], Any]:
    def act() -> Any:
        try:
            return verb()
        except Refused:
            return "refused"

    return act


def verbs(scene: Scene) -> dict[str, Callable[[], Any]]:
    """The verbs that are possible at this order now."""
    work, message, key = scene.work, scene.message, scene.key
    acts: dict[str, Callable[[], Any]] = {
        "claim": lambda: claiming.claim(5),
        "sweep": supervisor.sweep_once,
        "cancel": _refusing(lambda: operator_verbs.cancel(key, by="customer", reason="r")),
        "undo": _refusing(lambda: operator_verbs.compensate(key, by="olga", reason="r")),
    }
    failed = scene.world._failed(key)
    if failed is not None:
        acts["resubmit"] = _refusing(lambda: operator_verbs.resubmit(key, by="olga", reason="r", attempt=failed.attempt))
        acts["skip"] = _refusing(lambda: operator_verbs.skip(key, by="otto", reason="r", attempt=failed.attempt))
        return acts
    if message is not None:
        acts["start"] = lambda: step_verbs.start(message.place, message.claims)
        acts["expire"] = lambda: testing.expire(key)
    if work is not None:
        kind = "unknown" if isinstance(work.answer, dict) else "permanent"
        acts["fail"] = lambda: failures.fail(work.place, [(work.item.claim, decisions.as_failure(failure(kind)))])
        if isinstance(work.answer, dict):
            acts["finish"] = lambda: step_verbs.finish_at(work.place)([(work.item, {})])
            if work.place.direction == "do" and not work.place.is_last:
                acts["finish and go on"] = lambda: step_verbs.finish_at(work.place, step_verbs.Successor.STARTED)([(work.item, {})])
    return acts


def play(on: Stage, place: str, names: tuple[str, ...], seed: str, *, heal: bool) -> None:
    """One story: bring an order to this state, interleave these verbs, check the invariants."""
    scene = PLACES[place]()
    acts = verbs(scene)
    answers = on.play([acts[name] for name in names], random.Random(seed))
    try:
        _judge(scene, names, answers)
        if heal:
            scene.world.heal()
    except AssertionError as error:
        raise Broken(f"{place}: {', '.join(names)} played as {on.played}: {answers}") from error
    # A deadlock loses no order: PostgreSQL ends it after a second and the statement is repeated. But no process should wait.
    assert not on.deadlocks, f"deadlock: {place}: {', '.join(names)} played as {on.played}"


def _judge(scene: Scene, names: tuple[str, ...], answers: list[Any]) -> None:
    errors = [answer for answer in answers if isinstance(answer, Exception)]
    assert not errors, errors
    world = scene.world
    before, failed = dict(world.rows), world._failed(scene.key)
    acted = [name for name, answer in zip(names, answers, strict=True) if name in ("resubmit", "skip") and answer != "refused"]
    assert len(acted) <= 1, f"two operators acted on what both saw: {acted}"
    if acted == ["skip"] and failed is not None and failed.direction == "undo":
        world.watch.waived.add((scene.key, failed.position))
    world.watch.look()
    claims: list[tuple[str, int, Claim]] = []
    begun: list[Any] = []
    for name, answer in zip(names, answers, strict=True):
        if name == "claim":
            world.messages += [Message(place, items) for place, items in answer.items()]
            claims += [(place.direction, place.position, claim) for place, items in answer.items() for claim in items]
        elif name == "fail":
            world.works.clear()  # the agent has reported, so its work is over
        elif name == "start":
            begun += [("start", item) for item in answer]
        elif name.startswith("finish"):
            assert scene.work is not None
            world.works.clear()
            following = scene.work.place.following
            claims += [(following.direction, following.position, claim) for claim in answer.claims]
            world.works += [Work(following, item, 1) for item in answer.started]
            if answer.claims and not answer.started:
                world.messages.append(Message(following, answer.claims))
    assert len(claims) == len(set(claims)), f"one claim given twice: {claims}"
    assert len(begun) <= 1, f"one attempt begun twice: {begun}"
    for at, row in before.items():
        now = world.rows[at]
        assert now.failures + now.dispatches <= row.failures + row.dispatches + 1, f"one attempt counted twice: {row} {now}"
    if begun:
        assert scene.message is not None
        world.works += [Work(scene.message.place, item, 1) for _, item in begun]
    world.failures = {at: row.failures for at, row in world.rows.items()}
    world.dispatches = {at: row.dispatches for at, row in world.rows.items()}
    world.strays = StrayReply.objects.count()


@pytest.mark.timeout(1200)
@EVERY
def test_any_two_who_meet_at_an_order_leave_it_sound(simulated, place):
    stories = [(pair, n) for pair in combinations_with_replacement(sorted(verbs(PLACES[place]())), 2) for n in range(ROUNDS)]
    _play_all(place, stories)


@pytest.mark.timeout(1200)
@EVERY
def test_any_three_who_meet_at_an_order_leave_it_sound(simulated, place):
    threes = list(combinations(sorted(verbs(PLACES[place]())), 3))
    dice = random.Random(f"{SEED} {place}")
    _play_all(place, [(three, n) for three in dice.sample(threes, min(len(threes), sized(2, 4) * ROUNDS)) for n in range(ROUNDS)])


def _play_all(place: str, stories: list[tuple[tuple[str, ...], int]]) -> None:
    began = time.perf_counter()
    with stage() as on:
        for number, (names, n) in enumerate(stories):
            play(on, place, names, f"{SEED} {place} {names} {n}", heal=number % HEAL_EVERY == 0)
        print(f"{place}: {len(stories)} interleavings, {on.waits} lock waits, {len(stories) / (time.perf_counter() - began):.0f} a second")
