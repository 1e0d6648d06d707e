"""What the archive holds of an order, as the rows that they were. The shop's own rows of such an order are deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from orders.models import PaymentAdjustment, Return, ReturnLine
from supervision.models import ArchivedRun


def returns_of(archived: ArchivedRun) -> list[tuple[Return, list[ReturnLine]]]:
    """The returns of an archived order with their lines, the oldest first."""
    return [_return(archived.key, number, facts) for number, facts in enumerate(_facts(archived, "returns"), 1)]


def adjustments_of(archived: ArchivedRun, since: Sequence[PaymentAdjustment]) -> Iterator[PaymentAdjustment]:
    """The refunds and disputes of an archived order's charges. since: what the payment service has told after it was archived."""
    known = {row.external_id for row in since}
    for facts in _facts(archived, "adjustments"):
        if facts["number"] not in known:
            yield PaymentAdjustment(
                external_id=facts["number"],
                order_key=archived.key,
                amount=Decimal(facts["amount"]),
                **{name: facts[name] for name in ("kind", "intent", "currency", "status", "gives_back")},
            )
    yield from since


def told_of_parcels(archived: ArchivedRun) -> dict[str, tuple[str, datetime | None]]:
    """What the carrier had told of an archived order's parcels: the state and since when, by the key of the booking."""
    return {
        parcel["key"]: (parcel["state"], datetime.fromisoformat(at) if (at := parcel.get("changed_at")) else None)
        for parcel in _facts(archived, "parcels")
    }


def _facts(archived: ArchivedRun, name: str) -> Sequence[Mapping[str, Any]]:
    return archived.application.get(name) or ()


def _return(order: str, number: int, facts: Mapping[str, Any]) -> tuple[Return, list[ReturnLine]]:
    row = Return(
        pk=-number,  # it has no row any more
        public_id=facts["id"],
        order_key=order,
        created_at=datetime.fromisoformat(facts["created_at"]),
        **{name: facts[name] for name in ("number", "reason", "asked_by", "currency")},
    )
    lines = [
        ReturnLine(
            of_id=row.pk,
            unit_price=Decimal(line["unit_price"]),
            accepted=line.get("accepted"),
            refused=line.get("refused"),
            **{name: line[name] for name in ("sku", "name", "quantity", "holds", "restocked")},
        )
        for line in facts["lines"]
    ]
    return row, lines
