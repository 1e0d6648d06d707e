"""Liveness, for the audit: every unfinished order has made progress lately, or a bounded wait or an open incident explains it.

The conditions here are not those by which the engine finds work, so that the audit finds the orders that the engine
overlooks. An order is reported when none of its events has been written for longer than the bound, and

* none of its steps can run, or its running step is overdue (no incident or pause excuses these); or it is in Error and no
  open incident says so; or
* it waits, no open incident holds it, and its wait is not bounded. Bounded waits are those for a time, for a signal until its
  wait is over, for an earlier order of its session, for a pause with an end, and for older steps of its agent that are taken in turn.

Unconsumed submissions, hooks that were not called and dead letters count as orders that wait.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from supervision import conf
from supervision.agent import agents
from supervision.audit.liveness_sql import HOOKS, LETTERS, RUNS, SUBMISSIONS
from supervision.incidents import lifecycle
from supervision.postgres import db

_chosen: float | None = None


class Stuck(NamedTuple):
    """An order that stands still without an explanation. run_id: None before it has a run."""

    order: str
    run_id: int | None
    why: str


@contextmanager
def within(seconds: float | None) -> Iterator[None]:
    """Use this bound instead of the setting LIVENESS_SECONDS inside the context; None: use the setting."""
    global _chosen
    before, _chosen = _chosen, seconds
    try:
        yield
    finally:
        _chosen = before


def stuck() -> Iterator[Stuck]:
    """Every unfinished order that has stood still for longer than the bound without an explanation."""
    settings = conf.get()
    known = [agent for agent in agents() if agent.resource is not None]
    params: dict[str, Any] = {
        "bound": settings.liveness.total_seconds() if _chosen is None else _chosen,
        "pause_bound": settings.pause_bound.total_seconds(),
        "agents": [agent.name for agent in known],
        "services": [agent.resource for agent in known],
    }
    rows = db.run(RUNS, params)
    held = lifecycle.holding([run_id for _, run_id, _, waits in rows if waits])
    for order, run_id, why, waits in rows:
        if not (waits and run_id in held):
            yield Stuck(order, run_id, why)
    for statement in (SUBMISSIONS, HOOKS, LETTERS):
        yield from (Stuck(*row) for row in db.run(statement, {"bound": params["bound"]}))
