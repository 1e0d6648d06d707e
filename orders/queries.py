"""The shop's queries for views and commands: products, and orders with their run, also before a consumer makes the run.

An `OrderView` has all facts of one order; `answer` is its JSON form, the order answer of the API.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db.models import QuerySet
from django.utils.translation import gettext as _

from orders.intake import order_number, submission_of
from orders.lifecycle import STOCK_STEP
from orders.models import Order, OrderLine, Product
from orders.parcels import shown
from orders.parcels.shown import ParcelView
from orders.payments import codes, state
from orders.payments.state import NO_PAYMENT, Payment
from orders.records import recalled
from supervision.incidents import lifecycle
from supervision.insight import queries as engine
from supervision.insight.queries import iso
from supervision.insight.waiting import why_unconsumed, why_waiting
from supervision.models import ArchivedRun, Run, StepState, Submission
from supervision.states import Direction, ProcessState, RunState

OPEN_STATES = frozenset({RunState.PENDING, RunState.PROCESSING, RunState.ERROR})


@dataclass(frozen=True, kw_only=True)
class LineView:
    """One product of an order, at the price when the order was accepted."""

    sku: str
    name: str
    quantity: int
    unit_price: Decimal

    @property
    def amount(self) -> Decimal:
        """The price of the whole line."""
        return self.unit_price * self.quantity


@dataclass(frozen=True, kw_only=True)
class OrderView:
    """An order as its customer, an operator and the API see it."""

    public_id: str
    email: str
    total: Decimal
    currency: str
    lines: list[LineView]
    shipping_address: dict[str, Any]
    payment_method: str
    created_at: datetime
    language: str = ""
    account_id: int | None = None
    number: str | None = None
    run_id: int | None = None
    finished_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    process_state: str = RunState.PENDING.value
    direction: str = Direction.DO.value
    waiting_because: str | None = None
    incident: int | None = None
    steps: list[StepState] = field(default_factory=list)
    stuck: bool = False
    payment: Payment = NO_PAYMENT
    parcels: Sequence[ParcelView] = ()
    goes_back: bool = False
    archived: ArchivedRun | None = None  # where the shop's own rows are deleted
    reserves: bool = False  # before a consumer makes the run: whether it will reserve the money, and charge it after the booking

    @property
    def may_cancel(self) -> bool:
        """Whether to offer the cancellation now. The engine may still refuse it a moment later."""
        return (self.process_state in OPEN_STATES or self.goes_back) and self.cancel_requested_at is None

    @property
    def out_of_stock(self) -> bool:
        """Whether the order is undone because a product in it was sold out."""
        return self.cancel_requested_at is None and any(
            step.name == STOCK_STEP and step.direction == Direction.DO and step.last_error and step.process_state == ProcessState.ERROR
            for step in self.steps
        )


def order_view(public_id: str, *, inside: bool | None = None) -> OrderView | None:
    """One order, from its run or, before a run exists, from its submission; None if the id is unknown.

    inside: add the reason why the order waits, in words for operators (True) or for its owner (False); None: leave it out.
    """
    order = Order.objects.select_related("run").filter(public_id=public_id).first()
    if order is None:
        archived = engine.archived_run(public_id)
        if archived is not None:
            kept = Order.objects.filter(public_id=public_id).first()  # the nightly archive leaves the shop's rows
            return _archived(archived) if kept is None else order_views([kept], inside=inside)[0]
        submission = Submission.objects.filter(public_id=public_id).first()
        if submission is None:
            return None
        if submission.consumed_at is None:
            return _waiting(submission, asked=inside is not None)
        # A consumer made the order between the two queries, or it could not read the submission.
        order = Order.objects.select_related("run").filter(public_id=public_id).first()
        if order is None:
            return _waiting(submission, stuck=True)
    return order_views([order], inside=inside)[0]


def order_views(orders: Sequence[Order], *, inside: bool | None = None) -> list[OrderView]:
    """The views of orders loaded with their runs: two more queries for any number of orders; three more for why they wait.

    One more if an order is in Error, one more if an order is paid, and one more if a parcel is booked.
    """
    orders = with_runs(orders)
    lines: dict[int, list[LineView]] = {order.pk: [] for order in orders}
    for line in OrderLine.objects.filter(order_id__in=lines).order_by("id"):
        view = LineView(sku=line.sku, name=line.name, quantity=line.quantity, unit_price=line.unit_price)
        lines[line.order_id].append(view)
    steps = engine.steps_of([order.run_id for order in orders])
    unfinished = [order.run_id for order in orders if order.run.finished_at is None]
    because = why_waiting(unfinished, inside=inside) if inside is not None else {}
    held = lifecycle.holding(unfinished) if inside is not None else {}
    refused = state.refusals([order.run for order in orders])
    back = state.given_back([order.public_id for order in orders if state.is_charged(steps.get(order.run_id, []))])
    parcels = shown.of(steps)
    views = []
    for order in orders:
        run, its = order.run_id, steps.get(order.run_id, [])
        paying = state.payment_of(order.run, its, order.total, refusal=refused.get(run, ""), back=back)
        views.append(_view(order, lines[order.pk], its, paying, parcels.get(run, ()), because.get(run), held.get(run)))
    return views


def accepted_view(submission: int, public_id: str, payload: Mapping[str, Any], created_at: datetime) -> OrderView:
    """The order directly after its submission, with this id, was committed."""
    return OrderView(
        number=order_number(submission),
        public_id=public_id,
        account_id=payload.get("account"),
        email=payload["email"],
        total=Decimal(payload["total"]),
        currency=payload["currency"],
        lines=[
            LineView(
                sku=line["sku"],
                name=line["name"],
                quantity=line["quantity"],
                unit_price=Decimal(line["unit_price"]),
            )
            for line in payload["lines"]
        ],
        shipping_address=dict(payload["shipping_address"]),
        payment_method=payload["payment_method"],
        language=payload.get("language") or settings.LANGUAGE_CODE,
        created_at=created_at,
        reserves=payload.get("capture") == codes.AFTER_BOOKING,
    )


def answer(view: OrderView) -> dict[str, Any]:
    """The order answer of the API: JSON values only."""
    return {
        "id": view.public_id,
        "number": view.number,
        "process_state": str(view.process_state),
        "direction": str(view.direction),
        "waiting_because": view.waiting_because,
        "incident": view.incident,
        "total": str(view.total),
        "currency": view.currency,
        "email": view.email,
        "lines": [
            {"sku": line.sku, "name": line.name, "quantity": line.quantity, "unit_price": str(line.unit_price)} for line in view.lines
        ],
        "shipping_address": view.shipping_address,
        "payment_method": view.payment_method,
        "language": view.language,
        "payment": view.payment.answer(),
        "parcels": [parcel.answer() for parcel in view.parcels],
        "created_at": iso(view.created_at),
        "finished_at": iso(view.finished_at),
        "cancel_requested_at": iso(view.cancel_requested_at),
        "steps": [engine.step_answer(step) for step in view.steps],
    }


def orders_of(account: AbstractBaseUser) -> QuerySet[Order]:
    """The account's own orders, newest first."""
    return all_orders().filter(account_id=account.pk)


