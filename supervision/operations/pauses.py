"""Pauses: schedulers claim no steps of one order, one agent, one workflow, or of all.

A pause stops only claims: claimed steps are performed, running steps finish, submissions are still consumed. A pause is a
row, so it survives every restart. A pause with an `until` ends by itself. The rows are also the history: a second pause of
the same thing ends the old row and writes a new one, so that actor, reason and time of both are kept.

An order can be paused before it has a run. The submission's row lock decides the race with a consumer: either the consumer
writes the run first, and the pause is bound to that run, or the consumer finds the pause and binds it to the run that it writes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from supervision.agent import agents
from supervision.approvals import rights
from supervision.errors import Refused, UnknownRun
from supervision.models import ArchivedRun, Pause, Run, Submission
from supervision.operations.acting import demand_reason
from supervision.operations.audit_log import Actor, log, name_of
from supervision.postgres import db
from supervision.states import FINAL_RUN_STATES
from supervision.wakeup import hints
from supervision.workflow import workflows

LONGEST = timedelta(days=3650)
_DURATION = re.compile(r"(?:(\d{1,4})d)?(?:(\d{1,5})h)?(?:(\d{1,6})m)?(?:(\d{1,8})s)?")

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('pause ' || %(scope)s || ' ' || %(name)s, 20261121))"

# Ends the row that the new one replaces. If its `until` has passed, it ended then. A pause in force ends now.
_REPLACE = """
UPDATE supervision_pause
   SET lifted_at = least(until, now()), lifted_by = CASE WHEN until <= now() THEN '' ELSE %(by)s END,
       lift_reason = CASE WHEN until <= now() THEN '' ELSE %(reason)s END
 WHERE scope = %(scope)s AND name = %(name)s AND lifted_at IS NULL
"""
_PAUSE = """
INSERT INTO supervision_pause (scope, name, run_id, reason, paused_by, paused_at, until)
SELECT %(scope)s, %(name)s, %(run)s, %(reason)s, %(by)s, now(), u.until
  FROM (SELECT coalesce(%(at)s::timestamptz, now() + %(seconds)s::float8 * interval '1 s') AS until) u
 WHERE u.until IS NULL OR u.until > now()
RETURNING id
"""
_LIFT = """
UPDATE supervision_pause SET lifted_at = now(), lifted_by = %(by)s, lift_reason = %(reason)s
 WHERE scope = %(scope)s AND name = %(name)s AND (%(pk)s::bigint IS NULL OR id = %(pk)s)
   AND lifted_at IS NULL AND (until IS NULL OR until > now())
RETURNING id
"""


def pause(scope: str, name: str = "", *, reason: str, by: Actor, until: datetime | timedelta | None = None) -> Pause:
    """Stop claims in this scope; returns the pause. It replaces an earlier pause of the same thing.

    scope: all, workflow, agent or order. name: the workflow's, the agent's, or the order's public id.
    until: when it ends by itself, by the database's clock. None: it lasts until it is lifted.
    Raises Refused (or UnknownRun) where nothing has this name, the order has ended, or `until` has passed.
    """
    demand_reason(reason)
    rights.demand(by, "pause")
    made = db.transact(lambda: _pause(scope, name, reason, by, until))
    return Pause.objects.get(pk=made)


def _pause(scope: str, name: str, reason: str, by: Actor, until: datetime | timedelta | None) -> int:
    _known(scope, name)
    facts = {"scope": scope, "name": name, "reason": reason, "by": name_of(by)}
    db.fetch(_LOCK, facts)
    run_id = _run_of(name) if scope == Pause.Scope.ORDER else None
    seconds = until.total_seconds() if isinstance(until, timedelta) else None
    db.fetch(_REPLACE, facts)
    rows = db.fetch(_PAUSE, {**facts, "run": run_id, "seconds": seconds, "at": until if isinstance(until, datetime) else None})
    if not rows:
        raise Refused(_("until: that moment has passed already."), "until_has_passed")
    log(by, Pause.objects.get(pk=rows[0][0]), f"pause: {reason}")
    return int(rows[0][0])


def lift(scope: str, name: str = "", *, by: Actor, reason: str = "", pk: int | None = None) -> Pause:
    """End the pause at once and return it. Raises Refused where no such pause is in force.

    pk: the pause that the caller saw. A newer pause in its place is left alone.
    """

    rights.demand(by, "pause")

    def work() -> int:
        rows = db.fetch(_LIFT, {"scope": scope, "name": name, "by": name_of(by), "reason": reason, "pk": pk})
        if not rows:
            raise Refused(_("%(what)s is not paused any more, or never was.") % {"what": label(scope, name)}, "not_paused")
        log(by, Pause.objects.get(pk=rows[0][0]), f"resume: {reason}".removesuffix(": "))
        return int(rows[0][0])

    ended = db.transact(work)
    hints.send(hints.SCHEDULE)
    return Pause.objects.get(pk=ended)


def active() -> QuerySet[Pause]:
    """The pauses in force, newest first. Pauses of orders that have ended meanwhile have no effect and are left out."""
    return in_force(Pause.objects.all()).exclude(run__finished_at__isnull=False).order_by("-paused_at", "-pk")


def in_force(rows: QuerySet[Pause]) -> QuerySet[Pause]:
    """The pauses among `rows` that still stop claims, by the database's clock."""
    return rows.filter(Q(until__isnull=True) | Q(until__gt=Now()), lifted_at__isnull=True)


