"""Turns the findings of reconciliation into causes of incidents: one for each kind of finding at each service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop as _n

from supervision.incidents import lifecycle
from supervision.incidents.lifecycle import Cause
from supervision.postgres import db

KIND = "reconciliation"
TITLES = {
    "orphan_charge": _n("charged without an order, or twice"),
    "orphan_shipment": _n("a shipment without an order, or a second one"),
    "missing_charge": _n("a fulfilled order without a charge"),
    "missing_shipment": _n("a fulfilled order without a shipment"),
    "amount": _n("another amount charged than the order's total"),
    "dispute": _n("a charge that the customer disputes"),
    "refunded_elsewhere": _n("money given back at the service itself"),
    "live_after_cancel": _n("a cancelled order's charge or shipment that still stands"),
    "kept_by_decision": _n("what an operator has left in place when an order was cancelled without undo"),
    "open_payment": _n("a fulfilled order's payment that can still be made, or whose amount is still reserved"),
    "refund_failed": _n("a refund that failed after it was accepted"),
}
# The customer has paid without a delivery, or has not received a refund that is owed.
_GRAVE = frozenset({"orphan_charge", "live_after_cancel", "refund_failed"})

ONE_BY_ONE = 20  # failed refunds that have an incident each; more are one incident

_OPEN = """
SELECT service, kind, count(*), min(found_at) FROM supervision_finding WHERE closed_at IS NULL GROUP BY service, kind ORDER BY 1, 2
"""
_EACH = """
SELECT id, order_key, amount, currency, found_at FROM supervision_finding
 WHERE closed_at IS NULL AND service = %(service)s AND kind = 'refund_failed' ORDER BY id
"""
_FAILING = "SELECT service, failing_since, last_error FROM supervision_reconciliation WHERE failing_since IS NOT NULL ORDER BY 1"


@lifecycle.detector(KIND)
def standing() -> Iterator[Cause]:
    """The open findings, counted by service and kind, and the services whose comparison fails."""
    for service, kind, count, since in db.run(_OPEN):
        if kind == "refund_failed" and count <= ONE_BY_ONE:
            yield from _each(service)
            continue
        yield Cause(
            kind=KIND,
            key=f"{KIND}:{service}:{kind}",
            title=_("%(service)s: %(what)s (%(count)s found; manage.py reconcile lists and settles them)")
            % {"service": service, "what": _(TITLES.get(kind, kind)), "count": count},
            severity=lifecycle.CRITICAL if kind in _GRAVE else lifecycle.WARNING,
            resource=service,
            code=kind,
            orders=count,
            since=since,
        )
    for service, since, error in db.run(_FAILING):
        yield Cause(
            kind=KIND,
            key=f"{KIND}:{service}",
            title=_("%(service)s cannot be compared with our books: %(error)s") % {"service": service, "error": error},
            resource=service,
            code="cannot_compare",
            since=since,
        )


def _each(service: str) -> Iterator[Cause]:
    """One cause for each failed refund: each is told once."""
    for number, order, amount, currency, since in db.run(_EACH, {"service": service}):
        facts = {"service": service, "amount": f"{amount:.2f} {currency}", "order": order, "number": number}
        text = _("%(service)s: the refund of %(amount)s for order %(order)s has failed: manage.py reconcile %(number)s --settle refund")
        yield Cause(
            kind=KIND,
            key=f"{KIND}:{service}:refund_failed:{number}",
            title=text % facts,
            severity=lifecycle.CRITICAL,
            resource=service,
            code="refund_failed",
            orders=1,
            since=since,
        )


_RUNS = """
SELECT DISTINCT run_id FROM supervision_finding
 WHERE closed_at IS NULL AND service = %(service)s AND kind = %(kind)s AND run_id IS NOT NULL
   AND (%(number)s = '' OR id::text = %(number)s)
"""


@lifecycle.members(KIND)
def concerned(key: str) -> Sequence[int]:
    """The runs that one kind of finding concerns, as far as our books know them."""
    _kind, _colon, rest = key.partition(":")
    service, kind, number = [*rest.split(":", 2), "", ""][:3]
    return [run_id for (run_id,) in db.run(_RUNS, {"service": service, "kind": kind, "number": number})]
