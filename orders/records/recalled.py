"""What the archive holds of an order, as the rows that they were. The shop's own rows of such an order are deleted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from orders.models import MailAgain, PaymentAdjustment, Refund, Return, ReturnLine
from orders.payments.codes import PAYOUT
from orders.returns.codes import REFUND, amount_said
from supervision.models import ArchivedRun
from supervision.states import Direction, ProcessState


def returns_of(archived: ArchivedRun) -> list[tuple[Return, list[ReturnLine]]]:
    """The returns of an archived order with their lines, the oldest first."""
    return [_return(archived.key, number, facts) for number, facts in enumerate(_facts(archived, "returns"), 1)]


def refunds_of(archived: ArchivedRun) -> list[Refund]:
    """The refunds of an archived order, the oldest first."""
    found = []
    for facts in _facts(archived, "refunds"):
        same = {name: facts[name] for name in ("number", "currency", "reason", "asked_by")}
        at, amount = datetime.fromisoformat(facts["created_at"]), Decimal(facts["amount"])
        found.append(Refund(public_id=facts["id"], order_key=archived.key, amount=amount, created_at=at, **same))
    return found


def mails_of(archived: ArchivedRun) -> list[MailAgain]:
    """The mails of an archived order that were sent again, the oldest first."""
    return [
        MailAgain(
            public_id=facts["id"], order_key=archived.key, email=facts["number"], created_at=datetime.fromisoformat(facts["created_at"])
        )
        for facts in _facts(archived, "mails_again")
    ]


def corrected(archived: ArchivedRun) -> dict[str, tuple[Decimal, Decimal]]:
    """What corrections of the reports on an archived order's returns have paid further and what was paid too much, by return."""
    amounts: dict[str, tuple[Decimal, Decimal]] = {}
    for facts in _facts(archived, "returns"):
        if made := facts.get("corrections"):
            further = sum(_paid([one["refund"] for one in made if one["refund"]]), Decimal("0.00"))
            amounts[facts["id"]] = further, sum((Decimal(one["too_much"]) for one in made), Decimal("0.00"))
    return amounts


def paid_out(archived: ArchivedRun) -> dict[str, Decimal]:
    """What was paid out at the bank for an archived order's returns and refunds, by public id."""
    rows = [facts for facts in _facts(archived, "adjustments") if facts["gives_back"] and facts["number"].startswith(PAYOUT)]
    return {facts["number"].removeprefix(PAYOUT): Decimal(facts["amount"]) for facts in rows}


def _paid(keys: list[str]) -> Iterator[Decimal]:
    """What each of these refunds has paid and stays paid. A run leaves before its order."""
    for run in ArchivedRun.objects.filter(key__in=keys):
        done = {one.direction: one.result or {} for one in run.steps if one.name == REFUND and one.process_state == ProcessState.PROCESSED}
        if Direction.UNDO not in done:
            yield amount_said(done.get(Direction.DO, {}).get("refunded"))


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
        corrections=len(facts.get("corrections") or ()),
        **{name: facts[name] for name in ("number", "reason", "asked_by", "currency")},
    )
    lines = [
        ReturnLine(
            of_id=row.pk,
            unit_price=Decimal(line["unit_price"]),
            accepted=line.get("accepted"),
            refused=line.get("refused"),
            reported=line.get("reported"),
            **{name: line[name] for name in ("sku", "name", "quantity", "holds", "restocked")},
        )
        for line in facts["lines"]
    ]
    return row, lines
