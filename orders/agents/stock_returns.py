"""Returned goods at the stock agent: waits for them, records what came, and puts the accepted pieces back into stock.

The steps `await-goods` and `restock-goods`. Like all work of this agent they write this database only, in the transaction that
records their outcome: what they do happens exactly once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.utils.translation import gettext as _

from orders.returns import codes
from orders.returns.goods import Came, Unreadable, read
from orders.returns.recorded import fits, not_recorded, recorded
from supervision import PermanentFailure, StepRequest
from supervision.errors import AgentFailure, Waits
from supervision.postgres import db

Answer = Mapping[str, Any] | AgentFailure

# Pieces that were not accepted may be asked for again: they no longer count as returned.
_RECORD = """
WITH lines AS (
    UPDATE orders_returnline l SET accepted = v.accepted, refused = v.refused, holds = v.accepted
      FROM unnest(%(returns)s::text[], %(skus)s::text[], %(prices)s::numeric[], %(accepted)s::int[], %(refused)s::int[])
           v(public_id, sku, unit_price, accepted, refused)
      JOIN orders_return t ON t.public_id = v.public_id
     WHERE l.of_id = t.id AND l.sku = v.sku AND l.unit_price = v.unit_price AND l.accepted IS NULL
    RETURNING t.order_key, l.sku, l.quantity - v.accepted AS freed)
UPDATE orders_returnable r SET returned = r.returned - f.freed
  FROM (SELECT order_key, sku, sum(freed) AS freed FROM lines GROUP BY order_key, sku) f
 WHERE r.order_key = f.order_key AND r.sku = f.sku AND f.freed > 0
"""
_LOCK = "SELECT FROM orders_returnable WHERE order_key = ANY (%(orders)s::text[]) ORDER BY order_key, sku FOR NO KEY UPDATE"
_LOCK_PRODUCTS = """
SELECT FROM orders_product WHERE sku IN (
    SELECT l.sku FROM orders_returnline l JOIN orders_return t ON t.id = l.of_id WHERE t.public_id = ANY (%(returns)s::text[]))
 ORDER BY sku FOR NO KEY UPDATE
"""
_RESTOCK = """
WITH lines AS (
    UPDATE orders_returnline l SET restocked = l.accepted FROM orders_return t
     WHERE t.id = l.of_id AND t.public_id = ANY (%(returns)s::text[]) AND l.accepted > 0 AND l.restocked = 0
    RETURNING t.public_id, l.sku, l.restocked),
stocked AS (
    UPDATE orders_product p SET available = p.available + s.pieces
      FROM (SELECT sku, sum(restocked) AS pieces FROM lines GROUP BY sku) s WHERE p.sku = s.sku)
SELECT public_id, jsonb_object_agg(sku, pieces)
  FROM (SELECT public_id, sku, sum(restocked) AS pieces FROM lines GROUP BY public_id, sku) s GROUP BY public_id
"""
_HELD = """
SELECT t.public_id, l.sku, sum(l.restocked) FROM orders_returnline l JOIN orders_return t ON t.id = l.of_id
 WHERE t.public_id = ANY (%(returns)s::text[]) AND l.restocked > 0 GROUP BY t.public_id, l.sku
"""
_TAKE_OUT = """
UPDATE orders_product p SET available = p.available - v.pieces FROM unnest(%(skus)s::text[], %(pieces)s::int[]) v(sku, pieces)
 WHERE p.sku = v.sku AND p.available >= v.pieces RETURNING p.sku
