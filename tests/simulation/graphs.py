"""Random graphs of up to twelve steps in random order of events: deliveries, crashes, refusals, cancels, operators, signals.

The world calls the verbs of the store as workers would, and makes the agents' calls itself. What it checks by itself: a step is
called only when all steps before it are done, no step is called again under another key while its effect may stand, no forward
call follows an undo call, a step is undone after all that were done later, and no key is used again after its undo. Operators
let runs go on from an earlier step, and move them to a newer version of the graph.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from typing import Any, NamedTuple

from supervision import OnExhausted, OnPermanent, RetryPolicy, Step, Workflow, testing
from supervision import workflow as definitions
from supervision.errors import ChangedMeanwhile, OutcomeUnknown, PermanentFailure, Refused, TransientFailure
from supervision.incidents import lifecycle
from supervision.models import Run, StepState
from supervision.operations import moving, operator_verbs, resuming
from supervision.operations.ending import abandoning
from supervision.postgres import db
from supervision.recovery import decisions, failures, supervisor
from supervision.states import Claim
from supervision.store import step_verbs
from supervision.store.records import Started
from supervision.store.step_verbs import Successor
from supervision.workflow import StepPosition
from tests.simulation import audit_at_once

NAME = "simulated-graph-{}"
HOUR = timedelta(hours=1)
MOST_STEPS = 12
DONE = {"Processed", "Skipped"}
_sweeps = count()
# The runs that a verb may be about. Read with the engine's prepared cursor, as below: Django's plans each statement anew.
_UNFINISHED = """
SELECT r.id, r.key, r.workflow, r.version, r.process_state, r.direction,
       (SELECT coalesce(jsonb_agg(jsonb_build_array(s.name, s.position) ORDER BY s.position), '[]') FROM supervision_stepstate s
         WHERE s.run_id = r.id AND s.direction = r.direction AND s.process_state = 'Error')
  FROM supervision_run r WHERE r.key = ANY (%(keys)s) AND r.process_state NOT IN ('Processed', 'Cancelled') ORDER BY r.id
"""
_ENDED = "SELECT id FROM supervision_run WHERE key = ANY (%(keys)s) AND process_state IN ('Processed', 'Cancelled')"
_BEGUN = """
SELECT name FROM supervision_stepstate WHERE run_id = %(run)s AND direction = 'do' AND process_state <> 'Pending' ORDER BY position
"""
# What a call's rules are checked against.
_CALL = """
SELECT (s.process_state = 'Processing' AND s.attempt = %(attempt)s), r.workflow, r.version, r.resume_from,
       (SELECT array_agg(d.process_state ORDER BY d.position) FROM supervision_stepstate d
         WHERE d.run_id = s.run_id AND d.direction = 'do')
  FROM supervision_stepstate s JOIN supervision_run r ON r.id = s.run_id
 WHERE s.run_id = %(run)s AND s.direction = %(direction)s AND s.position = %(position)s
