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
from typing import Any

from supervision import OnExhausted, OnPermanent, RetryPolicy, Step, Workflow, testing
from supervision import workflow as definitions
from supervision.audit import registry
from supervision.errors import ChangedMeanwhile, OutcomeUnknown, PermanentFailure, Refused, TransientFailure
from supervision.models import Run, StepState
from supervision.operations import moving, operator_verbs, resuming
from supervision.recovery import decisions, failures, supervisor
from supervision.states import Claim
from supervision.store import step_verbs
from supervision.store.records import Started
from supervision.store.step_verbs import Successor
from supervision.workflow import StepPosition

NAME = "simulated-graph"
HOUR = timedelta(hours=1)
MOST_STEPS = 12
FINAL = {"Processed", "Cancelled"}
DONE = {"Processed", "Skipped"}


def random_workflow(rng: random.Random, older: Workflow | None = None) -> Workflow:
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
        name = f"s{position}" if older is None else f"n{position}"
        steps.append(Step(name, agent=agent, complete_within=2 * HOUR, retry=policy, after=after))
    return Workflow(NAME, tuple(steps), version=1 if older is None else older.version + 1, complete_within=timedelta(days=30))


class Rules:
    """What a version of the graph demands. before: the steps that come before each place. later: all that come after it."""

    def __init__(self, workflow: Workflow) -> None:
        self.steps, shape = workflow.steps, workflow.shape
        count = len(self.steps)
        self.before = [{place - 1} if place else set() for place in range(count)] if shape is None else list(map(set, shape.after))
        self.later = {place: {q for q in range(count) if place in self._all_before(q)} for place in range(count)}

    def _all_before(self, place: int) -> set[int]:
        return set().union(*({p} | self._all_before(p) for p in self.before[place]))


