"""The storefront's views: product, cart, order page. Checkout and the live page have their own modules.

Each view answers with a whole page or a redirect; requests by htmx get only the changed part.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

from django.contrib import messages
from django.contrib.auth.models import Group
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from orders import queries, services
from orders.cart import Cart
from orders.forms import PAYMENT_METHODS, CancelForm, PayForm, QuantityForm, ReturnForm
from orders.models import Product
from orders.payments.again import may_pay_again
from orders.progress import standing
from orders.queries import OrderView
from orders.responses import private
from orders.returns import shown
from supervision.approvals import rights
from supervision.errors import Refused, UnknownRun

PAYMENT_LABELS = {value: label for value, label, _about in PAYMENT_METHODS}


@require_safe
def product(request: HttpRequest, sku: str) -> HttpResponse:
    """One product."""
    return render(request, "orders/product.html", {"product": get_object_or_404(queries.products().select_related("category"), sku=sku)})


@never_cache
@require_safe
def cart(request: HttpRequest) -> HttpResponse:
    """The visitor's cart, with the present prices and stock."""
    return _cart_page(request, "orders/cart.html")


@require_POST
def add_to_cart(request: HttpRequest, sku: str) -> HttpResponse:
    """Put a product into the cart."""
    wanted = get_object_or_404(queries.products(), sku=sku)
    form = QuantityForm({"quantity": request.POST.get("quantity", "1")})
    quantity = form.cleaned_data["quantity"] if form.is_valid() else 1
    added = Cart(request.session).add(wanted, quantity)
    text = _added_text(wanted, quantity, added)
    if request.htmx:  # type: ignore[attr-defined]
        return render(request, "orders/_added.html", {"text": text, "added": added})
    (messages.success if added else messages.warning)(request, text)
    return redirect("orders:cart")


@require_POST
def change_cart(request: HttpRequest, sku: str) -> HttpResponse:
    """Change the quantity of a product in the cart. The quantity 0 takes it out, and so does a product no longer sold."""
    visitors_cart = Cart(request.session)
    form = QuantityForm(request.POST)
    known = queries.products().filter(sku=sku).first()
    if "remove" in request.POST or known is None:
        visitors_cart.remove(sku)
    elif form.is_valid():
        visitors_cart.change(known, form.cleaned_data["quantity"])
        if visitors_cart.quantity(sku) < form.cleaned_data["quantity"]:
            messages.warning(request, _only_left(known))
    else:
        messages.error(request, _("Enter a whole number for the quantity."))
    if request.htmx:  # type: ignore[attr-defined]
        return _cart_page(request, "orders/_cart.html", swapped=True)
    return redirect("orders:cart")


class RefusedForm(NamedTuple):
    """A form that the order's page shows again with what the customer typed. name: in the page's template."""

    name: str
    form: Any
    status: int = 400


@require_safe
def order(request: HttpRequest, public_id: str) -> HttpResponse:
    """An order at its unguessable link. The page updates itself until the order has ended."""
    view = visible_order(request, public_id)
    if view is None:
        return private(render(request, "orders/order_unknown.html", status=404))
    return _order_page(request, view)


def _order_page(request: HttpRequest, view: OrderView, refused: RefusedForm | None = None) -> HttpResponse:
    forms: dict[str, Any] = {"cancel_form": CancelForm(), "return_form": ReturnForm(initial={"key": secrets.token_urlsafe(16)}, left={})}
    if refused is not None:
        forms[refused.name] = refused.form
    facts = order_facts(view, request)
    facts |= forms | {
        # Without JavaScript the page loads itself again, but not under a form that the customer fills in.
        "refreshes": not (facts["standing"].final or facts["may_pay"] or request.GET or refused),
        "pay_form": PayForm(),
        **shown.facts(view, forms["return_form"], may_act=may_act(view, request.user)),
        # A synchronous server would send a stream only at its end, so the page polls there.
        "streams": isinstance(request, ASGIRequest),
    }
    return private(render(request, "orders/order.html", facts, status=refused.status if refused else 200))


Act = Callable[[HttpRequest, OrderView, Any], RefusedForm | None]