"""


def random_workflow(rng: random.Random, name: str, older: Workflow | None = None) -> Workflow:
    """A graph: each step comes after up to three earlier ones, after none, or after the one before it.

    older: an earlier version, with whose first steps this one begins.
    """
    steps: list[Step] = [] if older is None else list(older.steps[: rng.randint(1, len(older.steps))])
    kept = len(steps)
    for position in range(kept, max(kept, rng.randint(2, MOST_STEPS))):
        names = [step.name for step in steps]
        after = rng.choice([
            None,
            tuple(rng.sample(names, min(len(names), rng.randint(1, 3)))),
            tuple(rng.sample(names, min(len(names), 1))),
            () if rng.random() < 0.3 else None,
        ])  # fmt: skip
        policy = RetryPolicy(
            threshold=2,
            first_delay=2 * HOUR,
            max_delay=4 * HOUR,
            long_wait=6 * HOUR,
            on_exhausted=rng.choice(list(OnExhausted)),
            on_permanent=rng.choice(list(OnPermanent)),
        )
        agent = rng.choice(("sim-a", "sim-b", "sim-c", "sim-letter"))
        label = f"s{position}" if older is None else f"n{position}"
        steps.append(Step(label, agent=agent, complete_within=2 * HOUR, retry=policy, after=after))
    return Workflow(name, tuple(steps), version=1 if older is None else older.version + 1, complete_within=timedelta(days=30))


def sweep() -> None:
    """One sweep. Only every tenth looks at the incidents, which read the rows of this simulation and change none of them."""
    look, lifecycle.look = lifecycle.look, lifecycle.look if next(_sweeps) % 10 == 0 else lifecycle.Look
    try:
        supervisor.sweep_once()
    finally:
        lifecycle.look = look


class Rules:
    """What a version of the graph demands. before: the steps that come before each place. later: all that come after it."""

    def __init__(self, workflow: Workflow) -> None:
        self.steps, shape = workflow.steps, workflow.shape
        count = len(self.steps)
        self.before = [{place - 1} if place else set() for place in range(count)] if shape is None else list(map(set, shape.after))
        self.later = {place: {q for q in range(count) if place in self._all_before(q)} for place in range(count)}

    def _all_before(self, place: int) -> set[int]:
        return set().union(*({p} | self._all_before(p) for p in self.before[place]))


class Unfinished(NamedTuple):
    """A run that has not ended, as an operator sees it. failed: name and position of each step in Error."""

    id: int
    key: str
    workflow: str
    version: int
    process_state: str
    direction: str
    failed: list[tuple[str, int]]


class World:
    """Some runs of several graphs, the messages on their way, the calls under way, and the effects outside.

    The graphs share the store: one sweep, one audit and one pass of the scheduler are about the runs of all of them.
    """

    def __init__(self, seed: int, graphs: int) -> None:
        self.rng = random.Random(seed)
        self.rules: dict[tuple[str, int], Rules] = {}
        self.keys: dict[str, list[str]] = {}
        for name in map(NAME.format, range(graphs)):
            first = random_workflow(self.rng, name)
            definitions._workflows[name, 1] = definitions._newest[name] = first
            definitions._workflows[name, 2] = newer = random_workflow(self.rng, name, first)
            self.rules |= {(name, workflow.version): Rules(workflow) for workflow in (first, newer)}
        for name in map(NAME.format, range(graphs)):
            self.keys[name] = testing.submit_many(name, [{"n": n} for n in range(self.rng.randint(1, 3))])
        self.all_keys = [key for keys in self.keys.values() for key in keys]
        self.messages: list[tuple[StepPosition, list[Claim]]] = []
        self.calls: list[tuple[StepPosition, Started]] = []
        self.effects: dict[tuple[int, int], set[str]] = defaultdict(set)
        self.undone: set[int] = set()  # runs of which an undo was called
        self.dead_keys: dict[int, set[str]] = defaultdict(set)  # of a run: the keys of effects that were undone
        self.given_up: set[tuple[int, int]] = set()  # undo steps that an operator skipped

    # ------------------------------------------------------------------------------------------------ events

    def act(self) -> None:
        """One random event: of one graph, or of the whole store."""
        graphs = len(self.keys)
        events = {
            self.schedule: 4,
            self.deliver: 10 * graphs,
            self.answer: 12 * graphs,
            self.lose: graphs,
            self.time_passes: 2,
            self.sweep: 2,
            self.verb: 2 * graphs,
        }
        self.rng.choices(list(events), list(events.values()))[0]()

    def schedule(self) -> None:
        self.messages += testing.schedule()

    def deliver(self, workflow: str = "") -> None:
        """A message reaches a worker. workflow: one of this graph."""
        if not self.messages:
            return
        place, claims = self._take(self.messages, workflow)
        if self.rng.random() < 0.1:
            self.messages.append((place, claims))  # it will come a second time
        for item in step_verbs.start(place, claims):
            self.calls.append((place, item))

    def answer(self, outcome: str = "", workflow: str = "") -> None:
        """The calls of one cohort are made and answered. workflow: of this graph."""
        if not self.calls:
            return
        place, first = self._take(self.calls, workflow)
        cohort = [first, *(item for where, item in self.calls if where == place)]
        self.calls = [(where, item) for where, item in self.calls if where != place]
        done, failed = [], []
        for item in cohort:
            how = outcome or self.rng.choices(("done", "refused", "transient", "unknown", "died"), (20, 2, 2, 2, 2))[0]
            if how in ("done", "unknown", "died"):
                self._effect(place, item)
            if how == "done":
                done.append((item, {"n": place.position}))
            elif how != "died":
                error = {"refused": PermanentFailure, "transient": TransientFailure, "unknown": OutcomeUnknown}[how](how)
                failed.append((item.claim, decisions.as_failure(error)))
        if failed:
            failures.fail(place, failed)
        if done:
            successor = self.rng.choice(list(Successor))
            handed = step_verbs.finish_at(place, successor)(done)
            if successor == Successor.STARTED:
                self.calls += [(place.following, item) for item in handed.started]
            elif handed.claims:
                self.messages.append((place.following, handed.claims))

    def lose(self) -> None:
        """A broker or a worker loses what it holds."""
        for held in (self.messages, self.calls):
            if held and self.rng.random() < 0.5:
                self._take(held)

    def time_passes(self) -> None:
        testing.make_due()

    def sweep(self) -> None:
        if late := [self.rng.choice(keys) for keys in self.keys.values() if self.rng.random() < 0.5]:
            testing.expire(*late)
        sweep()

    def verb(self) -> None:
        """An operator or a customer acts."""
        if unfinished := self._unfinished():
            self._act_on(self.rng.choice(unfinished))

    def _unfinished(self) -> list[Unfinished]:
        return [Unfinished(*row) for row in db.fetch(_UNFINISHED, {"keys": self.all_keys})]

    def _act_on(self, run: Unfinished, *, settle: bool = False) -> None:
        """One verb on this run. settle: one that leads on from Error."""
        try:
            if run.process_state == "Error" and (settle or self.rng.random() < 0.8):
                name, position = self.rng.choice(run.failed)
                if not settle and self.rng.random() < 0.4:
                    self._go_back(run)
                elif self.rng.random() < 0.6:
                    operator_verbs.resubmit(run.key, by="operator", reason="again", step=self.rng.choice((None, name)))
                else:
                    operator_verbs.skip(run.key, by="operator", reason="without", step=name)
                    if run.direction == "undo":
                        self.given_up.add((run.id, position))
            elif not settle and self.rng.random() < 0.8:
                self.rng.choice((self._go_back, self._move))(run)
            elif not settle:
                self.rng.choice((operator_verbs.cancel, operator_verbs.compensate, self._abandon))(run.key, by="customer", reason="no")
        except (Refused, ChangedMeanwhile):
            pass

    def _go_back(self, run: Unfinished) -> None:
        self._come_to_rest(run.workflow)
        begun = [name for (name,) in db.fetch(_BEGUN, {"run": run.id})]
        name = self.rng.choice(begun or [self.rules[run.workflow, run.version].steps[0].name])
        resuming.resume_from(run.key, name, by="operator", reason="anew")

    def _abandon(self, key: str, *, by: str, reason: str) -> None:
        abandoning.abandon(key, by=by, reason=reason)
        self.given_up.update(StepState.objects.filter(run__key=key, result={"left": True}).values_list("run_id", "position"))

    def _move(self, run: Unfinished) -> None:
        self._come_to_rest(run.workflow)
        moving.move(run.key, by="operator", reason="newer", version=2)

    def _come_to_rest(self, workflow: str) -> None:
        """Mostly, nothing of the graph runs when an operator changes a run."""
        if self.rng.random() < 0.8:
            while self._held(self.messages, workflow):
                self.deliver(workflow)
            while self._held(self.calls, workflow):
                self.answer(workflow=workflow)

    # ------------------------------------------------------------------------------------------------ effects

    def _effect(self, place: StepPosition, item: Started) -> None:
        """The service does what it is asked, and the rules of the graph are checked against what it knows.

        A call after its deadline, at which the claim ends, is not made.
        """
        run, position = item.run_id, place.position
        params = {"run": run, "direction": str(place.direction), "position": position, "attempt": item.attempt}
        [(in_time, workflow, version, resume_from, states)] = db.fetch(_CALL, params)
        if not in_time:
            return
        rules = self.rules[workflow, version]
        if place.direction == "undo":
            if resume_from is None:
                self.undone.add(run)
            left = {q for q in rules.later[position] if self.effects[run, q] and (run, q) not in self.given_up}
            left = {q for q in left if rules.steps[q].agent != "sim-letter"}
            assert not left, f"{position} is undone before {left}"
            self.dead_keys[run] |= self.effects[run, position]
            self.effects[run, position].clear()
            return
        assert resume_from is None, f"{position} is called while its run goes back"
        assert run not in self.undone, f"{position} is called although its run is being undone"
        waiting = {p for p in rules.before[position] if states[p] not in DONE}
        assert not waiting, f"{position} is called before {waiting}"
        assert item.idempotency_key not in self.dead_keys[run], f"{position} is done again under the key of an undone effect"
        self.effects[run, position].add(item.idempotency_key)

    def _held(self, held: list[Any], workflow: str) -> list[int]:
        return [number for number, (place, _) in enumerate(held) if workflow in ("", place.workflow)]

    def _take(self, held: list[Any], workflow: str = "") -> Any:
        return held.pop(self.rng.choice(self._held(held, workflow)))

    # ---------------------------------------------------------------------------------------------- the end

    def end(self) -> None:
        """Let everything come to its end, with operators who settle every Error."""
        for _ in range(400):
            if not self.messages and len(db.fetch(_ENDED, {"keys": self.all_keys})) == len(self.all_keys):
                return
            testing.make_due()
            self.schedule()
            if not self.messages and not self.calls:
                testing.expire()
            sweep()
            for run in self._unfinished():
                if run.process_state == "Error":
                    self._act_on(run, settle=True)
            while self.messages:
                self.deliver()
            while self.calls:
                self.answer("done")
        states = list(StepState.objects.values_list("run_id", "direction", "position", "process_state", "not_before", "waits_for"))
        raise AssertionError(f"did not end: {list(Run.objects.values_list('process_state'))} {states}")

    def check(self, *, end: bool = False) -> None:
        """The audit, and at the end what is left outside."""
        broken = audit_at_once.violations()
        assert broken == [], broken
        if not end:
            return
        for run in Run.objects.filter(key__in=self.all_keys):
            for step in StepState.objects.filter(run=run, direction="do"):
                left = self.effects[run.pk, step.position]
                assert len(left) <= 1, f"{step.name} was done under several keys: {left}"
                if run.process_state == "Processed" and step.process_state == "Processed":
                    assert len(left) == 1, f"{step.name} is Processed and was never done"
                if run.process_state == "Cancelled" and step.agent != "sim-letter" and (run.pk, step.position) not in self.given_up:
                    assert not left, f"{step.name} was not undone"


def play(seed: int, events: int, graphs: int = 1) -> Sequence[str]:
    """As many scenarios as graphs, side by side in one store; returns the states in which their runs end.

    events: for each graph, counting those of the whole store. Raises AssertionError where a rule is broken.
    """
    world = World(seed, graphs)
    for number in range(round(events * (25 * graphs + 8) / 33)):
        world.act()
        if number % (10 * graphs) == 9:
            world.check()
    world.end()
    world.check(end=True)
    return list(Run.objects.filter(key__in=world.all_keys).values_list("process_state", flat=True))
