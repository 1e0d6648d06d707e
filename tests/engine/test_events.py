"""Random histories: for any events in any order, the invariants hold after every step and every order can end.

A seeded walk (the seed is in the test's id) of submissions, claims, deliveries (duplicated, delayed, dropped), answers
(late, repeated, wrong), expiries, sweeps and operators. Nothing is mocked and nothing waits: time passes by moving deadlines.
"""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

from supervision.errors import OutcomeUnknown, PermanentFailure, Postpone, Refused, TransientFailure
from supervision.execution import runner
from supervision.intake import consuming
from supervision.models import Run, StepEvent, StepState
from supervision.operations import operator_verbs
from supervision.postgres import db
from supervision.recovery import failures, supervisor
from supervision.states import FINAL_RUN_STATES, RUN_MOVES, STEP_MOVES
from supervision.store import claiming, step_verbs
from supervision.testing import expire, make_due, run_until_idle, submit
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")

WORKFLOWS = ("toy", "toy-plain", "toy-skip", "toy-wait", "toy-undo")
STEPS = {(move.source, move.target) for move in STEP_MOVES}
RUNS = {(move.source, move.target) for move in RUN_MOVES}


class History:
    """One walk. It keeps all its messages and started attempts, so that any of them may come again."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.keys: list[str] = []
        self.messages: list[Any] = []
        self.started: list[Any] = []
        self.seen: dict[int, int] = {}
        self.attempts: dict[tuple[int, str, int], int] = {}
        self.final: dict[int, str] = {}
        self.trail: list[str] = []

    # ------------------------------------------------------------------------------------------ the events

    def submit(self) -> None:
        if len(self.keys) < 5:
            self.keys.append(submit(self.dice.choice(WORKFLOWS), {"n": 1, "priority": self.dice.randint(-1, 1)}))

    def consume(self) -> None:
        report = consuming.consume_batch(born=self.dice.random() < 0.5)
        self.messages += report.born.items()

    def claim(self) -> None:
        self.messages += claiming.claim(self.dice.randint(1, 3)).items()

    def deliver(self) -> None:
        for place, claims in self.dice.sample(self.messages, min(2, len(self.messages))):
            self.started += [(place, item) for item in step_verbs.start(place, claims)]

    def deliver_the_newest(self) -> None:
        for place, claims in self.messages[-2:]:
            self.started += [(place, item) for item in step_verbs.start(place, claims)]

    def lose(self) -> None:
        if self.messages:
            self.messages.pop(self.dice.randrange(len(self.messages)))

    def finish(self) -> None:
        for place, item in self._some_started():
            go_on = self.dice.random() < 0.3 and place.direction == "do" and not place.is_last
            successor = step_verbs.Successor.STARTED if go_on else step_verbs.Successor.CLAIMED
            handed = step_verbs.finish_at(place, successor)([(item, {"n": 1})])
            if handed.started:
                self.started += [(place.following, item) for item in handed.started]
            elif handed.claims:
                self.messages.append((place.following, handed.claims))

    def fail(self) -> None:
        errors = [TransientFailure("busy"), OutcomeUnknown("reset"), PermanentFailure("no"), Postpone("closed"), KeyError("bug")]
        for place, item in self._some_started():
            failures.fail(place, [(item.claim, failures.as_failure(self.dice.choice(errors)))])

    def _some_started(self) -> list[Any]:
        newest = self.started[-3:]
        return [self.dice.choice(newest if self.dice.random() < 0.7 else self.started)] if self.started else []

    def expire(self) -> None:
        if self.keys:
            expire(self.dice.choice(self.keys))

    def sweep(self) -> None:
        supervisor.sweep_once()

    def time_passes(self) -> None:
        make_due()

    def order_overdue(self) -> None:
        if self.keys and self.dice.random() < 0.3:
            kit.fetch("UPDATE supervision_run SET complete_by = now() - interval '1 s' WHERE key = %s", [self.dice.choice(self.keys)])

    def operate(self) -> None:
        if not self.keys:
            return
        verb = self.dice.choice(
            [operator_verbs.resubmit, operator_verbs.resubmit, operator_verbs.skip, operator_verbs.compensate, operator_verbs.cancel]
        )
        try:
            verb(self.dice.choice(self.keys), by="olga", reason="r")
        except (Refused, operator_verbs.UnknownRun):
            self.trail[-1] += " (refused)"

    def fix(self) -> None:
        for run in Run.objects.filter(process_state="Error"):
            operator_verbs.resubmit(run.key, by="olga", reason="fixed", new_generation=self.dice.random() < 0.3)

    # ----------------------------------------------------------------------------------------- the invariants

    def step(self) -> None:
        names = ["submit", "consume", "claim", "claim", "deliver", "deliver_the_newest", "deliver_the_newest", "lose", "finish", "finish"]
        names += ["finish", "fail", "expire", "sweep", "time_passes", "order_overdue", "operate", "fix"]
        name = self.dice.choice(names)
        self.trail.append(name)
        getattr(self, name)()
        self.check()

    def check(self) -> None:
        for event in StepEvent.objects.order_by("run_id", "seq"):
            last = self.seen.get(event.run_id, 0)
            if event.seq <= last:
                continue
            assert event.seq == last + 1, self.story(event.run_id)
            self.seen[event.run_id] = event.seq
            moves = RUNS if event.position is None else STEPS
            assert (event.from_state, event.to_state) in moves, self.story(event.run_id)
        for row in StepState.objects.all():
            place = (row.run_id, row.direction, row.position)
            assert row.attempt >= self.attempts.get(place, 0), self.story(row.run_id)
            self.attempts[place] = row.attempt
        for run in Run.objects.all():
            assert self.final.get(run.pk, run.process_state) == run.process_state, self.story(run.pk)
            if run.process_state in FINAL_RUN_STATES:
                self.final[run.pk] = run.process_state
        if len(self.trail) % 10 == 0:
            assert kit.healthy()

    def story(self, run_id: int) -> str:
        rows = StepEvent.objects.filter(run_id=run_id).order_by("seq")
        return "\n".join([" ".join(self.trail[-40:]), *(f"{e} {e.direction}{e.position} {e.from_state} {e.why}" for e in rows)])

    def end(self) -> None:
        """From any state: when the services work and operators resubmit, every order ends."""
        for _ in range(8):
            kit.expire_and_sweep()
            self.fix()
            make_due()
            run_until_idle()
        self.check()
        assert set(Run.objects.values_list("process_state", flat=True)) <= FINAL_RUN_STATES
        assert kit.healthy()


@pytest.mark.parametrize("seed", range(30))
def test_every_invariant_holds_through_a_random_history_and_every_order_ends(seed):
    history = History(seed)

    for _ in range(90):
        history.step()

    history.end()


@pytest.mark.parametrize("seed", range(3))
def test_every_invariant_holds_when_everybody_works_at_once(seed):
    """Workers, supervisors, customers and operators run in separate threads; the agents fail now and then."""
    dice = random.Random(seed)
    lucky = [random.Random(seed * 10 + n) for n in range(3)]
    errors = [TransientFailure("busy"), OutcomeUnknown("reset"), PermanentFailure("no")]

    def behave(chance: random.Random) -> Any:
        def act(request: Any) -> None:
            if chance.random() < 0.2:
                raise chance.choice(errors)

        return act

    for agent, chance in zip((toy.ALPHA, toy.BETA, toy.GAMMA), lucky, strict=True):
        agent.on_perform = agent.on_compensate = behave(chance)
    keys = [submit(dice.choice(WORKFLOWS), {"n": n}) for n in range(60)]

    def worker() -> None:
        for _ in range(25):
            consuming.consume_batch(10)
            kit.go(list(claiming.claim(5).items()))
            db.guarded(make_due)

    def supervise() -> None:
        for n in range(25):
            if n % 3 == 0:
                db.guarded(expire)
            supervisor.sweep_once()

    def meddle() -> None:
        mine = random.Random(seed)
        for _ in range(60):
            verb = mine.choice([operator_verbs.resubmit, operator_verbs.skip, operator_verbs.compensate, operator_verbs.cancel])
            with contextlib.suppress(Refused, operator_verbs.UnknownRun):
                verb(mine.choice(keys), by="olga", reason="r")

    answers = kit.at_once(worker, worker, supervise, supervise, meddle)
    runner.process.finish_up(5)

    assert answers == [None] * 5
    for event in StepEvent.objects.all():
        assert (event.from_state, event.to_state) in (RUNS if event.position is None else STEPS)
    assert kit.healthy()
    for agent in (toy.ALPHA, toy.BETA, toy.GAMMA):
        agent.on_perform = agent.on_compensate = None
    for _ in range(6):
        kit.expire_and_sweep()
        for run in Run.objects.filter(process_state="Error"):
            operator_verbs.resubmit(run.key, by="olga", reason="fixed")
        make_due()
        run_until_idle()
    assert set(Run.objects.values_list("process_state", flat=True)) <= FINAL_RUN_STATES
    assert kit.healthy()