def all_orders() -> QuerySet[Order]:
    """Every order with its run, newest first; `with_runs` adds the runs of those that are archived."""
    return Order.objects.prefetch_related("run").order_by("-created_at", "-id")


def with_runs(orders: Iterable[Order]) -> list[Order]:
    """These orders, each with its run: one more query if some are archived."""
    listed = list(orders)
    missing = [order for order in listed if not _has_run(order)]
    archived = engine.archived_runs([order.run_id for order in missing])
    for order in missing:
        if order.run_id in archived:
            order.run = archived[order.run_id].run
    return [order for order in listed if _has_run(order)]


def _has_run(order: Order) -> bool:
    try:
        return order.run is not None
    except Run.DoesNotExist:
        return False


def products() -> QuerySet[Product]:
    """The products on sale."""
    return Product.objects.filter(active=True).order_by("name", "id")


def _view(
    order: Order,
    lines: list[LineView],
    steps: list[StepState],
    paying: Payment,
    parcels: Sequence[ParcelView],
    because: str | None = None,
    incident: int | None = None,
) -> OrderView:
    run = order.run
    return OrderView(
        public_id=order.public_id,
        number=order.number,
        run_id=run.pk,
        account_id=order.account_id,
        email=run.payload.get("email", order.email),
        total=order.total,
        currency=order.currency,
        lines=lines,
        shipping_address=dict(run.payload.get("shipping_address") or {}),
        payment_method=run.payload.get("payment_method") or "",
        language=run.payload.get("language") or settings.LANGUAGE_CODE,
        created_at=order.created_at,
        finished_at=run.finished_at,
        cancel_requested_at=run.cancel_requested_at,
        process_state=run.process_state,
        direction=run.direction,
        goes_back=run.resume_from is not None,
        waiting_because=because,
        incident=incident,
        steps=steps,
        payment=paying,
        parcels=parcels,
    )


