"""Rare events in a scenario: hooks that raise, code without a version, a restored database, an order left as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from supervision import workflow
from supervision.operations.ending import abandoning
from supervision.postgres import db
from supervision.states import ATTEMPTS_PER_EPOCH, FINAL_RUN_STATES
from supervision.store import epochs, hooks
from tests.simulation import scenarios
from tests.simulation.invariants import Broken
from tests.simulation.world import World

_PUT_OFF = """
SELECT lower(r.process_state), r.key FROM supervision_notification n JOIN supervision_run r ON r.id = n.run_id
 WHERE n.kind = 'hook' AND n.delivered_at IS NULL
"""


def abandon(world: World, key: str) -> bool:
    """An operator cancels the order without undo; false if that is not possible."""
    order = next((order for order in world.orders if order.key == key), None)
    allowed = order is not None and not order.final and all(row.state != "Processing" for row in order.undo)
    if allowed:
        world.watch.waived.update((key, row.position) for row in order.do)
    return world.operate(lambda: abandoning.abandon(key, by="olga", reason="lost"), allowed)


def let_hook_raise(world: World, key: str) -> None:
    """Let this order's hooks raise from now on, until `hooks_again(mended=True)`."""
    scenarios.RAISING.add(key)
    hooks_hold(world)


def hooks_again(world: World, *, mended: bool) -> None:
    """Make the calls that were put off due; with `mended` no hook raises any more."""
    if mended:
        scenarios.RAISING.clear()
    db.run("UPDATE supervision_notification SET not_before = now() WHERE kind = 'hook'")
    hooks.retry_due()
    world.look()
    hooks_hold(world)
    if mended and db.fetch(_PUT_OFF):
        raise Broken("a hook that was mended is not called")


def hooks_hold(world: World) -> None:
    """Check that the hook of every ended order was called once, or is put off once while it raises."""
    told, put_off = scenarios.told(), [tuple(row) for row in db.fetch(_PUT_OFF)]
    ended = {(order.state.lower(), order.key) for order in world.orders if order.final and order.workflow in scenarios.HOOKED}
    if sorted([*told.elements(), *put_off]) != sorted(ended):
        raise Broken(f"a hook is called once, or put off once: ended {ended}, told {dict(told)}, put off {put_off}")


def sweep_without(world: World, name: str) -> None:
    """A supervisor whose code does not know this workflow sweeps: it leaves the workflow's runs unchanged."""
    others = {run_id: order for run_id, order in world.watch.orders.items() if order.workflow == name}
    before = world.rows
    with _code_without(name):
        world.sweep(but=set(others))
    # Any supervisor corrects deadlines that were written while the clock was ahead.
    world.watch.unchanged(
        [at for at, row in before.items() if at[0] in others and not row.ahead], before, "a sweep of code that does not know the version"
    )
    moved = [run_id for run_id, order in others.items() if world.watch.orders[run_id].state != order.state]
    if moved:
        raise Broken(f"a sweep moved runs of a version that its code does not know: {moved}")


@contextmanager
def _code_without(name: str) -> Iterator[None]:
    known, newest = workflow._workflows, workflow._newest
    workflow._workflows = {key: one for key, one in known.items() if one.name != name}
    workflow._newest = {key: one for key, one in newest.items() if key != name}
    try:
        yield
    finally:
        workflow._workflows, workflow._newest = known, newest


def begin_epoch(world: World) -> None:
    """The database was restored: the attempt numbers of unfinished steps jump ahead, and running steps lose their claims."""
    epochs.look()
    before = world.rows
    unfinished = {run_id for run_id, order in world.watch.orders.items() if order.state not in FINAL_RUN_STATES}
    jumped = {at for at, row in before.items() if at[0] in unfinished and row.state in ("Pending", "Processing", "Error")}
    world.watch.epochs += 1
    for at in jumped:
        world.watch.claims[at] = world.watch.claims.get(at, 0) + ATTEMPTS_PER_EPOCH
    epochs.begin("a scenario's", by="olga", declared=True)
    world.look()
    world.watch.unchanged(set(before) - jumped, before, "a new epoch")
    for at in jumped:
        row = world.rows[at]
        given_back = before[at].state == "Processing" and not world.is_abandoned(before[at])
        if row.state != ("Pending" if given_back else before[at].state) or (row.locked and not row.overdue):
            raise Broken(f"a new epoch leaves a claim standing: {before[at]}, {row}")