"""
_NOT_RESTOCKED = """
UPDATE orders_returnline l SET restocked = 0 FROM orders_return t WHERE t.id = l.of_id AND t.public_id = ANY (%(returns)s::text[])
"""


def await_goods(requests: Sequence[StepRequest]) -> list[Answer]:
    """`{"accepted": {sku: pieces}, "refused": {...}, "amount"}` once a report has come that fits the return; else it waits on."""
    reports: dict[str, Mapping[tuple[str, Decimal], Came]] = {}
    answers: list[Answer] = []
    for request in requests:
        try:
            came = None if request.signal is None else read(request.signal, _asked(request))
        except Unreadable as problem:
            answers.append(_wait(request, _("the last report on the goods did not fit: %(problem)s") % {"problem": problem}))
            continue
        if came is None:
            answers.append(_wait(request))
            continue
        reports[request.run_key] = came
        answers.append(_result(came))
    if reports:
        rows = [(key, sku, price, *pieces) for key, came in reports.items() for (sku, price), pieces in came.items()]
        orders = [request.payload["order"] for request in requests if request.run_key in reports]
        db.fetch(_LOCK, {"orders": sorted(set(orders))})
        db.fetch(_RECORD, dict(zip(("returns", "skus", "prices", "accepted", "refused"), map(list, zip(*rows, strict=True)), strict=True)))
    return answers


def _wait(request: StepRequest, message: str = "") -> AgentFailure:
    if request.wait_is_over:
        return PermanentFailure(_("The goods have not come in time."), codes.GOODS_MISSING)
    left = settings.RETURN_WITHIN if request.wait_left is None else request.wait_left
    if left <= 0:
        return PermanentFailure(message, codes.GOODS_MISSING)
    return Waits(codes.RECEIVED, within=timedelta(seconds=left), message=message)


def _asked(request: StepRequest) -> dict[tuple[str, Decimal], int]:
    return {(line["sku"], Decimal(line["unit_price"])): int(line["quantity"]) for line in request.payload["lines"]}


def _result(came: Mapping[tuple[str, Decimal], Came]) -> dict[str, Any]:
    worth, accepted, refused = Decimal("0.00"), Counter[str](), Counter[str]()
    for (sku, price), pieces in came.items():
        accepted[sku] += pieces.accepted
        refused[sku] += pieces.refused
        worth += price * pieces.accepted
    return {"accepted": dict(+accepted), "refused": dict(+refused), "amount": str(worth)}


def restock(requests: Sequence[StepRequest]) -> list[Answer]:
    """Put the accepted pieces back into stock; `{"restocked": {sku: pieces}}` each.

    A failure, if the result of `await-goods` is not what the return's own lines say: then nothing of it may be paid back.
    """
    db.fetch(_LOCK_PRODUCTS, {"returns": [request.run_key for request in requests]})
    records = recorded([request.run_key for request in requests])
    fitting = [request.run_key for request in requests if fits(request.results[codes.AWAIT], records[request.run_key])]
    put = dict(db.fetch(_RESTOCK, {"returns": fitting}))
    return [{"restocked": put.get(request.run_key, {})} if request.run_key in fitting else not_recorded() for request in requests]


def nothing_to_undo(requests: Sequence[StepRequest]) -> list[Answer]:
    """What came has come. The end of the return frees the pieces that it holds (`orders.returns.ending`)."""
    return [{} for _request in requests]


def take_out_again(requests: Sequence[StepRequest]) -> list[Answer]:
    """Take the restocked pieces out of stock again. A failure, if they are sold meanwhile."""
    db.fetch(_LOCK_PRODUCTS, {"returns": [request.run_key for request in requests]})
    held: dict[str, dict[str, int]] = {}
    for key, sku, pieces in db.fetch(_HELD, {"returns": [request.run_key for request in requests]}):
        held.setdefault(key, {})[sku] = pieces
    answers: list[Answer] = []
    for request in requests:
        pieces = held.get(request.run_key, {})
        there = _available(pieces)
        if short := [sku for sku in sorted(pieces) if there.get(sku, 0) < pieces[sku]]:
            text = _("%(sku)s was sold again: the pieces cannot be taken out of stock.") % {"sku": ", ".join(short)}
            answers.append(PermanentFailure(text, "sold_again"))
            continue
        if pieces:
            db.fetch(_TAKE_OUT, {"skus": list(pieces), "pieces": list(pieces.values())})
            db.fetch(_NOT_RESTOCKED, {"returns": [request.run_key]})
        answers.append({"taken_out": pieces})
    return answers


def _available(pieces: Mapping[str, int]) -> dict[str, int]:
    if not pieces:
        return {}
    return dict(db.fetch("SELECT sku, available FROM orders_product WHERE sku = ANY (%(skus)s::text[])", {"skus": list(pieces)}))


PERFORM = {codes.AWAIT: await_goods, codes.RESTOCK: restock}
UNDO = {codes.AWAIT: nothing_to_undo, codes.RESTOCK: take_out_again}
