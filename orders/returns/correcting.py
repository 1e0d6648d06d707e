"""Corrects a warehouse's report on a return that was wrong: which pieces came, and which of them were accepted.

Before the return was paid, the correction changes what is restocked and paid back: the steps read the return's lines, which keep in
`reported` what the run was told. After it was paid, pieces that were missed are paid by a refund of their own. Money for pieces that
did not come cannot be fetched back: the correction records it (`too_much`). Such a piece stays held, so it is not paid twice.

The run, its order and the pieces are locked, in this order, while the correction is written. One statement counts it, if the return
has as many corrections as the operator saw. Its row, stock, lines, refund, books and audit entry commit together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from orders import accounting
from orders.later_requests import check_key, digest_of
from orders.models import Order, Return, ReturnCorrection
from orders.queries import OrderView, order_view
from orders.refunds.accepting import accept_refund
from orders.refunds.asking import left
from orders.returns import codes
from orders.returns.correction_plan import Plan, plan_of
from orders.returns.goods import Unreadable
from orders.services import Conflict, KeyReused, OrderRefused
from supervision.approvals import gate
from supervision.approvals.stakes import Operation
from supervision.errors import ChangedMeanwhile, Refused, UnknownRun
from supervision.journal import entries
from supervision.operations.acting import demand_reason, locked_run
from supervision.operations.audit_log import log, name_of
from supervision.operations.previews import as_it_is
from supervision.postgres import db

_COUNT = """
UPDATE orders_return SET corrections = corrections + 1
 WHERE public_id = %(back)s AND corrections = %(seen)s RETURNING corrections
"""
_LOCK_PIECES = "SELECT FROM orders_returnable WHERE order_key = %(order)s ORDER BY sku FOR NO KEY UPDATE"
_LOCK_PRODUCTS = "SELECT FROM orders_product WHERE sku = ANY (%(skus)s::text[]) ORDER BY sku FOR NO KEY UPDATE"
_HOLD = """
UPDATE orders_returnable r SET returned = r.returned + v.pieces FROM unnest(%(skus)s::text[], %(pieces)s::int[]) v(sku, pieces)
 WHERE r.order_key = %(order)s AND r.sku = v.sku AND r.returned + v.pieces BETWEEN 0 AND r.delivered RETURNING r.sku
"""
# Of the pieces that are to be held at a price, those of which the order has not so many: another return may have taken them meanwhile.
_BEYOND_PRICE = """
SELECT v.sku FROM unnest(%(skus)s::text[], %(prices)s::numeric[], %(pieces)s::int[]) v(sku, unit_price, pieces)
 WHERE v.pieces + coalesce((SELECT sum(l.holds) FROM orders_returnline l JOIN orders_return t ON t.id = l.of_id
                             WHERE t.order_key = %(order)s AND l.sku = v.sku AND l.unit_price = v.unit_price), 0)
       > coalesce((SELECT sum(b.quantity) FROM orders_orderline b JOIN orders_order o ON o.id = b.order_id
                    WHERE o.public_id = %(order)s AND b.sku = v.sku AND b.unit_price = v.unit_price), 0)
"""
_STOCK = """
UPDATE orders_product p SET available = p.available + v.pieces FROM unnest(%(skus)s::text[], %(pieces)s::int[]) v(sku, pieces)
 WHERE p.sku = v.sku AND p.available + v.pieces >= 0 RETURNING p.sku
"""
_LINES = """
UPDATE orders_returnline l
   SET accepted = v.accepted, refused = v.refused, holds = v.holds, restocked = v.restocked, reported = coalesce(l.reported, l.accepted)
  FROM unnest(%(ids)s::bigint[], %(accepted)s::int[], %(refused)s::int[], %(holds)s::int[], %(restocked)s::int[])
       v(id, accepted, refused, holds, restocked)
 WHERE l.id = v.id RETURNING l.id
