"""Checkout: from the visitor's cart to a committed order, exactly once.

Each form has a token that is used once. The token, bound to the session, is the order's idempotency key: a double click,
a reload and a second try after a lost answer all lead to the same order. The session also remembers which order a token
placed, because the cart is empty by then.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import AbstractBaseUser
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.crypto import salted_hmac
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from orders import queries, services
from orders.accounts.checkout import AccountCheckoutForm, form_for
from orders.api.throttling import beyond_rate
from orders.cart import Cart, Contents, changes
from orders.forms import ADDRESS_FIELDS, CheckoutForm
from orders.identity import guest_orders

_PLACED = "placed"
_REMEMBERED = 20


@never_cache
@require_http_methods(["GET", "POST"])
def checkout(request: HttpRequest) -> HttpResponse:
    """The checkout page, and the handling of its form."""
    token = request.POST.get("token", "")
    placed = request.session.get(_PLACED, {})
    if token and token in placed:
        return redirect("orders:order", placed[token])
    contents = Cart(request.session).contents()
    if not contents.lines:
        messages.info(request, _("Your cart is empty."))
        return redirect("orders:cart")
    if contents.mixed:
        return redirect("orders:cart")  # it says so
    if request.method == "GET":
        return _page(request, form_for(request, initial=_initial(request, contents)), contents)
    form = form_for(request, request.POST)
    if not form.is_valid():
        return _page(request, form, contents, status=400)
    return _place(request, form, contents)


def _place(request: HttpRequest, form: CheckoutForm, contents: Contents) -> HttpResponse:
    token = form.cleaned_data["token"]
    lines = [{"sku": line.product.sku, "quantity": line.quantity} for line in contents.lines]
    account = request.user if request.user.is_authenticated else None
    key = _key(request, token, account)
    # A second click counts, too, and is answered with the order of the first.
    if (refusal := _too_many(request, form, account)) and not services.placed_before(key, account):
        form.add_error(None, refusal)
        return _page(request, form, contents, status=429)
    try:
        placed = services.place_order(form.order_request(lines), account=account, idempotency_key=key)
    except services.InvalidOrder as refusal:
        form.take_errors(refusal.errors)
        return _page(request, form, contents, status=400)
    except services.Conflict as refusal:
        return _conflict(request, form, refusal)
    except services.KeyReused:
        form.add_error(None, _("This form was sent twice with different details. Check your orders, then send it again."))
        return _page(request, _renewed(form, contents, token=_new_token()), contents, status=409)
    _remember(request, token, placed.public_id)
    if account is not None and isinstance(form, AccountCheckoutForm):
        form.keep_address(account)
    Cart(request.session).clear()
    return redirect("orders:order", placed.public_id)


def _too_many(request: HttpRequest, form: CheckoutForm, account: AbstractBaseUser | None) -> str:
    """Count the order; what to tell a customer who places too many, or nothing. An account's orders count as its requests at the API."""
    if account is not None:
        return _("You have placed many orders in a short time. Try again later.") if beyond_rate(account) else ""
    if guest_orders.refused(request, form.cleaned_data["email"]):
        return _("Many orders were placed from here within an hour. Sign in to go on, or try again later.")
    return ""


def _conflict(request: HttpRequest, form: CheckoutForm, refusal: services.Conflict) -> HttpResponse:
    """Show the form again after a price or the stock changed: with the changes, and with the customer's input."""
    contents = Cart(request.session).contents()
    if not contents.lines:
        messages.warning(request, _("What was in your cart is no longer sold."))
        return redirect("orders:cart")
    changed = changes(form.cleaned_data["seen"], contents) if refusal.code == "price_changed" else []
    facts = {"changed": changed, "price_changed": refusal.code == "price_changed"}
    if refusal.code != "price_changed" and not contents.short:
        form.add_error(None, refusal.message)
    return _page(request, _renewed(form, contents), contents, status=409, **facts)


def _page(request: HttpRequest, form: CheckoutForm, contents: Contents, status: int = 200, **facts: Any) -> HttpResponse:
    return render(request, "orders/checkout.html", {"form": form, "contents": contents, **facts}, status=status)


def _renewed(form: CheckoutForm, contents: Contents, token: str | None = None) -> CheckoutForm:
    """The same form with the customer's input, and with the present prices as the ones shown."""
    data: Any = form.data.copy()  # type: ignore[attr-defined]
    data["seen"], data["expected_total"] = contents.seen, contents.expected
    if token is not None:
        data["token"] = token
    form.data = data
    return form


def _initial(request: HttpRequest, contents: Contents) -> dict[str, Any]:
    """The form's initial values; for accounts with the address of the last order."""
    initial: dict[str, Any] = {"token": _new_token(), "seen": contents.seen, "expected_total": contents.expected}
    if request.user.is_authenticated:
        initial |= {"email": request.user.email, "name": request.user.get_full_name()}
        for last in [] if request.user.addresses.exists() else queries.with_runs(queries.orders_of(request.user)[:1]):
            address = last.run.payload.get("shipping_address") or {}
            initial |= {name: address[name] for name in ADDRESS_FIELDS if address.get(name)}
    return initial


def _new_token() -> str:
    return secrets.token_urlsafe(16)


def _key(request: HttpRequest, token: str, account: AbstractBaseUser | None) -> str:
    """The order's idempotency key. It includes the session, so the same token from another visitor is another order.

    It depends on no key of the installation: while SECRET_KEY is replaced, web processes with the earlier one and with the new one
    answer the same form. The session's own key, which the database holds and no page shows, is the secret in it.
    """
    if request.session.session_key is None:
        request.session.save()
    said = f"{request.session.session_key}:{token}"
    # A form that a web process of release 0.1.0 has taken, while both releases were running, is known by the key that it made.
    secrets_of_then = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    of_then = [salted_hmac("orders.checkout", said, secret=secret, algorithm="sha256").hexdigest() for secret in secrets_of_then]
    return services.first_placed(of_then, account) or hashlib.sha256(f"orders.checkout:{said}".encode()).hexdigest()


def _remember(request: HttpRequest, token: str, public_id: str) -> None:
    placed = {**request.session.get(_PLACED, {}), token: public_id}
    request.session[_PLACED] = dict(list(placed.items())[-_REMEMBERED:])
