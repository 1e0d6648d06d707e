"""The order page's form to pay in another way."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest
from django.utils.translation import gettext as _

from orders.forms import PayForm
from orders.payments.again import pay_again
from orders.payments.beside import TRANSFER_CAME
from orders.queries import OrderView
from orders.views import by_customer
from supervision.errors import Refused, UnknownRun


@by_customer
def pay(request: HttpRequest, view: OrderView, by: Any) -> None:
    """Pay the order again."""
    form = PayForm(request.POST)
    if not form.is_valid():
        messages.error(request, _("Choose how you want to pay."))
        return
    try:
        pay_again(view, form.cleaned_data["payment_method"], by=by)
    except (Refused, UnknownRun) as problem:
        came = problem.code == TRANSFER_CAME
        messages.warning(request, str(problem) if came else _("This order can not be paid again now."))
    else:
        messages.success(request, _("We are charging your payment again."))
