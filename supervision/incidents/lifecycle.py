"""Incidents: one row per cause. Operators are notified of incidents, not of single orders.

A detector looks at the rows and returns the causes that stand now. The supervisor asks every detector at each sweep
(`look`): a cause without an open incident gets one, an open incident without its cause is closed. So nothing depends on
the moment at which something happened: a supervisor that was down finds the same causes later.

Operators are notified once when an incident opens, once when it closes, and again only when its severity rises. A cause that
returns within INCIDENT_REOPEN_SECONDS reopens its incident without a notification. If it then stands for that long, they
are notified once more, because the last notification said that it is over. `info` is shown, without any notification.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import transaction

from supervision import conf
from supervision.incidents.incident_sql import (
    CLOSE,
    LOCK,
    NOTIFY,
    OPEN,
    REOPEN,
    STANDING,
    TELL,
    TELL_CHANNELS,
    TELL_CLOSED,
    TRY_LOCK,
    UPDATE,
)
from supervision.postgres import db

log = logging.getLogger(__name__)

INFO, WARNING, CRITICAL = "info", "warning", "critical"
LONGEST_KEY, LONGEST_TITLE = 500, 500
SINGLE_MAILS = 20  # if one look finds more changes than this, it sends one mail per kind of change


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One cause that stands now.

    kind: one of the kinds of `docs/operations.md`. key: stable as long as the cause is the same, and begins with the kind.
    orders: how many unfinished orders it holds. since: when it began, where the detector knows better than "now".
    """

    kind: str
    key: str
    title: str
    severity: str = WARNING
    resource: str = ""
    step: str = ""
    code: str = ""
    orders: int = 0
    since: datetime | None = None


Detector = Callable[[], Iterable[Cause]]
Duty = Callable[[], object]
Holder = Callable[[Sequence[int]], Mapping[int, Sequence[str]]]
Members = Callable[[str], Sequence[int]]
Money = Callable[[Sequence[int]], Mapping[str, Decimal]]

_detectors: dict[str, Detector] = {}
_before: list[Duty] = []
_after: list[Duty] = []
_holders: list[Holder] = []
_members: dict[str, Members] = {}
_money: list[Money] = []


def detector(*kinds: str) -> Callable[[Detector], Detector]:
    """Register the function that finds every standing cause of these kinds. It reads, and writes nothing."""

    def register(function: Detector) -> Detector:
        for kind in kinds:
            _detectors[kind] = function
        return function

    return register


def before_looking(function: Duty) -> Duty:
    """Register a function that runs before the detectors, in the same transaction."""
    _before.append(function)
    return function


def after_looking(function: Duty) -> Duty:
    """Register a function that runs once incidents are opened and closed, in the same transaction."""
    _after.append(function)
    return function


def holder(function: Holder) -> Holder:
    """Register a function that returns, for each run, the causes that may hold it, the best explanation first."""
    _holders.append(function)
    return function


def members(*kinds: str) -> Callable[[Members], Members]:
    """Register the function that lists the runs a cause of these kinds holds, by the cause's key."""

    def register(function: Members) -> Members:
        for kind in kinds:
            _members[kind] = function
        return function

    return register


def money(function: Money) -> Money:
    """Register the application's function that adds up the value of some runs: currency -> amount."""
    _money.append(function)
    return function


@dataclass(frozen=True)
class Look:
    """What one look changed. told: how many of the changes were put into the outbox as notifications."""

    opened: int = 0
    reopened: int = 0
    closed: int = 0
    told: int = 0


def look() -> Look:
    """Bring the incidents in line with the causes that stand now; returns what changed.

    One transaction under a lock: a second caller at the same moment does nothing. A detector that raises is logged, and
    the incidents of its kinds stay as they are.
    """
    return db.transact(_look)


