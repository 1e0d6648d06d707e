"""The first operation of each attempt of a cohort, noted in the ledger for all of them at once, before the calls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from django.db import InterfaceError, OperationalError

from supervision import failpoints, ledger
from supervision.agent import Agent, StepRequest
from supervision.effects import Intention
from supervision.handles import Place, Started
from supervision.states import Direction

log = logging.getLogger(__name__)


def needed(agent: Agent, place: Place) -> bool:
    """Whether attempts at this place begin with an operation that the engine notes."""
    return place.direction == Direction.DO and type(agent).opens_with is not Agent.opens_with


def note(
    agent: Agent, place: Place, started: Sequence[Started], ask: Callable[[Started], StepRequest]
) -> tuple[list[tuple[Started, StepRequest]], list[Started]]:
    """Note what each attempt begins with; gives those that may be called with their requests, and those not ours any more."""
    asked = [(item, request := ask(item), _opening(agent, request)) for item in started]
    entries = [
        ledger.Entry(item.run_id, place.direction, place.position, item.attempt, intention)
        for item, _, intention in asked
        if intention is not None
    ]
    plain = [(item, request) for item, request, _ in asked]
    if not entries:
        return plain, []
    try:
        rows = ledger.intend(entries)
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        # Something in one of them cannot be stored: each notes its own, so that only the culprit fails.
        log.exception("could not note the first operations of %d attempts of %s", len(entries), place)
        return plain, []
    failpoints.hit("agent.after_intention", [place.label])
    ours, lost = [], []
    for item, request, intention in asked:
        if intention is not None and request.book is not None:
            known = rows.get((item.run_id, place.direction, place.position, intention.key, intention.operation))
            if known is None:
                lost.append(item)
                continue
            request.book.opened(intention, *known)
        ours.append((item, request))
    return ours, lost


def _opening(agent: Agent, request: StepRequest) -> Intention | None:
    try:
        return agent.opens_with(request)
    except Exception:  # what is wrong with the order, `perform` says in the agent's words
        return None
