"""Cancelling at every moment and in every race: an order ends Processed, or Cancelled with net effect zero."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from supervision.errors import Refused, TransientFailure
from supervision.execution import runner
from supervision.intake import consuming
from supervision.models import Run, StepState
from supervision.operations import operator_verbs
from supervision.postgres import db
from supervision.recovery import decisions, failures, supervisor
from supervision.store import claiming
from supervision.testing import make_due, run_of, run_until_idle, submit, submit_many
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


def cancel(key: str) -> str:
    return operator_verbs.cancel(key, by="customer", reason="changed my mind")


def net_effects(keys: list[str]) -> dict[str, int]:
    """Effects minus undone effects of each order at the toy services; each key counts once."""
    net = dict.fromkeys(keys, 0)
    for agent in (toy.ALPHA, toy.BETA, toy.GAMMA):
        did = {request.perform_key: request.run_key for request in agent.performed}
        gone = {request.perform_key for request in agent.undone}
        for perform_key, key in did.items():
            net[key] += perform_key not in gone
    return net


def test_a_failure_that_waited_for_the_cancel_is_decided_by_what_the_cancel_made_of_the_order():
    """The failure report reads its step before the cancel commits and gets the lock after that commit."""
    key, place, items = kit.at_step(1)

    def cancel_slowly() -> None:
        def work() -> None:
            operator_verbs._cancel(key, "customer", "no", None)
            kit.until(kit.blocked_backends)

        db.transact(work)

    kit.at_once(cancel_slowly, lambda: kit.until(lambda: held(key)) and failures.fail(place, [(items[0].claim, busy())]))

    assert kit.states(key) == ["Processed", "Cancelled", "Cancelled"]
    assert kit.idle_state(key) == "Cancelled"
    assert kit.healthy()


def test_a_cancel_of_an_order_that_has_a_run_waits_for_the_rows_of_the_run_alone():
    """A bulk job holds many runs when it cancels one: another cancel that held that one's submission first would be a deadlock."""
    key, *_ = kit.at_step(1)

    def work() -> str:
        db.fetch("SET LOCAL lock_timeout = '3s'")
        return operator_verbs._cancel(key, "customer", "no", None)

    with kit.another_connection() as other:
        assert other.execute("SELECT FROM supervision_submission WHERE public_id = %s FOR UPDATE", [key]).rowcount == 1
        assert db.transact(work) == "Compensating"


def held(key: str) -> bool:
    """Whether another session has locked this order's steps."""
    found = kit.fetch("SELECT 1 FROM supervision_stepstate WHERE run_id = %s FOR UPDATE SKIP LOCKED", [Run.objects.get(key=key).pk])
    return not found


def busy() -> Any:
    return decisions.as_failure(TransientFailure("busy"))


def at_birth() -> str:
    return submit("toy", {"n": 1})


def while_pending() -> str:
    (key,) = kit.waiting(workflow="toy")
    return key


def while_claimed() -> str:
    return kit.claimed("toy")[0]


def while_running() -> str:
    return kit.started("toy")[0]


def between_steps() -> str:
    key, place, items = kit.started("toy")
    kit.finish(place, items)
    return key


def while_cooling_down() -> str:
    key, place, items = kit.started("toy")
    failures.fail(place, [(items[0].claim, busy())])
    return key


def in_error() -> str:
    return kit.in_error(1, "toy", unknown=True)


def while_being_undone() -> str:
    return kit.undoing(1, "toy")


MOMENTS: list[Callable[[], str]] = [
    at_birth, while_pending, while_claimed, while_running, between_steps, while_cooling_down, in_error, while_being_undone,
]  # fmt: skip


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_order_cancelled_at_any_moment_ends_cancelled_with_net_effect_zero(moment):
    bystander = kit.ran("toy", n=2)
    key = moment()

    cancel(key)
    for _ in range(3):
        kit.expire_and_sweep(key)
        make_due(key)
        run_until_idle()

    assert kit.state(key) == "Cancelled"
    done = StepState.objects.filter(run__key=key, direction="do").exclude(effect="none").values_list("position", flat=True)
    gone = StepState.objects.filter(run__key=key, direction="undo", process_state="Processed").values_list("position", flat=True)
    assert set(done) <= set(gone)
    assert toy.TOLD["cancelled"] == [key]
    assert kit.state(bystander) == "Processed"
    assert kit.healthy()


def test_a_processed_order_can_no_longer_be_cancelled():
    key = kit.ran("toy")

    with pytest.raises(Refused, check=lambda error: error.code == "not_cancellable"):
        cancel(key)
    assert (kit.state(key), run_of(key).cancel_requested_at) == ("Processed", None)


def test_a_second_cancel_changes_nothing():
    key = while_running()
    cancel(key)
    before = len(kit.events(key))

    assert cancel(key) == "Compensating"
    assert len(kit.events(key)) == before


def test_an_order_whose_cancel_raced_with_its_way_through_the_agents_ends_in_exactly_one_way():
    """Agents perform all steps of many orders while customers cancel them at many moments."""
    dice = random.Random(7)
    runner.process.serve({"agent.alpha", "agent.beta", "agent.gamma"})
    keys = submit_many("toy", [{"n": n} for n in range(240)])
    order = keys[:]
    dice.shuffle(order)

    codes: set[str] = set()

    def customer(mine: list[str]) -> None:
        for key in mine:
            try:
                cancel(key)
            except Refused as refused:
                codes.add(refused.code)

    def worker() -> None:
        for _ in range(60):
            consuming.consume_batch(4)
            for place, claims in claiming.claim(8).items():
                kit.go([(place, [claim]) for claim in claims])

    answers = kit.at_once(lambda: customer(order[:120]), lambda: customer(order[120:200]), worker, worker)
    assert [answer for answer in answers if isinstance(answer, Exception)] == []
    for _ in range(4):
        kit.expire_and_sweep()
        kit.again()

    assert codes <= {"not_cancellable"}
    ends = Counter(Run.objects.values_list("process_state", flat=True))
    assert set(ends) <= {"Processed", "Cancelled"}
    assert ends["Cancelled"] > 20
    net = net_effects(keys)
    for run in Run.objects.all():
        assert net[run.key] == (3 if run.process_state == "Processed" else 0), run.key
    assert Counter(toy.TOLD["cancelled"] + toy.TOLD["processed"]) == Counter(keys)
    assert kit.healthy()


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_cancel_racing_with_the_answer_of_one_step_has_one_winner(position):
    keys = []
    for _ in range(25):
        key, place, items = kit.at_step(position, "toy")
        keys.append(key)

        kit.at_once(lambda key=key: cancel(key), lambda place=place, items=items: kit.finish(place, items))
        run_until_idle()

    supervisor.sweep_once()
    run_until_idle()
    ends = Counter(kit.state(key) for key in keys)
    assert set(ends) <= {"Processed", "Cancelled"}
    if position < 2:
        assert ends["Cancelled"] == 25
    assert kit.healthy()
