"""Reconciliation: compares our books with the services' own lists, and settles differences.

The application registers a `Source` for each service. The engine stores the differences that the sources find (`Finding`),
closes those that a later comparison no longer shows, and lets an operator settle the rest. Comparing and settling call
services, so neither happens inside a transaction; each result is written by one guarded statement.

Two comparisons of one service at once would be harmless; an advisory lock avoids them all the same. The findings of a
comparison that dies are true; the next comparison goes on from there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any, Protocol, TypeVar

from django.db import InterfaceError, OperationalError
from django.db.models import BooleanField, ExpressionWrapper, Q
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from supervision.approvals import gate
from supervision.approvals.stakes import Operation
from supervision.errors import ChangedMeanwhile, Refused, SupervisionError
from supervision.models import Finding
from supervision.operations.acting import demand_reason
from supervision.operations.audit_log import Actor, log, name_of
from supervision.postgres import db
from supervision.postgres.params import own_session

logger = logging.getLogger(__name__)
T = TypeVar("T")

ADOPT, REFUND, CANCEL = "adopt", "refund", "cancel"
VERBS = (ADOPT, REFUND, CANCEL)
BATCH = 200
AGAIN = timedelta(days=1)  # each comparison looks this far back behind the last one
SETTLING_SECONDS = 120  # how long one settlement may take before another may begin


class CannotCompare(SupervisionError):
    """The service or the books could not be read, so nothing is known about differences."""

    code = "cannot_compare"


class CannotSettle(SupervisionError):
    """The service did not settle the finding, or we do not know whether it did. The finding stays open."""

    code = "cannot_settle"


@dataclass(frozen=True, kw_only=True)
class Found:
    """One difference, as a source sees it now. The fields are those of `Finding`."""

    kind: str
    order: str = ""
    external_id: str = ""
    key: str = ""
    run_id: int | None = None
    amount: Decimal | None = None
    currency: str = ""
    verbs: tuple[str, ...] = ()
    detail: str = ""

    @property
    def identity(self) -> tuple[str, str, str]:
        """Identifies the same difference in a later comparison."""
        return self.kind, self.order, self.external_id


class Source(Protocol):
    """One service and our books of it."""

    service: str
    look_back: timedelta  # how far a comparison looks back when the caller gives no `since`

    def look(self, since: datetime) -> Iterable[Found]:
        """Every difference among entries that the service or our books date later than `since`. Raises CannotCompare."""

    def again(self, found: Sequence[Found]) -> Iterable[Found]:
        """Which of these differences are still there. Raises CannotCompare."""

    def settle(self, found: Found, verb: str, *, by: str, reason: str, tries: int) -> str:
        """Do what `verb` says, at most once even if called again. Returns the outcome as text.

        tries: how often this was begun, this time included. Raises CannotSettle or CannotCompare.
        """


_sources: dict[str, Source] = {}


def register(source: Source) -> Source:
    """Register the source of a service."""
    _sources[source.service] = source
    return source


def services() -> list[str]:
    """The services that can be compared."""
    return sorted(_sources)


# --------------------------------------------------------------------------------------------------- comparing

_SINCE = """
SELECT now(), least(now() - %(look_back)s::float8 * interval '1 second',
                    (SELECT compared_at - %(again)s::float8 * interval '1 second'
                       FROM supervision_reconciliation WHERE service = %(service)s))
"""
_COMPARED = """
INSERT INTO supervision_reconciliation (service, compared_at, last_error) VALUES (%(service)s, %(began)s, '')
    ON CONFLICT (service) DO UPDATE
   SET compared_at = greatest(excluded.compared_at, supervision_reconciliation.compared_at), failing_since = NULL, last_error = ''
"""
# A `since` later than the usual one leaves a gap in time, so `compared_at` stays as it is.
_COMPARED_PART = "UPDATE supervision_reconciliation SET failing_since = NULL, last_error = '' WHERE service = %(service)s"
_FAILED = """
INSERT INTO supervision_reconciliation (service, failing_since, last_error) VALUES (%(service)s, now(), %(error)s)
    ON CONFLICT (service) DO UPDATE
   SET failing_since = coalesce(supervision_reconciliation.failing_since, now()), last_error = excluded.last_error
"""
# A difference that an operator has adopted is not reported again while its amount is the same.
_RECORD = """
INSERT INTO supervision_finding (service, kind, order_key, external_id, key, run_id, amount, currency, verbs, detail)
SELECT %(service)s, v.kind, v.order_key, v.external_id, v.key, v.run_id, v.amount, v.currency, v.verbs, v.detail
  FROM unnest(%(kinds)s::text[], %(orders)s::text[], %(external_ids)s::text[], %(keys)s::text[], %(runs)s::bigint[],
              %(amounts)s::numeric[], %(currencies)s::text[], %(verbs)s::jsonb[], %(details)s::text[])
         v(kind, order_key, external_id, key, run_id, amount, currency, verbs, detail)
 WHERE NOT EXISTS (SELECT 1 FROM supervision_finding a
                    WHERE a.service = %(service)s AND a.kind = v.kind AND a.order_key = v.order_key
                      AND a.external_id = v.external_id AND a.verb = 'adopt' AND a.closed_at IS NOT NULL
                      AND a.amount IS NOT DISTINCT FROM v.amount)
 ORDER BY v.kind, v.order_key, v.external_id
    ON CONFLICT (service, kind, order_key, external_id) WHERE closed_at IS NULL DO UPDATE
   SET seen_at = now(), key = excluded.key, run_id = excluded.run_id, amount = excluded.amount,
       currency = excluded.currency, verbs = excluded.verbs, detail = excluded.detail