"""


def plan(public_id: str, report: Mapping[str, Any]) -> Plan:
    """What a correction to this report would do now; it changes nothing. Raises UnknownRun, Unreadable, and Refused where it cannot be."""
    return _plan(public_id, report, locked=False)[0]


def correct(
    public_id: str, report: Mapping[str, Any], *, reason: str, by: Any, idempotency_key: str, version: int | None = None
) -> ReturnCorrection:
    """Correct the report on this return; returns the correction. The same key has one effect.

    report: as the warehouse reports (`orders.returns.goods`), whole. version: the corrections that the caller saw; None: any number.
    Raises UnknownRun; Unreadable, which names the field; KeyReused; ChangedMeanwhile; Refused where it cannot be; AwaitsApproval where
    another operator has to approve the money that goes out. Then nothing was written.
    """
    demand_reason(reason)
    check_key(idempotency_key)
    # Sorted: an approved request comes back from the database, which keeps the names of an object in an order of its own.
    digest = digest_of(json.dumps(report, sort_keys=True), gate.reason_asked(reason))

    def work() -> ReturnCorrection:
        if before := _seen(public_id, idempotency_key, digest):
            return before
        found, row = _plan(public_id, report, locked=True)
        if before := _seen(public_id, idempotency_key, digest):  # it was committed before the lock was given
            return before
        seen = found.version if version is None else version
        arguments = {"report": dict(report), "idempotency_key": idempotency_key, "version": seen}
        stake = {row.currency: found.further or found.goes_out}
        operation = Operation(verb=codes.CORRECT, subject=public_id, order=row.order_key, arguments=arguments, stake=stake)
        gate.through(operation, by=by, reason=reason)
        numbers = db.fetch(_COUNT, {"back": public_id, "seen": seen})
        if not numbers:
            raise ChangedMeanwhile(_("This return was corrected meanwhile: look at it again."))
        facts = {"number": numbers[0][0], "key": idempotency_key, "digest": digest, "reason": reason, "asked_by": name_of(by)}
        return _write(row, found, by=by, facts=facts)

    return gate.asking(lambda: db.transact(work))


@gate.executor(codes.CORRECT)
def _approved(public_id: str, /, *, by: Any, reason: str, plan_version: str | None, **arguments: Any) -> str:
    """Correct a report as a second operator has approved it. Raises Refused where it is not possible any more."""
    told = {"idempotency_key": arguments["idempotency_key"], "version": arguments["version"]}
    try:
        made = correct(public_id, arguments["report"], reason=reason, by=by, **told)
    except (OrderRefused, Unreadable) as problem:
        raise Refused(str(problem)) from problem
    return f"{made.return_key}: {made.number}"


def _seen(public_id: str, key: str, digest: str) -> ReturnCorrection | None:
    """The correction under this key. Raises KeyReused if it said something else."""
    known = ReturnCorrection.objects.filter(return_key=public_id, key=key).first()
    if known is not None and known.digest != digest:
        raise KeyReused
    return known


def _plan(public_id: str, report: Mapping[str, Any], *, locked: bool) -> tuple[Plan, Return]:
    row = Return.objects.filter(public_id=public_id).first()
    if row is None:
        raise UnknownRun(public_id)
    run = locked_run(public_id) if locked else as_it_is(public_id)
    if locked:
        if Order.objects.select_for_update(no_key=True).filter(public_id=row.order_key).first() is None:  # it has left for the archive
            raise UnknownRun(public_id)
        db.fetch(_LOCK_PIECES, {"order": row.order_key})
        db.fetch(_LOCK_PRODUCTS, {"skus": sorted({line.sku for line in row.lines.all()})})
    return plan_of(row, run, report), row


def _write(row: Return, found: Plan, *, by: Any, facts: Mapping[str, Any]) -> ReturnCorrection:
    if lost := _beyond_price(row.order_key, found) or _not_changed(_HOLD, found.held, order=row.order_key):
        text = _("So many pieces of %(sku)s were not bought, or come back in another return.") % {"sku": lost}
        raise Refused(text, codes.BEYOND)
    if lost := _not_changed(_STOCK, found.stock):
        raise Refused(_("%(sku)s was sold again: the pieces cannot be taken out of stock.") % {"sku": lost}, codes.SOLD_AGAIN)
    columns = ("ids", "accepted", "refused", "holds", "restocked")
    rows = [(line.id, line.accepted, line.refused, line.holds, line.restocked) for line in found.lines]
    db.fetch(_LINES, dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True)))
    refund, further = _pay(row, found, by=by, reason=facts["reason"], number=facts["number"])
    lines = [line.told() for line in found.lines]
    made = ReturnCorrection.objects.create(
        return_key=row.public_id, lines=lines, paid=found.paid, too_much=found.too_much, further=further, refund=refund, **facts
    )
    entries.append(accounting.KEY, [_event(row, made, found)])
    log(by, row, f"correct: {facts['reason']} ({found.in_words()})")
    return made


def _beyond_price(order: str, found: Plan) -> str:
    """The products of which the order has not so many pieces at a price; empty if there are none. The order's pieces are locked."""
    more = [(line.was.sku, line.was.unit_price, line.holds - line.was.holds) for line in found.lines if line.holds > line.was.holds]
    if not more:
        return ""
    columns = dict(zip(("skus", "prices", "pieces"), map(list, zip(*more, strict=True)), strict=True))
    return ", ".join(sorted({sku for (sku,) in db.fetch(_BEYOND_PRICE, {"order": order, **columns})}))


def _not_changed(statement: str, pieces: Mapping[str, int], **more: Any) -> str:
    """Change these numbers of pieces in one guarded statement; the products for which it did not win, empty if there are none."""
    wanted = {sku: count for sku, count in sorted(pieces.items()) if count}
    if not wanted:
        return ""
    won = {sku for (sku,) in db.fetch(statement, {"skus": list(wanted), "pieces": list(wanted.values()), **more})}
    return ", ".join(sorted(wanted.keys() - won))


def _pay(row: Return, found: Plan, *, by: Any, reason: str, number: int) -> tuple[str, Decimal]:
    """The refund for the pieces that were missed, and its amount; at most what is left of the charge."""
    if not found.further:
        return "", found.further
    order, view = Order.objects.get(public_id=row.order_key), order_view(row.order_key)
    amount = Decimal("0.00") if view is None else min(found.further, _left_of(view))
    if view is None or not amount:
        return "", amount
    key = f"correction:{row.public_id}:{number}"
    intent = found.intent
    made = accept_refund(order, view, amount=amount, reason=reason, by=by, intent=intent, key=key, digest=digest_of(key))
    return made.public_id, amount


def _left_of(view: OrderView) -> Decimal:
    """What of the order's money can still go back. Raises Refused where none came."""
    try:
        return left(view)
    except Conflict:
        raise Refused(_("This order was not paid: there is no money that could go back."), codes.NOT_PAID) from None


def _event(row: Return, made: ReturnCorrection, found: Plan) -> entries.Event:
    body = {
        "order": row.order_key,
        "return": row.public_id,
        "number": row.number,
        "correction": made.number,
        "pieces_before": found.pieces(0),
        "pieces": found.pieces(1),
        "worth_before": str(found.worth(0)),
        "worth": str(found.worth(1)),
        "paid_too_much": str(made.too_much),
        "further": str(made.further),
        "currency": row.currency,
        "refund": made.refund or None,
    }
    return accounting.CORRECTED, f"{row.public_id}:corrected:{made.number}", body
