"""What was recorded of returned goods. The result of `await-goods` is compared with it, because operators may write results by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from orders.returns import codes
from supervision import PermanentFailure, StepRequest
from supervision.postgres import db

_ACCEPTED = """
SELECT public_id, coalesce(jsonb_object_agg(sku, pieces) FILTER (WHERE pieces > 0), '{}'), sum(said), sum(worth)
  FROM (SELECT t.public_id, l.sku, sum(coalesce(l.reported, l.accepted)) AS pieces,
               sum(coalesce(l.reported, l.accepted) * l.unit_price) AS said, sum(l.accepted * l.unit_price) AS worth
          FROM orders_returnline l JOIN orders_return t ON t.id = l.of_id
         WHERE t.public_id = ANY (%(returns)s::text[]) AND l.accepted IS NOT NULL GROUP BY t.public_id, l.sku) s
 GROUP BY public_id
"""


class Recorded(NamedTuple):
    """What the run of a return was told: the accepted pieces by SKU, and what they are worth. worth: after all corrections."""

    accepted: Mapping[str, int]
    said: Decimal
    worth: Decimal


def recorded(returns: Sequence[str]) -> dict[str, Recorded]:
    """What was recorded of each of these returns; empty for one without accepted pieces."""
    found = {key: Recorded(*rest) for key, *rest in db.fetch(_ACCEPTED, {"returns": list(returns)})}
    return {key: found.get(key, Recorded({}, Decimal("0.00"), Decimal("0.00"))) for key in returns}


def fits(result: Mapping[str, Any], record: Recorded) -> bool:
    """Whether a result of `await-goods` says what was recorded."""
    try:
        return bool(result.get("accepted") == record.accepted and Decimal(str(result.get("amount"))) == record.said)
    except ArithmeticError:
        return False


def not_recorded() -> PermanentFailure:
    """The failure of a step whose result of `await-goods` does not fit the record: no goods and no money may move by it."""
    text = _("The result of await-goods is not the report that was recorded. Cancel this return, and ask for another one.")
    return PermanentFailure(text, codes.NOT_RECORDED)


def worth(request: StepRequest) -> Decimal:
    """What the accepted goods of this return are worth by its record. Raises PermanentFailure where `await-goods` says otherwise."""
    record = recorded([request.run_key])[request.run_key]
    if not fits(request.results.get(codes.AWAIT, {}), record):
        raise not_recorded()
    return record.worth