def _look() -> Look:
    if not db.fetch(TRY_LOCK)[0][0]:
        return Look()
    for duty in _before:
        _guarded(duty)
    found: dict[str, Cause] = {}
    looked: list[str] = []
    for function in dict.fromkeys(_detectors.values()):
        causes = _guarded(lambda function=function: list(function()))  # type: ignore[misc]
        if causes is not None:
            looked += [kind for kind, other in _detectors.items() if other is function]
            found.update({cause.key[:LONGEST_KEY]: cause for cause in causes})
    params = {**_arrays(found), "looked": looked, "again": conf.get().incident_reopen.total_seconds()}
    changed = Look()
    if found:
        db.fetch(UPDATE, params)
        reopened = len(db.fetch(REOPEN, params))
        changed = Look(opened=len(db.fetch(OPEN, params)), reopened=reopened)
    closed = len(db.fetch(CLOSE, params))
    for duty in _after:
        _guarded(duty)
    told = _tell([*db.fetch(TELL, params), *db.fetch(TELL_CLOSED)])
    return Look(changed.opened, changed.reopened, closed, told)


def open_now(cause: Cause) -> None:
    """Open this cause's incident in the caller's transaction, unless it is open. From the next look on its detector has to find it."""
    db.fetch(LOCK)  # a look that has asked the detectors before would close it
    db.fetch(OPEN, _arrays({cause.key[:LONGEST_KEY]: cause}))


def _guarded(work: Callable[[], Any]) -> Any:
    """The result of `work`, called in a savepoint. If it raises, the error is logged and the result is None."""
    try:
        with transaction.atomic():
            return work()
    except Exception as error:
        if db.passes(error):
            raise
        log.exception("could not look for incidents")
        return None


def _arrays(found: Mapping[str, Cause]) -> dict[str, list[Any]]:
    causes = list(found.values())
    return {
        "kinds": [cause.kind for cause in causes],
        "causes": list(found),
        "titles": [" ".join(cause.title.split())[:LONGEST_TITLE] for cause in causes],
        "severities": [cause.severity for cause in causes],
        "resources": [cause.resource for cause in causes],
        "steps": [cause.step for cause in causes],
        "codes": [cause.code for cause in causes],
        "orders": [cause.orders for cause in causes],
        "sinces": [None if cause.since is None else cause.since.isoformat() for cause in causes],
    }


def _tell(news: Sequence[tuple[int, str]]) -> int:
    """Put the notifications into the outbox: a mail for each change, or one per kind of change if there are many."""
    if not news:
        return 0
    if len(news) <= SINGLE_MAILS:
        payloads = [{"incidents": [number], "event": event} for number, event in news]
    else:
        events = dict.fromkeys(event for _, event in news)
        payloads = [{"incidents": [number for number, other in news if other == event], "event": event} for event in events]
    db.fetch(NOTIFY, {"payloads": [json.dumps(payload) for payload in payloads]})
    tell_channels(news)
    return len(news)


def tell_channels(news: Sequence[tuple[int, str]]) -> None:
    """Put a message for each channel and each of these (incident, event) into the outbox, in the caller's transaction."""
    db.fetch(TELL_CHANNELS, {"incidents": [number for number, _event in news], "events": [event for _number, event in news]})


# ------------------------------------------------------------------------------------------------- held runs


def holding(run_ids: Sequence[int]) -> dict[int, int]:
    """Which open incident holds each of these runs: run -> incident. Runs that none holds, or that have ended, are left out."""
    if not run_ids:
        return {}
    standing = dict(db.run(STANDING))
    if not standing:
        return {}
    found: dict[int, int] = {}
    for function in _holders:
        missing = [run_id for run_id in run_ids if run_id not in found]
        for run_id, causes in function(missing).items() if missing else ():
            number = next((standing[cause] for cause in causes if cause in standing), None)
            if number is not None:
                found.setdefault(run_id, number)
    return found


def standing(cause: str) -> int | None:
    """The id of this cause's open incident, or None."""
    return dict(db.run(STANDING)).get(cause)


def runs_of(kind: str, cause: str) -> list[int]:
    """The runs that this cause holds now."""
    function = _members.get(kind)
    return [] if function is None else list(function(cause))


def held(run_ids: Sequence[int]) -> list[tuple[str, Decimal]]:
    """The value of these runs by currency, as the application calculates it."""
    total: dict[str, Decimal] = {}
    for function in _money if run_ids else ():
        for currency, amount in function(run_ids).items():
            total[currency] = total.get(currency, Decimal(0)) + amount
    return sorted(total.items())
