"""The store's rules as a state machine over real SQL: for any events in any order, every invariant holds.

Hypothesis draws the scenarios and shrinks a failing one to a short story. `SIMULATION_EXAMPLES=20000` (or
`HYPOTHESIS_PROFILE=long`) runs the long profile, in shards that `pytest -n` spreads over processes; `SIMULATION_SEED`
repeats a run. Time passes by changing the database's rows; no test waits for a clock.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from typing import ClassVar

import hypothesis
import pytest
from django.db import connection
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from supervision.states import RUN_MOVES, STEP_MOVES
from tests.simulation import scenarios, upheaval
from tests.simulation.world import World, failure, forget
from tests.support.soak import sized

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "long" or "SIMULATION_EXAMPLES" in os.environ
SHARD = 250  # scenarios per test; each shard has its own seed
EXAMPLES = int(os.environ.get("SIMULATION_EXAMPLES", 20_000 if LONG else sized(40, 100)))
STEPS = int(os.environ.get("SIMULATION_STEPS", 30))
SEED = int(os.environ.get("SIMULATION_SEED", 20_260_101))
VACUUM_EVERY = 100
MEDDLING = 3
NEVER_TOLD = {("run", "Pending", "Processing")}  # the claim's event stands for it
ALLOWED = {("step", *move[:2]) for move in STEP_MOVES[1:]} | {("run", *move[:2]) for move in RUN_MOVES}

number = st.integers(0, 5)  # an index, counted from the newest
workflow = st.sampled_from([workflow.name for workflow in scenarios.WORKFLOWS])
kind = st.sampled_from(["transient", "unknown", "permanent", "postponed"])
fate = st.sampled_from(["", "failed", "undone", "undone, failed"])
hours = st.sampled_from([1, 3, 25, -1, -30])


def _pick(items, n):
    return items[-1 - n % len(items)]


class StoreMachine(RuleBasedStateMachine):
    """Several orders and all roles that may change them."""

    count = 0  # scenarios
    steps = 0  # verbs, each followed by a check of all invariants
    seen: ClassVar[Counter] = Counter()  # the moves that scenarios made, of steps and of runs

    @initialize(orders=st.lists(st.tuples(workflow, st.integers(0, 4), fate), min_size=1, max_size=3), born=st.booleans())
    def orders_have_come_so_far(self, orders, born):
        """Start scenarios in any state: some steps are done, some orders are being undone or are in Error."""
        self.world = World()
        self.meddled = 0
        for n, (name, steps, fate) in enumerate(orders):
            key = self.world.submit(name, n)
            self.world.consume(born=born)
            self.world.claim()
            for _ in range(steps):
                self.all_goes_well(0, go_on=False, steps=1)
            if "undone" in fate:
                self.world.cancel(key)
                self.world.claim()
            if "failed" in fate and self.world.messages:
                self.nothing_goes_well(0, "permanent")

    # --------------------------------------------------------------------------------- customers and schedulers

    @precondition(lambda self: len(self.world.accepted) < 5)
    @rule(name=workflow, n=number, client_key=st.sampled_from([None, "k", "l"]))
    def submit(self, name, n, client_key):
        self.world.submit(name, n, client_key)

    @rule(limit=st.integers(1, 3), born=st.booleans())
    def consume(self, limit, born):
        self.world.consume(limit, born=born)

    @rule(limit=st.integers(1, 3), worker=st.integers(0, 2))
    def take_up(self, limit, worker):
        self.world.consume(limit, worker=worker)

    @rule(limit=st.integers(1, 5))
    def claim(self, limit):
        self.world.claim(limit)

    # -------------------------------------------------------------------------------------------- broker, agents

    @precondition(lambda self: self.world.messages)
    @rule(n=number, worker=st.integers(0, 2), again=st.booleans())
    def deliver(self, n, worker, again):
        self.world.deliver(_pick(self.world.messages, n), worker, keep=again)

    @precondition(lambda self: self.world.messages)
    @rule(n=number)
    def drop(self, n):
        self.world.messages.remove(_pick(self.world.messages, n))

    @precondition(lambda self: self.world.works)
    @rule(n=number)
    def effect(self, n):
        self.world.call(_pick(self.world.works, n))

    @precondition(lambda self: any(work.answer is not None for work in self.world.works))
    @rule(n=number, go_on=st.booleans(), together=st.booleans())
    def reply(self, n, go_on, together):
        """An agent answers in time, or long after the step was claimed by another process."""
        answered = [work for work in self.world.works if work.answer is not None]
        chosen = _pick(answered, n)
        self.world.answer([work for work in answered if together and work.place == chosen.place] or [chosen], go_on=go_on)

    @precondition(lambda self: self.world.works)
    @rule(n=number, kind=kind, after_effect=st.booleans())
    def fail(self, n, kind, after_effect):
        """The remote refuses, is busy, or its reply is lost."""
        work = _pick(self.world.works, n)
        if kind == "unknown" and after_effect:
            self.world.call(work)
        elif isinstance(work.answer, dict) or (kind == "permanent" and not self.world.may_refuse(work)):
            kind = "unknown"  # an agent may only report "no effect" when there was none
        self.world.fail(work, failure(kind))

    @precondition(lambda self: self.world.messages)
    @rule(n=number, kind=kind)
    def nothing_goes_well(self, n, kind):
        """Deliver a message, and let the agent fail."""
        for work in self.world.deliver(_pick(self.world.messages, n)):
            self.world.fail(work, failure(kind if self.world.may_refuse(work) else "unknown"))

    @precondition(lambda self: self.world.messages)
    @rule(n=number, go_on=st.booleans(), steps=st.integers(1, 3))
    def all_goes_well(self, n, go_on, steps):
        """Deliver a message, call and answer, as for most steps, so that scenarios reach late states."""
        if not self.world.messages:
            return
        works = self.world.deliver(_pick(self.world.messages, n))
        for _ in range(steps):
            for work in works:
                self.world.call(work)
            held = set(map(id, self.world.works))
            messages = len(self.world.messages)
            if works:
                self.world.answer(works, go_on=go_on)
            works = [work for work in self.world.works if id(work) not in held]
            if not works and len(self.world.messages) > messages:
                works = self.world.deliver(self.world.messages[-1])

    @precondition(lambda self: self.world.works)
    @rule(worker=st.integers(0, 2))
    def crash(self, worker):
        self.world.crash(worker)

    # ------------------------------------------------------------------------------------- supervisors and time

    @rule(n=number, sweep=st.booleans())
    def expire(self, n, sweep):
        self.world.expire(_pick(list(self.world.accepted), n))
        if sweep:
            self.world.sweep()

    @precondition(lambda self: self.world.works)
    @rule(n=number, begun=st.booleans(), answered=st.booleans())
    def make_a_zombie(self, n, begun, answered):
        """A worker freezes past its deadline; the step is claimed again, and the worker's answer is still to come."""
        work = _pick(self.world.works, n)
        if answered:
            self.world.call(work)
        self.world.expire(work.item.key)
        self.world.sweep()
        self.world.make_due(work.item.key)
        messages = len(self.world.messages)
        self.world.claim()
        if begun and len(self.world.messages) > messages:
            self.world.deliver(self.world.messages[-1], 2)

    @rule(supervisors=st.integers(1, 2))
    def sweep(self, supervisors):
        self.world.sweep(supervisors)

    @rule(n=number, claim=st.booleans())
    def wait(self, n, claim):
        self.world.make_due(_pick(list(self.world.accepted), n))
        if claim:
            self.world.claim()

    @rule(hours=hours)
    def move_the_clock(self, hours):
        self.world.clock(hours * 3600)

    # ------------------------------------------------------------------------------------------------ operators

    @precondition(lambda self: any(order.state == "Error" for order in self.world.orders))
    @rule(n=number, stale=st.booleans(), new_generation=st.booleans())
    def resubmit(self, n, stale, new_generation):
        failed = [order.key for order in self.world.orders if order.state == "Error"]
        self.world.resubmit(_pick(failed, n), stale=stale, new_generation=new_generation)

    @precondition(lambda self: any(order.state == "Error" for order in self.world.orders))
    @rule(n=number, verb=st.sampled_from(["skip", "skip", "compensate", "cancel", "abandon"]))
    def give_up(self, n, verb):
        self._operate(verb, _pick([order.key for order in self.world.orders if order.state == "Error"], n))

    @precondition(lambda self: self.meddled < MEDDLING)
    @rule(n=number, verb=st.sampled_from(["cancel", "compensate", "cancel", "resubmit", "skip", "abandon"]))
    def meddle(self, n, verb):
        """Customers and operators act in any state of an order, but seldom, so that orders can make progress."""
        self.meddled += 1
        self._operate(verb, _pick(list(self.world.accepted), n))

    def _operate(self, verb, key):
        return upheaval.abandon(self.world, key) if verb == "abandon" else getattr(self.world, verb)(key)

    # ------------------------------------------------------------------------------------- hooks, code, database

    @rule(n=number)
    def let_a_hook_raise(self, n):
        """The order keeps its state, and the hook's call is put off."""
        upheaval.let_hook_raise(self.world, _pick(list(self.world.accepted), n))

    @rule(mended=st.booleans())
    def hooks_again(self, mended):
        upheaval.hooks_again(self.world, mended=mended)

    @rule(name=workflow, n=number, overdue=st.booleans())
    def sweep_without_a_version(self, name, n, overdue):
        """A supervisor with older or newer code sweeps."""
        if overdue:
            self.world.expire(_pick(list(self.world.accepted), n))
        upheaval.sweep_without(self.world, name)

    @precondition(lambda self: self.world.watch.epochs < 2 and self.world.works)
    @rule()
    def put_the_database_back(self):
        upheaval.begin_epoch(self.world)

    # --------------------------------------------------------------------------------------------------- the end

    def teardown(self):
        if hasattr(self, "world"):
            try:
                if sys.exc_info()[0] is None:
                    upheaval.hooks_hold(self.world)
                    upheaval.hooks_again(self.world, mended=True)
                    self.world.heal()
                    StoreMachine.seen.update(self.world.watch.moves)
                    StoreMachine.steps += self.world.watch.looks
            finally:
                forget()
                _tidy()


