"""A result by hand of a return's steps: the hook of the workflow `return-goods`. What came is compared as a report is.

Only the signal `goods-received` records what came. A result of `await-goods` by hand that accepts nothing would end the return without
money, and its pieces would count as returned for ever. So it is refused, unless such a report was recorded before.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from orders.models import ReturnLine
from orders.payments import told
from orders.returns import codes
from orders.returns.goods import Unreadable, read
from orders.returns.recorded import fits, recorded
from supervision.errors import Refused
from supervision.states import Direction
from supervision.workflow import ByHand


def completed(done: ByHand) -> None:
    """Compare what an operator wrote as the step's result, and record a payout that it tells. Raises Refused, which names the field."""
    if done.step == codes.AWAIT and done.direction == Direction.DO:
        _compare(done)
    else:
        told.completed_by_hand(done)


def _compare(done: ByHand) -> None:
    accepted, refused = _pieces(done.result, "accepted"), _pieces(done.result, "refused")
    skus = list(dict.fromkeys([*accepted, *refused]))
    lines = [{"sku": sku, "accepted": accepted.get(sku, 0), "refused": refused.get(sku, 0)} for sku in skus]
    asked = {(line["sku"], Decimal(line["unit_price"])): int(line["quantity"]) for line in done.payload["lines"]}
    try:
        came = read({"lines": lines}, asked)
    except Unreadable as problem:
        place, _dot, field = problem.field.partition(".")
        name = "refused" if field == "refused" else "accepted"
        raise _invalid(f"{name}.{str(skus[int(place[6:-1])])[:100]}: {problem.problem}") from None
    if any(pieces.accepted for pieces in came.values()) or _is_recorded(done):
        return
    text = _("expected at least one piece. If nothing is accepted, send the signal goods-received, which records what came.")
    raise _invalid(f"accepted: {text}")


def _pieces(result: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = result.get(name, {})
    if not isinstance(found, Mapping):
        raise _invalid(f"{name}: {_('expected an object')}")
    return found


def _is_recorded(done: ByHand) -> bool:
    """Whether this result is the report that was recorded before: the return has gone back to this step since."""
    looked_at = not ReturnLine.objects.filter(of__public_id=done.key, accepted=None).exists()
    return looked_at and fits(done.result, recorded([done.key])[done.key])


def _invalid(text: str) -> Refused:
    return Refused(text, "invalid_result")
