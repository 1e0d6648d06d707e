"""Gives claims back for other processes if this process's code does not know their plan, or has another plan than their rows.

No call is made and no failure is counted. There are two cases. A version that this code does not know is normal while a
new release is rolled out; if no process knows it, one incident reports it. A row at another step than the code expects is
a mistake: it counts as a lost dispatch, and every few of those raise an alert.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta

from supervision.recovery import failures
from supervision.retry import Failure, Outcome
from supervision.states import ATTEMPTS_PER_EPOCH, Claim
from supervision.store import step_verbs
from supervision.workflow import StepPosition

log = logging.getLogger(__name__)

LONGEST_SECONDS = 16


def unknown(place: StepPosition, claims: Sequence[Claim]) -> None:
    """Postpone these claims: another process may know their version. The wait grows each time, so that they do not circulate."""
    why = f"left to a process that knows {place.workflow} version {place.version}"
    log.info("%d claims are %s", len(claims), why)
    failures.fail(place, [(claim, _failure(Outcome.POSTPONED, claim, why)) for claim in claims])


def mistaken(place: StepPosition, claims: Sequence[Claim]) -> None:
    """None of these claims could be started. Give back those whose rows are at another step or agent."""
    found = step_verbs.mistaken(place, claims)
    if not found:
        return
    expected = place.step
    failed = []
    for claim, name, agent in found:
        why = f"its step is {name} by agent {agent}; the code of this process means {expected.name} by agent {expected.agent}"
        failed.append((claim, _failure(Outcome.EXPIRED, claim, why)))
    log.error("%d claims of %s are given back: %s", len(failed), place, failed[0][1].message)
    failures.fail(place, failed)


def _failure(outcome: Outcome, claim: Claim, why: str) -> Failure:
    times = (claim.attempt - 1) % ATTEMPTS_PER_EPOCH
    seconds = min(2 ** min(times, 30), LONGEST_SECONDS)
    return Failure(outcome=outcome, started=False, message=why, not_before=timedelta(seconds=seconds))
