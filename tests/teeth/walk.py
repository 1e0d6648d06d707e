"""A random walk through the engine, statement by statement: for any order of events, the invariants hold.

Messages are duplicated, delayed and lost, answers come after their claim expired, deadlines pass, people cancel, undo
and resubmit. After each step the walk compares the rows with its own knowledge, and every few steps the audit runs. In
the end all services work again, and each run must have ended with the right effects.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from django.utils import timezone

from supervision.agent import get_agent
from supervision.audit import registry
from supervision.errors import AgentFailure, ChangedMeanwhile, Refused
from supervision.execution import runner
from supervision.models import Run, StepEvent, StepState
from supervision.operations import operator_verbs
from supervision.recovery import failures, supervisor
from supervision.retry import Outcome
from supervision.states import Claim
from supervision.store import step_verbs
from supervision.store.records import Started, StepPosition
from supervision.testing import expire, make_due, perform, schedule, submit
from tests.support import toy
from tests.teeth.remote import Remote

WORKFLOWS = ("toy", "toy-undo", "toy-plain")
STEPS = ("alpha-step", "beta-step", "gamma-step")


class Broken(AssertionError):
    """An invariant does not hold."""


class Walk:
    """One walk; the same seed makes the same choices."""

    def __init__(self, seed: int, *, runs: int = 6) -> None:
        self.dice = random.Random(seed)
        self.remote = Remote(self.dice)
        self.keys: list[str] = [submit(self.dice.choice(WORKFLOWS), {"n": n}) for n in range(runs)]
        self.messages: list[tuple[StepPosition, list[Claim]]] = []
        self.working: list[tuple[StepPosition, Started]] = []
        self.answers: list[tuple[StepPosition, Started, Any]] = []
        self.starts: Counter[tuple[int, str, int, int]] = Counter()
        self.cancelled: set[str] = set()
        self.seen_in_error: list[tuple[str, int]] = []  # attempts that an operator's open page may still show

    def go(self, steps: int = 160) -> None:
        """Walk, then let all services work and check the result."""
        acts = [self.schedule, self.wait, *3 * [self.deliver], *3 * [self.work], *3 * [self.report]]
        rare = [self.expire, self.sweep, self.crash, self.cancel, self.operate, self.click_late, self.supervise]
        for number in range(1, steps + 1):
            self.dice.choice(acts if self.dice.random() < 0.85 else rare)()
            if number % 40 == 0:
                self.audit()
        self.heal()

    # ------------------------------------------------------------------------------------------------- the steps

    def schedule(self) -> None:
        self.messages += schedule()

    def deliver(self) -> None:
        """Deliver a message; it may be delivered again."""
        if not self.messages:
            return
        index = self.dice.randrange(len(self.messages))
        place, claims = self.messages[index] if self.dice.random() < 0.3 else self.messages.pop(index)
        for item in step_verbs.start(place, claims):
            self.starts[item.run_id, place.direction, place.position, item.attempt] += 1
            self.working.append((place, item))
        for claim, count in self.starts.items():
            if count > 1:
                raise Broken(f"attempt {claim} was started {count} times")

    def work(self) -> None:
        """An agent makes its call."""
        if not self.working:
            return
        place, item = self.working.pop(self.dice.randrange(len(self.working)))
        agent = get_agent(place.definition.step(place.position).agent)
        request = runner._asker(place, checkpoints=False)(item)
        try:
            answer: Any = agent.compensate(request) if place.direction == "undo" else agent.perform(request)
        except AgentFailure as error:
            answer = error
        self.answers.append((place, item, answer))

    def report(self) -> None:
        """Record an answer; one whose claim has expired must change nothing."""
        if not self.answers:
            return
        place, item, answer = self.answers.pop(self.dice.randrange(len(self.answers)))
        where = StepState.objects.filter(run_id=item.run_id, direction=place.direction, position=place.position)
        before = where.get()
        ours = before.attempt == item.attempt and before.process_state == "Processing" and before.complete_by > timezone.now()
        if isinstance(answer, AgentFailure):
            failure = failures.as_failure(answer)
            failures.fail(place, [(item.claim, failure)])
            after = where.get()
            if failure.outcome is Outcome.POSTPONED and after.failure_count != before.failure_count:
                raise Broken("a postponed step was counted as a failure")
        else:
            handed = step_verbs.finish(place, [(item, answer)])
            if handed.claims:
                self.messages.append((place.following, handed.claims))
            after = where.get()
        if not ours and (after.process_state, after.attempt, after.failure_count) != (
            before.process_state,
            before.attempt,
            before.failure_count,
        ):
            raise Broken(f"attempt {item.attempt} spoke after its claim was broken: {before.process_state} -> {after.process_state}")

    def sweep(self) -> None:
        """The supervisor sweeps; it must change only running, overdue steps, and count a failure only for started ones."""
        before = {row.pk: row for row in StepState.objects.all()}
        now = timezone.now()
        failures.sweep(100)
        for row in StepState.objects.all():
            was = before.get(row.pk)
            if was is None:
                continue
            overdue = was.process_state == "Processing" and was.complete_by <= now
            counted = row.failure_count - was.failure_count
            undoing = row.direction == "do" and Run.objects.get(pk=row.run_id).direction == "undo"
            if counted != int(overdue and was.started_at is not None and not undoing):
                raise Broken(f"{was.process_state} step, overdue {overdue}, started {was.started_at}: counted {counted} failures")

    def supervise(self) -> None:
        supervisor.sweep_once()

    def expire(self) -> None:
        """Let one run's claim expire."""
        expire(self.dice.choice(self.keys))

    def wait(self) -> None:
        make_due(self.dice.choice(self.keys))

    def crash(self) -> None:
        """A worker dies with its messages, calls and answers."""
        for hand in (self.messages, self.working, self.answers):
            if hand and self.dice.random() < 0.6:
                hand.pop(self.dice.randrange(len(hand)))  # type: ignore[attr-defined]

    def cancel(self) -> None:
        key = self.dice.choice(self.keys)
        try:
            operator_verbs.cancel(key, by="customer", reason="no")
        except Refused:
            return
        self.cancelled.add(key)

    def operate(self) -> None:
        """An operator looks at an order in Error and acts on what the page shows."""
        for run in Run.objects.filter(process_state="Error"):
            step = StepState.objects.get(run=run, direction=run.direction, process_state="Error")
            self.seen_in_error.append((run.key, step.attempt))
            if run.direction == "do" and self.dice.random() < 0.3:
                operator_verbs.compensate(run.key, by="operator", reason="walk")
            else:
                operator_verbs.resubmit(run.key, by="operator", reason="walk", attempt=step.attempt)

    def click_late(self) -> None:
        """An old page shows an attempt that is over: the engine has to refuse the click."""
        for key, attempt in self.seen_in_error[-5:]:
            row = StepState.objects.filter(run__key=key, process_state="Error", attempt=attempt)
            if row.exists():
                continue
            try:
                operator_verbs.resubmit(key, by="operator", reason="late", attempt=attempt)
            except (ChangedMeanwhile, Refused):
                continue
            raise Broken(f"a late click on attempt {attempt} acted")

    # ------------------------------------------------------------------------------------------------- checking

    def audit(self) -> None:
        """Check the store's invariants, without the shop's."""
        for violation in registry.violations():
            raise Broken(f"{violation.invariant}: {violation.detail}")
        ended = Counter(
            StepEvent.objects.filter(from_state="Processing", position__isnull=False).values_list(
                "run_id", "direction", "position", "attempt"
            )
        )
        for attempt, count in ended.items():
            if count > 1:
                raise Broken(f"attempt {attempt} ended {count} times")

    def heal(self) -> None:
        """Let all services work: each run must end with exactly the effects that its state promises."""
        self.remote.kind = True
        while self.working:
            self.work()
        while self.answers:
            self.report()
        for _ in range(40):
            expire()
            make_due()
            supervisor.sweep_once()
            for place, claims in [*self.messages, *schedule()]:
                perform(place, claims)
            runner.finish_up(10)  # wait for late answers on a busy machine before time passes
            self.messages.clear()
            self.operate()
            if not Run.objects.exclude(process_state__in=["Processed", "Cancelled"]).exists():
                break
        self.audit()
        for key in self.keys:
            self._judge(key)

    def _judge(self, key: str) -> None:
        run = Run.objects.get(key=key)
        net = self.remote.net(key)
        if run.process_state == "Processed":
            if net != dict.fromkeys(STEPS, 1):
                raise Broken(f"{key} is Processed with {net}")
            if key in self.cancelled:
                raise Broken(f"{key} was cancelled and is Processed")
        elif run.process_state != "Cancelled" or net:
            raise Broken(f"{key} is {run.process_state} with {net}; {self._story(run)}")
        undone = list(dict.fromkeys(reversed(self.remote.undone[key])))
        if undone != sorted(undone):
            raise Broken(f"{key} was undone in the wrong order: {self.remote.undone[key]}")

    @staticmethod
    def _story(run: Run) -> str:
        """All facts about a failed walk, because it may not fail again."""
        facts = ("direction", "position", "process_state", "attempt", "failure_count", "not_before", "complete_by")
        steps = "\n".join(map(str, StepState.objects.filter(run=run).values_list(*facts)))
        told = ("seq", "at", "direction", "position", "attempt", "from_state", "to_state", "actor", "why")
        events = "\n".join(map(str, StepEvent.objects.filter(run_id=run.pk).order_by("seq").values_list(*told)))
        return f"steps:\n{steps}\nevents:\n{events}"


def walks(*seeds: int) -> None:
    """Walk once for each seed, each in the store that the walk before left."""
    for seed in seeds:
        toy.reset()
        Walk(seed).go()