def label(scope: str, name: str) -> str:
    """What a pause covers, as text."""
    match scope:
        case Pause.Scope.ALL:
            return _("Everything")
        case Pause.Scope.WORKFLOW:
            return _("The workflow %(name)s") % {"name": name}
        case Pause.Scope.AGENT:
            return _("The agent %(name)s") % {"name": name}
    return _("The order %(name)s") % {"name": name}


def names(scope: str) -> list[str]:
    """The names of the agents or the workflows that the running code knows."""
    if scope == Pause.Scope.AGENT:
        return [agent.name for agent in agents()]
    return sorted({workflow.name for workflow in workflows()}) if scope == Pause.Scope.WORKFLOW else []


def read_until(text: str) -> datetime | timedelta:
    """`2026-11-21T14:05` (or with its zone), `15m`, `2h`, `1d12h`, at most LONGEST from now. Raises ValueError with what was expected."""
    text = text.strip()
    parts = _DURATION.fullmatch(text)
    if text and parts:
        days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if timedelta(0) < span <= LONGEST:
            return span
        raise ValueError(_("Expected a duration of more than nothing and at most ten years."))
    try:
        moment = parse_datetime(text)
        if moment is not None and timezone.is_naive(moment):
            moment = timezone.make_aware(moment)
    except (ValueError, OverflowError):
        moment = None
    if moment is None:
        raise ValueError(_("Expected a time such as 2026-11-21T14:05, or a duration such as 15m or 2h."))
    if moment - db.run("SELECT now()")[0][0] > LONGEST:
        raise ValueError(_("Expected a time at most ten years from now."))
    return moment


def _known(scope: str, name: str) -> None:
    if scope not in Pause.Scope.values:
        raise Refused(_("There is no scope %(scope)s; there are: %(known)s.") % _said(scope, Pause.Scope.values), "unknown_scope")
    if scope == Pause.Scope.ALL and name:
        raise Refused(_("name: a pause of everything has none."), "unknown_name")
    if scope == Pause.Scope.AGENT and name not in (known := names(scope)):
        raise Refused(_("name: there is no agent %(scope)s; there are: %(known)s.") % _said(name, known), "unknown_name")
    if scope == Pause.Scope.WORKFLOW and name not in (known := names(scope)):
        raise Refused(_("name: there is no workflow %(scope)s; there are: %(known)s.") % _said(name, known), "unknown_name")


def _said(word: str, known: Sequence[str]) -> dict[str, str]:
    return {"scope": repr(word[:100]), "known": ", ".join(known)}


def _run_of(key: str) -> int | None:
    submission = Submission.objects.select_for_update().filter(public_id=key).first()
    run = Run.objects.filter(key=key).first()
    if run is None and ArchivedRun.objects.filter(key=key).exists():
        raise Refused(_("The order ended long ago and is archived: nothing about it can be changed."), "archived")
    if run is None and submission is None:
        raise UnknownRun(key)
    if run is not None and run.process_state in FINAL_RUN_STATES:
        raise Refused(_("The order is %(state)s: nothing of it is left to pause.") % {"state": run.process_state}, "has_ended")
    return run.pk if run is not None else None
