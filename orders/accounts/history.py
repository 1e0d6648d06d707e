"""The history of orders: the account's own, and those that its owner placed as a guest, once their mail address is verified.

A guest's order shows there no more than its mails: they went to the same address. It stays a guest's order.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.db.models import BigAutoField, DateTimeField, Q, QuerySet, Value
from django.db.models.functions import Lower
from django.db.models.lookups import Exact
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from orders import keypages, queries
from orders.accounts.signing_in import is_verified
from orders.cart import Cart
from orders.models import Order
from orders.parcels import extent
from orders.progress import in_short
from supervision.states import RunState

PAGE = 10
NEWEST_FIRST = keypages.Order(fields=("created_at", "id"), types=(DateTimeField(), BigAutoField()), falling=True)


@login_required
@never_cache
@require_safe
def history(request: HttpRequest) -> HttpResponse:
    """The signed-in customer's orders, newest first. number: the order with this number alone."""
    said = request.GET.get("number", "").strip()[:40]
    verified = is_verified(request.user)
    mine = orders_of(request.user, verified=verified)
    if said:
        mine = [rows.filter(number=number_of(said)) for rows in mine]
    page = keypages.page(mine, request.GET, NEWEST_FIRST, size=PAGE)
    found = queries.with_runs(page.rows)
    booked = extent.of_runs(one.run.pk for one in found if one.run.process_state == RunState.PROCESSED)
    rows = [(one, *in_short(one.run.process_state, booked.get(one.run.pk, extent.ALL))) for one in found]
    return render(request, "orders/history.html", {"page": page, "rows": rows, "number": said, "verified": verified})


@require_POST
def reorder(request: HttpRequest, public_id: str) -> HttpResponse:
    """Put what an order had into the cart, as far as it is sold and in stock."""
    view = queries.order_view(public_id)
    if view is None or not _sees(request, view):
        return render(request, "orders/order_unknown.html", status=404)
    wanted = Counter[str]()
    for line in view.lines:  # one product may have several lines, at several prices
        wanted[line.sku] += line.quantity
    on_sale = queries.products().in_bulk(list(wanted), field_name="sku")
    cart = Cart(request.session)
    added = {sku: cart.add(on_sale[sku], quantity) for sku, quantity in wanted.items() if sku in on_sale}
    if all(added.get(sku, 0) == quantity for sku, quantity in wanted.items()):
        messages.success(request, _("What you ordered then is in your cart."))
    elif any(added.values()):
        messages.warning(request, _("Not all of it can be had any more. The rest is in your cart."))
    else:
        messages.warning(request, _("Nothing of it can be had at the moment."))
    return redirect("orders:cart")


def orders_of(account: Any, *, verified: bool) -> list[QuerySet[Order]]:
    """The account's own orders; and if its mail address is verified, those that guests placed with it."""
    own = queries.all_orders().filter(account_id=account.pk).prefetch_related("lines")
    if not verified:
        return [own]
    return [own, queries.all_orders().filter(_guests(account)).prefetch_related("lines")]


def number_of(said: str) -> str:
    """An order's number, also where it was typed without its separators."""
    digits = re.sub(r"[^0-9]", "", said)
    return "-".join(filter(None, (digits[:3], digits[3:6], digits[6:9], digits[9:])))


def _guests(account: Any) -> Q:
    """Orders without an account, or from a shop's own server: their customers have only the link."""
    clients = User.objects.filter(groups__name="client").values("pk")
    return Q(Exact(Lower("email"), Lower(Value(account.email)))) & (Q(account=None) | Q(account__in=clients)) & ~Q(account=account.pk)


def _sees(request: HttpRequest, view: queries.OrderView) -> bool:
    """Whether it is the visitor's own order, or a guest's whose link the visitor has."""
    return view.account_id in (None, request.user.pk) or User.objects.filter(pk=view.account_id, groups__name="client").exists()
