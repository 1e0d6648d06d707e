"""Requests that wait: the incident that tells the other operators, the end of those that were not decided, and reads."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils.translation import ngettext

from supervision.approvals.stakes import in_words
from supervision.incidents.lifecycle import WARNING, Cause, before_looking, detector, members
from supervision.models import Approval
from supervision.postgres import db

KIND = "approval"
SHOWN_OF_AN_ORDER = 20
ONE_BY_ONE = 20  # reasons of one operator and verb that have an incident each

_EXPIRE = """
UPDATE supervision_approval
   SET state = 'expired', decided_at = now(), arguments = arguments - ARRAY['amend', 'result', 'payload']
 WHERE state = 'pending' AND expires_at <= now()
"""
# Requests of one operator for the same verb and the same reason are one cause: those of a bulk verb are told of once.
_CAUSES = """
SELECT asked_by, verb, reason, count(*), min(asked_at), jsonb_agg(stake) FROM supervision_approval
 WHERE state = 'pending' AND expires_at > now() GROUP BY 1, 2, 3 ORDER BY 1, 2, 5
"""
_RUNS = """
SELECT asked_by, verb, reason, run_id FROM supervision_approval
 WHERE state = 'pending' AND expires_at > now() AND run_id IS NOT NULL
"""


@before_looking
def expire() -> None:
    """End the requests that no operator has decided in time. `approve` takes none of them, whether they are ended or not."""
    db.run(_EXPIRE)


@detector(KIND)
def requests() -> Iterator[Cause]:
    """Requests that wait for another operator. Of one operator and verb with more than ONE_BY_ONE reasons all are one cause."""
    by_verb: dict[tuple[str, str], list[tuple[Any, ...]]] = {}
    for asked_by, verb, reason, count, since, asked in db.fetch(_CAUSES):
        by_verb.setdefault((asked_by, verb), []).append((reason, count, since, asked))
    for (asked_by, verb), rows in by_verb.items():
        if len(rows) <= ONE_BY_ONE:
            for row in rows:
                yield _cause(asked_by, verb, row[0], [row])
        else:
            yield _cause(asked_by, verb, None, rows)


def _cause(asked_by: str, verb: str, reason: str | None, rows: Sequence[tuple[Any, ...]]) -> Cause:
    total: dict[str, Decimal] = {}
    for amount, currency in (pair for _reason, _count, _since, asked in rows for one in asked for pair in one):
        total[currency] = total.get(currency, Decimal(0)) + Decimal(amount)
    count, since = sum(row[1] for row in rows), min(row[2] for row in rows)
    title = ngettext(
        "%(who)s asks another operator to approve: %(verb)s, %(amounts)s. %(reason)s",
        "%(who)s asks another operator to approve %(n)d times: %(verb)s, %(amounts)s. %(reason)s",
        count,
    ) % {"who": asked_by, "n": count, "verb": verb, "amounts": in_words(total), "reason": reason or f"{rows[0][0]} …"}
    return Cause(kind=KIND, key=_key(asked_by, verb, reason), title=title, severity=WARNING, orders=count, since=since)


@members(KIND)
def runs(cause: str) -> Sequence[int]:
    """The runs of the orders that these requests are about."""
    return [run for asked_by, verb, reason, run in db.fetch(_RUNS) if cause in (_key(asked_by, verb, reason), _key(asked_by, verb, None))]


def _key(asked_by: str, verb: str, reason: str | None) -> str:
    """The key of the cause. reason: None for all reasons."""
    return f"{KIND}:{verb}:{hashlib.sha256(repr((asked_by, reason)).encode()).hexdigest()[:16]}"


def pending() -> QuerySet[Approval]:
    """The requests that an operator can decide now, the oldest first."""
    return Approval.objects.filter(state=Approval.State.PENDING, expires_at__gt=Now()).order_by("pk")


def of_order(key: str) -> list[Approval]:
    """The newest requests about this order."""
    return list(Approval.objects.filter(order_key=key).order_by("-pk")[:SHOWN_OF_AN_ORDER])


def facts(row: Approval) -> dict[str, Any]:
    """One request for a client or a script; the names and their order are stable."""
    return {
        "id": row.pk,
        "state": row.state,
        "verb": row.verb,
        "order": row.order_key or None,
        "step": row.step or None,
        "stake": [{"amount": amount, "currency": currency} for amount, currency in row.stake],
        "plan_version": row.plan_version or None,
        "reason": row.reason,
        "asked_by": row.asked_by,
        "asked_at": row.asked_at,
        "expires_at": row.expires_at,
        "decided_by": row.decided_by or None,
        "decided_at": row.decided_at,
        "decision_reason": row.decision_reason or None,
        "carried_out_at": row.carried_out_at,
        "outcome": row.outcome or None,
    }
