"""The checks that a seeded bug has to fail. Each passes on the unchanged engine, and fails with an exception."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from django.db import connection, transaction
from hypothesis import Phase

from orders.agents.payment import PaymentAgent
from orders.agents.stock import StockAgent
from orders.models import Product, StockReservation
from supervision import PermanentFailure
from supervision.errors import AgentFailure, ChangedMeanwhile
from supervision.intake import consuming, submission
from supervision.models import Run, Submission
from supervision.operations import operator_verbs
from supervision.recovery import failures
from supervision.runtime import failpoints
from supervision.store import claiming, step_verbs
from supervision.testing import expire, make_due, schedule, step, submit
from tests.engine import kit
from tests.simulation import scenarios, test_store_machine
from tests.simulation.world import World, failure
from tests.support import toy
from tests.support.requests import StepOfOrder
from tests.support.shop import until

SCENARIOS = 60
SIMULATED = {"the_simulation", "a_repeated_message", "a_postponed_call"}  # they need the simulation's store


def the_simulation(services: Any) -> None:
    """The simulation: no order of events breaks an invariant."""
    test_store_machine.play(SCENARIOS, test_store_machine.SEED, Phase.generate)


def a_repeated_message(services: Any) -> None:
    """A message that comes twice starts its attempt once."""
    world = World()
    world.submit(scenarios.WORKFLOWS[0].name)
    world.consume(born=False)
    world.claim()
    (message,) = world.messages
    world.deliver(message, keep=True)
    world.deliver(message)


def a_postponed_call(services: Any) -> None:
    """A service that asks to be called later has not failed."""
    world = World()
    world.submit(scenarios.WORKFLOWS[0].name)
    world.consume(born=False)
    world.claim()
    (work,) = world.deliver(world.messages[0])
    world.fail(work, failure("postponed"))


def a_late_answer(services: Any) -> None:
    """An answer counts only for its own attempt and until the deadline."""
    toy.reset()
    key, place, items = kit.started()
    expire(key)
    step_verbs.finish_at(place)([(items[0], {})])
    assert kit.states(key)[0] == "Processing", "an answer after complete_by was taken"
    failures.sweep(10)
    make_due(key)
    ((again, claims),) = schedule()
    started = step_verbs.start(again, claims)
    assert [item.attempt for item in started] == [2]
    step_verbs.finish_at(place)([(items[0], {"from": "attempt 1"})])
    assert kit.states(key)[0] == "Processing", "attempt 1 answered for attempt 2"


def two_claimers(services: Any) -> None:
    """Two schedulers find the same row at the same moment: one claim."""
    toy.reset()
    key = submit("toy-plain", {"n": 1})
    consuming.consume_batch(born=False)
    with kit.another_connection() as other:
        other.execute("SELECT 1 FROM supervision_stepstate WHERE position = 0 FOR UPDATE")
        claimers = _beside(lambda: claiming.claim(10), lambda: claiming.claim(10))
        _until_blocked_or_done(claimers)
        other.commit()
    claims = [claim for claimer in claimers for found in claimer.result(30).values() for claim in found]
    claims += [claim for found in claiming.claim(10).values() for claim in found]
    assert len(claims) == 1, f"claimed {len(claims)} times"
    assert step(key, "alpha-step").attempt == 1


def two_sweepers(services: Any) -> None:
    """While one supervisor settles a row, another sweeps and the step is claimed again: each expiry counts once."""
    toy.reset()
    key, _, _ = kit.started()
    expire(key)
    real = failures._settle
    meanwhile: list[Future[Any]] = []

    def slow(items: Any, *more: Any) -> Any:
        if not meanwhile:
            meanwhile.extend(_beside(_sweep_and_claim))
            _until_blocked_or_done(meanwhile)
        return real(items, *more)

    failures._settle = slow  # type: ignore[assignment]
    try:
        failures.sweep(10)
    finally:
        failures._settle = real
    meanwhile[0].result(30)
    row = step(key, "alpha-step")
    assert row.failure_count == 1, f"one expiry was counted {row.failure_count} times"
    assert kit.healthy()


def _sweep_and_claim() -> None:
    failures.sweep(10)
    kit.fetch("UPDATE supervision_stepstate SET not_before = now() WHERE process_state = 'Pending' AND not_before > now()")
    claiming.claim(10)


def only_overdue_claims_expire(services: Any) -> None:
    """A sweep leaves alone steps that run in time, and steps that wait, for any length of time."""
    toy.reset()
    running, _, _ = kit.started()
    waiting = submit("toy-plain", {"n": 2})
    consuming.consume_batch(born=False)
    kit.fetch(
        "UPDATE supervision_stepstate s SET complete_by = now() - interval '1 hour' FROM supervision_run r"
        " WHERE r.id = s.run_id AND r.key = %s AND s.position = 0",
        [waiting],
    )
    tally = failures.sweep(10)
    assert tally.total == 0, f"swept {tally}"
    assert kit.states(running)[0] == "Processing"
    assert step(waiting, "alpha-step").failure_count == 0


def a_consumer_dies(services: Any) -> None:
    """A consumer that dies before its commit leaves the submission waiting."""
    toy.reset()
    key = submit("toy-plain", {"n": 1})
    failpoints.load({"FAILPOINTS": "submit.before_commit=raise", "ALLOW_FAILPOINTS": "1"})
    with suppress(failpoints.Injected):
        consuming.consume_batch()
    failpoints.load({})
    consuming.consume_batch()
    assert Run.objects.filter(key=key).count() == 1, "an accepted order was lost"


def a_late_click(services: Any) -> None:
    """An operator resubmitted and the step failed again: a page that still shows the first failure cannot act."""
    toy.reset()
    key = kit.in_error()
    operator_verbs.resubmit(key, by="first", reason="again", attempt=1)
    ((place, claims),) = schedule()
    (item,) = step_verbs.start(place, claims)
    failures.fail(place, [(item.claim, kit.refusal())])
    assert kit.state(key) == "Error"
    try:
        operator_verbs.resubmit(key, by="second", reason="again", attempt=1)
    except ChangedMeanwhile:
        return
    raise AssertionError("a click on attempt 1 acted on attempt 2")


def one_key_twice(services: Any) -> None:
    """Two requests with one key at the same moment: one submission."""
    toy.reset()

    def accept() -> Any:
        new = submission.NewSubmission(
            public_id=submission.new_public_id(), payload='{"n": 1}', workflow="toy-plain", client="c", client_key="k"
        )
        return submission.accept([new])

    kit.at_once(accept, accept)
    accept()
    assert Submission.objects.filter(client_key="k").count() == 1


def the_last_piece(services: Any) -> None:
    """Two orders want the last piece: one gets it, the other is refused, and the stock is empty."""
    StockReservation.objects.all().delete()
    Product.objects.filter(sku="LAST").delete()
    Product.objects.create(sku="LAST", name="last", price="1.00", available=1)
    lines = {"lines": [{"sku": "LAST", "name": "last", "quantity": 1, "unit_price": "1.00"}]}
    try:
        wanted = [StepOfOrder(order, "reserve-stock", payload=dict(lines)).request() for order in ("first", "second")]
        with transaction.atomic():
            answers = StockAgent().perform_many(wanted)
        assert [isinstance(answer, PermanentFailure) for answer in answers] == [False, True], answers
        assert Product.objects.get(sku="LAST").available == 0
    finally:
        StockReservation.objects.all().delete()
        Product.objects.filter(sku="LAST").delete()


def a_lost_charge(services: Any) -> None:
    """The worker dies before it gets the answer to a charge: the next attempt finds the charge."""
    order = submission.new_public_id()
    payment = StepOfOrder(order, "charge-payment", seconds=4)
    payment.before_checkpoint = lambda: services.faults("payment", "timeout_after_effect")
    hasty = StepOfOrder(order, "charge-payment", seconds=0.4, before_checkpoint=payment.before_checkpoint, noted={})
    with suppress(AgentFailure):
        PaymentAgent().perform(hasty.request())
    services.clear()
    with suppress(AgentFailure):
        PaymentAgent().perform(payment.request(attempt=2))
    assert services.effects("payment", "confirm", order) == 1, "charged twice"


# ----------------------------------------------------------------------------------------------------- threads


def _beside(*functions: Any) -> list[Future[Any]]:
    """Call them in threads with connections of their own, while the test goes on."""

    def call(function: Any) -> Any:
        try:
            return function()
        finally:
            connection.close()

    pool = ThreadPoolExecutor(len(functions))
    calls = [pool.submit(call, function) for function in functions]
    pool.shutdown(wait=False)
    return calls


def _until_blocked_or_done(calls: list[Future[Any]]) -> None:
    until(lambda: kit.blocked_backends() + sum(call.done() for call in calls) >= len(calls), within=10, what="blocked or done")


CHECKS = {
    check.__name__: check
    for check in (
        the_simulation,
        a_repeated_message,
        a_postponed_call,
        a_late_answer,
        two_claimers,
        two_sweepers,
        only_overdue_claims_expire,
        a_consumer_dies,
        a_late_click,
        one_key_twice,
        the_last_piece,
        a_lost_charge,
    )
}