def acting_page(verb: str) -> Callable[[Act], Callable[..., HttpResponse]]:
    """A view that lets the order's owner, a holder of a guest's link, or an operator act, and shows the order's page again.

    verb: whose right an operator needs (`may_act`). act(request, view, by): what to do. It tells the result by a message, and returns
    a form that it refused.
    """

    def decorate(act: Act) -> Callable[..., HttpResponse]:
        @require_http_methods(["GET", "HEAD", "POST"])
        @wraps(act)
        def page(request: HttpRequest, public_id: str) -> HttpResponse:
            if request.method != "POST":  # a form that was refused has this address: to change the language leads here
                return redirect("orders:order", public_id)
            view = visible_order(request, public_id)
            if view is None or not may_act(view, request.user, verb):
                return private(render(request, "orders/order_unknown.html", status=404))
            by = services.acting_on(view.account_id, request.user if request.user.is_authenticated else "customer")
            refused = act(request, view, by)
            return redirect("orders:order", public_id) if refused is None else _order_page(request, view, refused)

        return page

    return decorate


by_customer = acting_page("")


@acting_page("cancel")
def cancel(request: HttpRequest, view: OrderView, by: Any) -> RefusedForm | None:
    """Cancel an order at the request of the customer on the order page."""
    form = CancelForm(request.POST)
    if not form.is_valid():
        messages.error(request, _("The reason is too long: 500 characters at most. Nothing was cancelled."))
        return RefusedForm("cancel_form", form)
    try:
        services.cancel_order(view.public_id, by=by, reason=form.cleaned_data["reason"].strip() or "no reason given")
    except (Refused, UnknownRun):
        messages.warning(request, _("This order can no longer be cancelled."))
    else:
        messages.success(request, _("Your cancellation is on its way."))
    return None


def visible_order(request: HttpRequest, public_id: str) -> OrderView | None:
    """The order, if this visitor may see it; None both for foreign and for unknown orders."""
    view = queries.order_view(public_id)
    if view is None or may_act(view, request.user) or request.user.has_perm("orders.view_order") or _opens_by_link(view):
        return view
    return None


def may_act(view: OrderView, user: Any, verb: str = "") -> bool:
    """Whether this visitor may act on the order: its account, an operator, or any holder of the link of a guest's order.

    verb: whose right is enough for an operator, as at the API; without it only the right to all verbs is. The shop's staff is never
    the customer of another's order (`services.is_staff`).
    """
    if view.account_id is not None and view.account_id == user.pk:
        return True
    return rights.may(user, verb) if services.is_staff(user) else _opens_by_link(view)


def _opens_by_link(view: OrderView) -> bool:
    """Whether the link is enough: a guest's order, or one of a shop's server (group `client`), whose customers have only the link."""
    return view.account_id is None or Group.objects.filter(name="client", user=view.account_id).exists()


def order_facts(view: OrderView, request: HttpRequest) -> dict[str, Any]:
    """The template context of the order page and of its live part."""
    return {
        "order": view,
        "standing": standing(view),
        "payment": PAYMENT_LABELS.get(view.payment_method, view.payment_method),
        "may_cancel": view.may_cancel and may_act(view, request.user, "cancel"),
        "may_pay": may_pay_again(view) and may_act(view, request.user),
    }


def _cart_page(request: HttpRequest, template: str, *, swapped: bool = False) -> HttpResponse:
    visitors_cart = Cart(request.session)
    contents = visitors_cart.contents()
    for sku in contents.gone:
        visitors_cart.remove(sku)
    return render(request, template, {"contents": contents, "swapped": swapped})


def _added_text(product: Product, wanted: int, added: int) -> str:
    if added >= wanted:
        return _("%(name)s is in your cart.") % {"name": product.name}
    return _only_left(product)


def _only_left(product: Product) -> str:
    if not product.available:
        return _("%(name)s is sold out.") % {"name": product.name}
    facts = {"count": product.available, "name": product.name}
    return ngettext("There is only %(count)d of %(name)s left.", "There are only %(count)d of %(name)s left.", product.available) % facts
