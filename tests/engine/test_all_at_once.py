"""All roles at once: after random work in many threads the audit finds nothing wrong, and every order can end."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

from supervision.errors import OutcomeUnknown, PermanentFailure, Refused, TransientFailure, UnknownRun
from supervision.execution import runner
from supervision.intake import consuming
from supervision.models import Run, StepEvent
from supervision.operations import operator_verbs
from supervision.postgres import db
from supervision.recovery import supervisor
from supervision.states import FINAL_RUN_STATES, RUN_MOVES, STEP_MOVES
from supervision.store import claiming
from supervision.testing import expire, make_due, submit
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")

WORKFLOWS = ("toy", "toy-plain", "toy-skip", "toy-wait", "toy-undo")
STEPS = {(move.source, move.target) for move in STEP_MOVES}
RUNS = {(move.source, move.target) for move in RUN_MOVES}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))])
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
            with contextlib.suppress(Refused, UnknownRun):
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
        kit.again()
    assert set(Run.objects.values_list("process_state", flat=True)) <= FINAL_RUN_STATES
    assert kit.healthy()