RETURNING id
"""
_UNSEEN = """
SELECT id FROM supervision_finding
 WHERE service = %(service)s AND closed_at IS NULL AND seen_at < %(began)s AND id > %(after)s ORDER BY id LIMIT %(limit)s
"""
_GONE = """
UPDATE supervision_finding SET closed_at = now(), outcome = %(outcome)s
 WHERE id = ANY (%(ids)s) AND closed_at IS NULL AND seen_at < %(began)s AND coalesce(settling_until, '-infinity') < now()
RETURNING id
"""


def compare(service: str, since: datetime | None = None) -> int:
    """Compare our books with one service; returns how many differences it shows. `findings` lists the open ones.

    since: how far to look back. Default: as far as the source says, and at least to the last comparison.
    Raises CannotCompare where service or books cannot be read, and Refused while another comparison is under way.
    """
    source = _sources[service]
    with _alone(service):
        try:
            return _compare(source, since)
        except CannotCompare as problem:
            db.run(_FAILED, {"service": service, "error": str(problem)[:500]})
            raise
        except (OperationalError, InterfaceError):
            raise
        except Exception as error:
            logger.exception("%s: the comparison ended with an error of the program", service)
            why = f"{type(error).__name__}: an error of the program, which the log has"
            db.run(_FAILED, {"service": service, "error": why})
            raise CannotCompare(why) from error


def _compare(source: Source, since: datetime | None) -> int:
    seconds = {"look_back": source.look_back.total_seconds(), "again": AGAIN.total_seconds()}
    began, usual = db.run(_SINCE, {"service": source.service, **seconds})[0]
    shown = 0
    for batch in batched(source.look(since or usual), BATCH):
        shown += len(_record(source.service, batch))
    _look_again(source, began)
    db.run(_COMPARED if since is None or since <= usual else _COMPARED_PART, {"service": source.service, "began": began})
    return shown


def _look_again(source: Source, began: datetime) -> None:
    """Ask again about open findings that the lists did not show: they are older than the compared time, or no longer true."""
    after = 0
    while True:
        params = {"service": source.service, "began": began, "after": after, "limit": BATCH}
        ids = [number for (number,) in db.run(_UNSEEN, params)]
        if not ids:
            return
        after = ids[-1]
        asked = {_as_found(row).identity: row.pk for row in Finding.objects.filter(pk__in=ids)}
        still = list(source.again([_as_found(row) for row in Finding.objects.filter(pk__in=ids)]))
        _record(source.service, still)
        gone = [number for identity, number in asked.items() if identity not in {one.identity for one in still}]
        db.run(_GONE, {"ids": gone, "began": began, "outcome": "gone: a later look no longer shows it"})


def note(service: str, found: Sequence[Found]) -> None:
    """Record these differences, which the caller has just seen, and ask again: one that was settled meanwhile is closed."""
    if not found:
        return
    ids = _record(service, found)
    began = db.run("SELECT now()")[0][0]
    still = {one.identity for one in _sources[service].again(found)}
    gone = [row.pk for row in Finding.objects.filter(pk__in=ids) if _as_found(row).identity not in still]
    db.run(_GONE, {"ids": gone, "began": began, "outcome": "gone: a later look no longer shows it"})


def _record(service: str, found: Sequence[Found]) -> list[int]:
    unique = {one.identity: one for one in found}
    rows = list(unique.values())
    if not rows:
        return []
    params = {
        "service": service,
        "kinds": [one.kind for one in rows],
        "orders": [one.order for one in rows],
        "external_ids": [one.external_id for one in rows],
        "keys": [one.key for one in rows],
        "runs": [one.run_id for one in rows],
        "amounts": [None if one.amount is None else str(one.amount) for one in rows],
        "currencies": [one.currency.upper() for one in rows],
        "verbs": [json.dumps(one.verbs) for one in rows],
        "details": [one.detail[:500] for one in rows],
    }
    return [number for (number,) in db.run(_RECORD, params)]


@contextmanager
def _alone(service: str) -> Iterator[None]:
    """Hold the service's advisory lock during the block; it ends with the connection. Raises Refused where another session has it."""
    with own_session(), _locked(service):
        yield


@contextmanager
def _locked(service: str) -> Iterator[None]:
    name = {"name": f"reconcile:{service}"}
    if not db.run("SELECT pg_try_advisory_lock(hashtextextended(%(name)s, 0))", name)[0][0]:
        raise Refused(_("%(service)s is being compared already.") % {"service": service}, "under_way")
    try:
        yield
    finally:
        db.run("SELECT pg_advisory_unlock(hashtextextended(%(name)s, 0))", name)