def _tidy():
    """Vacuum: the dead rows of thousands of scenarios would slow the later ones down."""
    StoreMachine.count += 1
    if StoreMachine.count % VACUUM_EVERY == 0:
        with connection.cursor() as cursor:
            cursor.execute("VACUUM supervision_run, supervision_stepstate, supervision_stepevent, supervision_submission")


def play(examples: int, seed: int, *phases: Phase) -> None:
    """Play so many scenarios; raises what a broken invariant raises."""
    machine = hypothesis.seed(seed)(type("StoreMachine", (StoreMachine,), {}))
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            report_multiple_bugs=False,
            print_blob=True,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("shard", range(-(-EXAMPLES // SHARD)))
def test_every_invariant_holds_after_every_step_of_any_scenario_and_every_order_ends(simulated, shard):
    examples = min(SHARD, EXAMPLES - shard * SHARD)
    print(f"SIMULATION_SEED={SEED} shard {shard}: {examples} scenarios of up to {STEPS} steps")
    StoreMachine.seen.clear()
    StoreMachine.steps = StoreMachine.count = 0
    play(examples, SEED + shard, Phase.generate, Phase.shrink)
    missing = ALLOWED - NEVER_TOLD - set(StoreMachine.seen)
    assert examples < SHARD or len(missing) <= len(ALLOWED) // 4, f"scenarios that never get somewhere prove nothing about it: {missing}"
    print(", ".join(f"{who} {source}->{target} {count}" for (who, source, target), count in sorted(StoreMachine.seen.items(), key=str)))
    print(f"steps taken: {StoreMachine.steps}, never seen: {sorted(map(str, missing))}")