class World:
    """Some runs of one graph, the messages on their way, the calls under way, and the effects outside."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.workflow = random_workflow(self.rng)
        definitions._workflows[NAME, 1] = definitions._newest[NAME] = self.workflow
        newer = random_workflow(self.rng, self.workflow)
        definitions._workflows[NAME, 2] = newer
        self.rules = {workflow.version: Rules(workflow) for workflow in (self.workflow, newer)}
        self.keys = testing.submit_many(NAME, [{"n": n} for n in range(self.rng.randint(1, 3))])
        self.messages: list[tuple[StepPosition, list[Claim]]] = []
        self.calls: list[tuple[StepPosition, Started]] = []
        self.effects: dict[tuple[int, int], set[str]] = defaultdict(set)
        self.undone: set[int] = set()  # runs of which an undo was called
        self.dead_keys: dict[int, set[str]] = defaultdict(set)  # of a run: the keys of effects that were undone
        self.given_up: set[tuple[int, int]] = set()  # undo steps that an operator skipped

    # ------------------------------------------------------------------------------------------------ events

    def act(self) -> None:
        """One random event."""
        events = {
            self.schedule: 4,
            self.deliver: 10,
            self.answer: 12,
            self.lose: 1,
            self.time_passes: 2,
            self.sweep: 2,
            self.verb: 2,
        }
        self.rng.choices(list(events), list(events.values()))[0]()

    def schedule(self) -> None:
        self.messages += testing.schedule()

    def deliver(self) -> None:
        if not self.messages:
            return
        place, claims = self._take(self.messages)
        if self.rng.random() < 0.1:
            self.messages.append((place, claims))  # it will come a second time
        for item in step_verbs.start(place, claims):
            self.calls.append((place, item))

    def answer(self, outcome: str = "") -> None:
        """The calls of one cohort are made and answered."""
        if not self.calls:
            return
        place, first = self._take(self.calls)
        cohort = [first, *(item for where, item in self.calls if where == place)]
        self.calls = [(where, item) for where, item in self.calls if where != place]
        done, failed = [], []
        for item in cohort:
            how = outcome or self.rng.choices(("done", "refused", "transient", "unknown", "died"), (20, 2, 2, 2, 2))[0]
            if how in ("done", "unknown", "died") and self._in_time(place, item):
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
        if self.rng.random() < 0.5:
            testing.expire(self.rng.choice(self.keys))
        supervisor.sweep_once()

    def verb(self, *, settle: bool = False) -> None:
        """An operator or a customer acts. settle: only on what is in Error."""
        unfinished = list(Run.objects.filter(key__in=self.keys).exclude(process_state__in=FINAL).order_by("pk"))
        if not unfinished:
            return
        run = self.rng.choice(unfinished)
        failed = list(StepState.objects.filter(run=run, direction=run.direction, process_state="Error").values_list("name", "position"))
        try:
            if run.process_state == "Error" and (settle or self.rng.random() < 0.8):
                name, position = self.rng.choice(failed)
                if not settle and self.rng.random() < 0.4:
                    self._go_back(run)
                elif self.rng.random() < 0.6:
                    operator_verbs.resubmit(run.key, by="operator", reason="again", step=self.rng.choice((None, name)))
                else:
                    operator_verbs.skip(run.key, by="operator", reason="without", step=name)
                    if run.direction == "undo":
                        self.given_up.add((run.pk, position))
            elif not settle and self.rng.random() < 0.8:
                self.rng.choice((self._go_back, self._move))(run)
            elif not settle:
                self.rng.choice((operator_verbs.cancel, operator_verbs.compensate))(run.key, by="customer", reason="no")
        except (Refused, ChangedMeanwhile):
            pass

    def _go_back(self, run: Run) -> None:
        self._come_to_rest()
        begun = StepState.objects.filter(run=run, direction="do").exclude(process_state="Pending").values_list("name", flat=True)
        name = self.rng.choice(list(begun) or [self.rules[run.version].steps[0].name])
        resuming.resume_from(run.key, name, by="operator", reason="anew")

    def _move(self, run: Run) -> None:
        self._come_to_rest()
        moving.move(run.key, by="operator", reason="newer", version=2)

    def _come_to_rest(self) -> None:
        """Mostly, nothing runs when an operator changes a run."""
        if self.rng.random() < 0.8:
            while self.messages:
                self.deliver()
            while self.calls:
                self.answer()

    # ------------------------------------------------------------------------------------------------ effects

    def _in_time(self, place: StepPosition, item: Started) -> bool:
        """Whether the call is made: not after its deadline, at which the claim ends."""
        row = StepState.objects.get(run_id=item.run_id, direction=place.direction, position=place.position)
        return row.process_state == "Processing" and row.attempt == item.attempt

    def _effect(self, place: StepPosition, item: Started) -> None:
        """The service does what it is asked, and the rules of the graph are checked against what it knows."""
        run, position = item.run_id, place.position
        row = Run.objects.get(pk=run)
        rules = self.rules[row.version]
        if place.direction == "undo":
            if row.resume_from is None:
                self.undone.add(run)
            left = {q for q in rules.later[position] if self.effects[run, q] and (run, q) not in self.given_up}
            left = {q for q in left if rules.steps[q].agent != "sim-letter"}
            assert not left, f"{position} is undone before {left}"
            self.dead_keys[run] |= self.effects[run, position]
            self.effects[run, position].clear()
            return
        assert row.resume_from is None, f"{position} is called while its run goes back"
        assert run not in self.undone, f"{position} is called although its run is being undone"
        states = dict(StepState.objects.filter(run_id=run, direction="do").values_list("position", "process_state"))
        waiting = {p for p in rules.before[position] if states[p] not in DONE}
        assert not waiting, f"{position} is called before {waiting}"
        assert item.idempotency_key not in self.dead_keys[run], f"{position} is done again under the key of an undone effect"
        self.effects[run, position].add(item.idempotency_key)

    def _take(self, held: list[Any]) -> Any:
        return held.pop(self.rng.randrange(len(held)))

    # ---------------------------------------------------------------------------------------------- the end

    def end(self) -> None:
        """Let everything come to its end, with operators who settle every Error."""
        for _ in range(400):
            ended = Run.objects.filter(key__in=self.keys, process_state__in=FINAL).count()
            if ended == len(self.keys) and not self.messages:
                return
            testing.make_due()
            self.schedule()
            if not self.messages and not self.calls:
                testing.expire()
            supervisor.sweep_once()
            self.verb(settle=True)
            while self.messages:
                self.deliver()
            while self.calls:
                self.answer("done")
        states = list(StepState.objects.values_list("run_id", "direction", "position", "process_state", "not_before", "waits_for"))
        raise AssertionError(f"did not end: {list(Run.objects.values_list('process_state'))} {states}")

    def check(self, *, end: bool = False) -> None:
        """The audit, and at the end what is left outside."""
        checks = [check for check in registry.checks() if "orders_" not in check.violations and not check.find]
        broken = [str(violation) for check in checks for violation in registry.violations_of(check)]
        assert broken == [], broken
        if not end:
            return
        for run in Run.objects.filter(key__in=self.keys):
            for step in StepState.objects.filter(run=run, direction="do"):
                left = self.effects[run.pk, step.position]
                assert len(left) <= 1, f"{step.name} was done under several keys: {left}"
                if run.process_state == "Processed" and step.process_state == "Processed":
                    assert len(left) == 1, f"{step.name} is Processed and was never done"
                if run.process_state == "Cancelled" and step.agent != "sim-letter" and (run.pk, step.position) not in self.given_up:
                    assert not left, f"{step.name} was not undone"


def play(seed: int, events: int) -> Sequence[str]:
    """One scenario from its seed; returns the states in which its runs end. Raises AssertionError where a rule is broken."""
    world = World(seed)
    for number in range(events):
        world.act()
        if number % 10 == 9:
            world.check()
    world.end()
    world.check(end=True)
    return list(Run.objects.filter(key__in=world.keys).values_list("process_state", flat=True))