# ---------------------------------------------------------------------------------------------------- settling

_BEGIN = """
UPDATE supervision_finding
   SET settling_until = now() + %(seconds)s::float8 * interval '1 second', tries = tries + 1
 WHERE id = %(id)s AND closed_at IS NULL AND coalesce(settling_until, '-infinity') < now()
RETURNING tries
"""
_SETTLED = """
UPDATE supervision_finding
   SET closed_at = now(), verb = %(verb)s, settled_by = %(by)s, reason = %(reason)s, outcome = %(outcome)s,
       settling_until = NULL, last_error = ''
 WHERE id = %(id)s AND closed_at IS NULL AND tries = %(tries)s
RETURNING id
"""
_NOT_SETTLED = """
UPDATE supervision_finding SET settling_until = NULL, last_error = %(error)s
 WHERE id = %(id)s AND closed_at IS NULL AND tries = %(tries)s
"""


def findings(service: str | None = None) -> list[Finding]:
    """Open findings, the oldest first."""
    rows = Finding.objects.filter(closed_at__isnull=True, **({"service": service} if service else {}))
    return list(rows.order_by("pk"))


def settle(number: int, verb: str, *, by: Actor, reason: str) -> str:
    """Settle one finding; returns the outcome as text. A repeated call does nothing more.

    Raises AwaitsApproval where another operator has to approve it.
    Raises Refused where the verb does not fit, ChangedMeanwhile where the finding is closed or another call is settling it,
    and CannotSettle or CannotCompare where the service did not do it: the finding stays open and can be settled again.
    """
    demand_reason(reason)
    finding = Finding.objects.filter(pk=number).first()
    if finding is None:
        raise Refused(_("There is no finding %(number)s.") % {"number": number}, "unknown_finding")
    if finding.closed_at is not None:
        raise ChangedMeanwhile(_("Finding %(number)s is closed: %(how)s") % {"number": number, "how": finding.outcome})
    if verb not in finding.verbs:
        said = ", ".join(finding.verbs) or "-"
        raise Refused(
            _("%(verb)s does not settle finding %(number)s (%(kind)s); allowed verbs: %(verbs)s.")
            % {"verb": verb, "number": number, "kind": finding.kind, "verbs": said},
            "wrong_verb",
        )
    gate.asking(lambda: gate.through(_operation(finding, verb), by=by, reason=reason))
    begun = db.run(_BEGIN, {"id": number, "seconds": SETTLING_SECONDS})
    if not begun:
        raise ChangedMeanwhile(_("Finding %(number)s is already being settled.") % {"number": number})
    tries = begun[0][0]
    try:
        outcome = _sources[finding.service].settle(_as_found(finding), verb, by=name_of(by), reason=reason, tries=tries)
    except (CannotSettle, CannotCompare, Refused) as problem:
        db.run(_NOT_SETTLED, {"id": number, "tries": tries, "error": str(problem)[:500]})
        raise
    _close(finding, verb, by, reason, outcome, tries)
    return outcome


def _operation(finding: Finding, verb: str) -> Operation:
    """Settling it, for the gate: `refund` and `cancel` give the amount back, `adopt` accepts that it is gone or too much."""
    stake = {finding.currency: finding.amount} if finding.amount else {}
    return Operation(
        verb="settle", subject=str(finding.pk), order=finding.order_key, arguments={"verb": verb}, stake=stake,
        plan_version=f"{finding.kind} {finding.amount}",
    )  # fmt: skip


@gate.executor("settle", calls_services=True)
def _settle_approved(number: str, /, *, by: Actor, reason: str, plan_version: str | None, **arguments: Any) -> str:
    """Settle it, unless an earlier try that died has done so, or may still be at it."""
    finding = Finding.objects.annotate(busy=ExpressionWrapper(Q(settling_until__gt=Now()), BooleanField())).get(pk=int(number))
    if finding.closed_at is not None and (finding.verb, finding.settled_by) == (arguments["verb"], by):
        return finding.outcome
    if finding.closed_at is None and finding.busy:
        raise gate.NotYet(f"finding {number} is being settled")
    return settle(finding.pk, arguments["verb"], by=by, reason=reason)


def _close(finding: Finding, verb: str, by: Actor, reason: str, outcome: str, tries: int) -> None:
    params = {"id": finding.pk, "verb": verb, "by": name_of(by), "reason": reason, "outcome": outcome[:500], "tries": tries}

    def work() -> None:
        if db.fetch(_SETTLED, params):
            log(by, finding, f"{verb}: {reason} ({outcome})")

    db.transact(work)


def _as_found(row: Finding) -> Found:
    return Found(
        kind=row.kind,
        order=row.order_key,
        external_id=row.external_id,
        key=row.key,
        run_id=row.run_id,
        amount=row.amount,
        currency=row.currency,
        verbs=tuple(row.verbs),
        detail=row.detail,
    )


def batched(items: Iterable[T], size: int = BATCH) -> Iterator[list[T]]:
    """The items in lists of at most `size`."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
