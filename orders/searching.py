"""What an operator may type into the search field of the list of orders, beside what the engine understands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from django.db.models import Q, QuerySet, Value
from django.db.models.functions import Lower
from django.db.models.lookups import StartsWith
from django.utils.translation import gettext_lazy as _

from orders.filters import named, tracking_numbers
from orders.models import Order, Parcel, PaymentAdjustment, PaymentEvent
from supervision.console.lists.searching import Way


def ways() -> Iterator[Way]:
    """Number, public id, mail, tracking number, payment, customer: each through an index."""
    yield Way(_("order number"), by_number)
    yield Way(_("public id"), lambda term: _runs(Q(public_id=term)))
    yield Way(_("e-mail"), by_mail)
    yield Way(_("tracking number"), lambda term: _of_keys(Parcel.objects.filter(tracking_number__in=tracking_numbers(term))))
    yield Way(_("payment"), by_payment)
    yield Way(_("customer"), by_customer)


def by_number(term: str) -> QuerySet[Any] | None:
    """The digits of a number, with or without its hyphens, and with the sign that people write before one."""
    digits = re.sub(r"[\s\u2010-\u2015-]", "", term.removeprefix("#"))
    if not (digits.isascii() and digits.isdecimal()):
        return None
    return _runs(Q(number="-".join(part for part in (digits[:3], digits[3:6], digits[6:9], digits[9:]) if part)))


def by_mail(term: str) -> QuerySet[Any] | None:
    """The beginning of an address, in capital or small letters. A word alone has to be followed by an at sign."""
    if " " in term:
        return None
    start = term if "@" in term else f"{term}@"
    return _runs(StartsWith(Lower("email"), Lower(Value(start))))


def by_payment(term: str) -> QuerySet[Any] | None:
    """The payment service's id of a payment, of its events and of its refunds."""
    if "_" not in term or " " in term:
        return None
    told = _of_keys(PaymentEvent.objects.filter(Q(intent=term) | Q(event_id=term)).exclude(order_key=""))
    return told if told.exists() else _of_keys(PaymentAdjustment.objects.filter(Q(intent=term) | Q(external_id=term)))


def by_customer(term: str) -> QuerySet[Any] | None:
    """The beginnings of words of the name."""
    return named(Order.objects.order_by(), term).values_list("run_id", flat=True)


def _runs(condition: Q | StartsWith) -> QuerySet[Any]:
    return Order.objects.order_by().filter(condition).values_list("run_id", flat=True)


def _of_keys(rows: QuerySet[Any]) -> QuerySet[Any]:
    return _runs(Q(public_id__in=rows.values("order_key")))