def public_id_of(number: str) -> str | None:
    """The public id of the order with this number: archived or not, and one that no consumer has taken up yet."""
    found = Order.objects.filter(number=number).values_list("public_id", flat=True).first()
    found = found or ArchivedRun.objects.filter(reference=number).values_list("key", flat=True).first()
    if found is None and (submission := submission_of(number)) is not None:
        found = Submission.objects.filter(pk=submission).values_list("public_id", flat=True).first()
    return found


def numbers_of(public_ids: Sequence[str]) -> dict[str, str]:
    """The numbers of those of these orders that have a row: not of archived ones, and of none that waits to be taken up."""
    return dict(Order.objects.filter(public_id__in=public_ids, number__isnull=False).values_list("public_id", "number"))


def _archived(archived: ArchivedRun) -> OrderView | None:
    """The view of an archived order, made from the archive alone: the shop's own rows may be deleted."""
    facts, run = archived.application, archived.run
    if "account" not in facts:
        return None  # the run is no order
    order = Order(
        public_id=archived.key,
        number=facts["reference"],
        run=run,
        account_id=facts["account"],
        email=facts["email"],
        total=Decimal(facts["total"]),
        currency=facts["currency"],
        created_at=datetime.fromisoformat(facts["created_at"]),
    )
    lines = [
        LineView(sku=line["sku"], name=line["name"], quantity=line["quantity"], unit_price=Decimal(line["unit_price"]))
        for line in facts["lines"]
    ]
    steps = engine.in_order(archived.steps)
    since = state.adjustments(order.public_id)
    back = state.given_back([order.public_id], recalled.adjustments_of(archived, since))
    paying = state.payment_of(run, steps, order.total, back=back)
    parcels = shown.of({run.pk: steps}, recalled.told_of_parcels(archived))[run.pk]
    return replace(_view(order, lines, steps, paying, parcels), archived=archived)


def _waiting(submission: Submission, *, stuck: bool = False, asked: bool = False) -> OrderView | None:
    try:
        view = accepted_view(submission.pk, submission.public_id, json.loads(submission.payload), submission.created_at)
    except (ValueError, TypeError, KeyError, ArithmeticError):
        return None  # not a readable order: its exact bytes are, or will be, a dead letter
    cancelled = submission.cancel_requested_at
    because = _("It could not be processed and waits for an operator.") if stuck else None
    if asked:
        because = why_unconsumed([submission.public_id])[submission.public_id]
    held = lifecycle.standing("dead_letters" if stuck else "starvation:submissions") if stuck or asked else None
    told = {"cancel_requested_at": cancelled, "waiting_because": because, "stuck": stuck, "incident": held}
    return OrderView(**{**vars(view), **told})
