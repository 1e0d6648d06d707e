"""The order page's form to return goods."""

from __future__ import annotations

import secrets
from typing import Any

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _

from orders.forms import ReturnForm
from orders.queries import OrderView
from orders.returns.asking import ask, left
from orders.services import Conflict, InvalidOrder, KeyReused
from orders.views import RefusedForm, by_customer


@by_customer
def return_goods(request: HttpRequest, view: OrderView, by: Any) -> RefusedForm | None:
    """Ask for a return. The form's key makes a second click harmless."""
    form = ReturnForm(request.POST, left=left(view))
    if not form.is_valid():
        messages.error(request, form.problem())
        return _again(form, new_key="key" in form.errors)
    try:
        made = ask(view, form.lines(), form.cleaned_data["reason"], by=by, idempotency_key=form.cleaned_data["key"])
    except KeyReused:
        messages.error(request, _("This form was sent twice with different details. Check your orders, then send it again."))
        return _again(form, new_key=True, status=409)
    except (Conflict, InvalidOrder) as refusal:
        messages.warning(request, _("So many pieces of this order can not be returned any more."))
        conflict = isinstance(refusal, Conflict)
        return _again(form, new_key=not conflict, status=409 if conflict else 400)
    if not made.replayed:
        messages.success(request, _("Your return is noted. Below you see what to do."))
    return None


def _again(form: ReturnForm, *, new_key: bool, status: int = 400) -> RefusedForm:
    if new_key:
        form.renew(secrets.token_urlsafe(16))
    return RefusedForm("return_form", form, status)
