"""The effect ledger of a cohort, in one statement each: the first operation of every attempt before the calls, and what became of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from django.db import InterfaceError, OperationalError

from supervision.agent import Agent, StepRequest
from supervision.effects import Intention
from supervision.execution.agents_process import Answer
from supervision.ledger import effect_rows
from supervision.plans import personal
from supervision.postgres import db
from supervision.recovery import decisions
from supervision.runtime import failpoints
from supervision.states import Direction
from supervision.store.records import Started
from supervision.workflow import StepPosition

log = logging.getLogger(__name__)


def needed(agent: Agent, place: StepPosition) -> bool:
    """Whether the engine writes a first operation for attempts at this place, because the agent defines `opens_with`."""
    return place.direction == Direction.DO and type(agent).opens_with is not Agent.opens_with


def note(
    agent: Agent, place: StepPosition, started: Sequence[Started], ask: Callable[[Started], StepRequest]
) -> tuple[list[tuple[Started, StepRequest]], list[Started]]:
    """Write each attempt's first operation. Returns the attempts to call, with requests, and the attempts whose claim is lost."""
    asked = [(item, request := ask(item), _opening(agent, request)) for item in started]
    entries = [
        effect_rows.Entry(item.run_id, place.direction, place.position, item.attempt, intention)
        for item, _, intention in asked
        if intention is not None
    ]
    plain = [(item, request) for item, request, _ in asked]
    if not entries:
        return plain, []
    try:
        rows = effect_rows.intend(entries)
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        # The database cannot store one of them. Each call then writes its own first operation, so that only that one fails.
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
        with db.blocks_of_others():
            return agent.opens_with(request)
    except Exception:  # `perform` meets the same problem and reports it as the agent's error
        return None


def settle(place: StepPosition, answers: Sequence[Answer]) -> Sequence[Answer]:
    """Write what these attempts have said of their operations. One whose words the database cannot keep counts as failed, and no other."""
    told = [effect_rows.Settled(each.started.run_id, place.position, one) for each in answers for one in each.settled]
    if not told:
        return answers
    try:
        effect_rows.settle(told)
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:
        if len(answers) > 1:
            return [one for each in answers for one in settle(place, [each])]
        why = personal.words_of(place.step, error)
        log.exception("could not note what became of an operation of %s: %s", place, why, exc_info=not place.step.personal)
        return [answers[0]._replace(result=None, failure=decisions.unrecorded(place, error, why))]
    return answers
