"""How the operators' commands and API find and show orders: by public id or number, with what the customer ordered."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.contrib.auth.models import AbstractBaseUser

from orders import queries
from orders.api.permissions import is_client
from orders.documents.issuing import of_order as documents_of
from orders.filters import OrderFilters
from orders.intake import grouped
from orders.payments.codes import ANSWERED
from orders.payments.state import adjustments
from orders.returns import answers
from orders.returns import shown as returned
from orders.services import client_of
from supervision.insight import queries as engine
from supervision.insight.directory import Directory, Entry, state_facts

NUMBER = re.compile(r"[0-9](?:[0-9 .-]*[0-9])?")


class OrderDirectory(Directory):
    """Orders, archived ones and ones without a run included. A number is understood with and without its separators."""

    known_by = "public id or its number"
    filters = OrderFilters()
    columns = ("ID", "NUMBER", "STATE", "CREATED", "TOTAL", "E-MAIL")

    def find(self, said: str) -> Entry | None:
        """The order with this public id or number."""
        view = queries.order_view(said, inside=True)
        if view is None and NUMBER.fullmatch(said):
            public_id = queries.public_id_of(grouped(re.sub(r"[^0-9]", "", said)))
            view = queries.order_view(public_id, inside=True) if public_id else None
        if view is None:
            return self._return(said)
        return Entry(
            key=view.public_id,
            run_id=view.run_id,
            title=f"order {view.public_id}  number {view.number}",
            answer=queries.answer(view),
            steps=view.steps,
            details=[
                f"{view.email}, {view.total} {view.currency}, {view.payment_method}",
                *(f"  {line.quantity} x {line.sku}  {line.name}  {line.unit_price} each" for line in view.lines),
                *(f"  parcel {parcel}" for parcel in view.parcels),
                *(f"  {one}" for one in adjustments(view.public_id)),
                *(f"  {one}" for one in returned.in_words(view.public_id)),
                *(f"  {one.kind.replace('_', ' ')} {one}: {one.total} {one.currency}" for one in documents_of(view.public_id)),
            ],
        )

    def names(self, keys: Sequence[str]) -> dict[str, str]:
        """The numbers of orders. Returns and other runs have none."""
        return queries.numbers_of(keys)

    def clients_send(self, signal: str) -> bool:
        """News of a payment, which makes its step ask the payment service. The other signals say that money or goods have come."""
        return signal == ANSWERED

    def _return(self, said: str) -> Entry | None:
        """The return with this public id, with its order."""
        view = answers.return_view(said, inside=True)
        entry = None if view is None else super().find(said)
        if view is None or entry is None:
            return None
        return replace(
            entry, details=[f"of order {view.row.order_key}, asked by {view.row.asked_by}: {view.row.reason}", f"  {returned.str_of(view)}"]
        )

    def client_of(self, account: AbstractBaseUser) -> str | None:
        """Shops' own servers are clients."""
        return client_of(account, None) if is_client(account) else None

    def newest(self, given: Mapping[str, Any], most: int) -> list[dict[str, Any]]:
        """The newest orders with a run that fit these filters."""
        orders = queries.with_runs(self.filters.found(given)[:most])
        steps = engine.steps_of([order.run_id for order in orders])
        return [
            {"id": order.public_id, "number": order.number}
            | state_facts(order.run, steps.get(order.run_id, []), email=order.email, total=order.total, currency=order.currency)
            | {"created_at": order.created_at}
            for order in orders
        ]

    def cells(self, row: dict[str, Any]) -> Sequence[Any]:
        """An order of the list."""
        return row["id"], row["number"], row["process_state"], row["created_at"], f"{row['total']} {row['currency']}", row["email"]
