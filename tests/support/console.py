"""Orders in the states that concern operators, and accounts of each group."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from orders.models import Order, Product
from supervision import testing
from supervision.jobs import working
from supervision.models import Run, StepState
from supervision.recovery import failures
from supervision.retry import Failure, Outcome
from supervision.store import step_verbs
from tests import shopping

ATTACKS = (
    "<script>window.pwned=1</script>",
    '"><img src=x onerror="window.pwned=1">',
    "'--></style></textarea><svg/onload=window.pwned=1>",
    "{{ 7|add:7 }}{% now 'Y' %}",
    "javascript:window.pwned=1",
    "\u202egnp.exe\u2028<b>bold</b>",
)
ATTACK = " ".join(ATTACKS)
ORDERS = "/admin/orders/order/"
PASSWORD = "a password for tests"


def person(name: str, *groups: str, staff: bool = True) -> User:
    """An account in these groups."""
    user = User.objects.create_user(name, password=PASSWORD, is_staff=staff)
    user.groups.set([group(name) for name in groups])
    return user


def group(name: str) -> Group:
    """One of the four groups; created again if an earlier test emptied the database."""
    found, made = Group.objects.get_or_create(name=name)
    if made:
        for permission in import_module("orders.migrations.0001_squashed_0004_incidents").GROUPS[name]:
            app_label, codename = permission.split(".")
            found.permissions.add(Permission.objects.get(content_type__app_label=app_label, codename=codename))
    return found


def mug(**fields: Any) -> Product:
    return Product.objects.get_or_create(sku="MUG-BLUE", defaults={"name": "Blue mug", "price": "12.90", "available": 1000, **fields})[0]


def place(count: int = 1, **changes: Any) -> list[Order]:
    """Orders that are consumed and whose first step is claimed; no agent works on them."""
    return _orders(_taken_up(count, changes)[0])


def _taken_up(count: int, changes: dict[str, Any]) -> tuple[list[str], Any]:
    mug()
    return [shopping.place(**changes) for _ in range(count)], testing.schedule()


def _orders(keys: list[str]) -> list[Order]:
    return list(Order.objects.filter(public_id__in=keys).select_related("run").order_by("pk"))


def fail(
    count: int = 1,
    *,
    at: str = "charge-payment",
    message: str = "card_declined: refused",
    outcome: Outcome = Outcome.PERMANENT,
    for_customer: bool = False,
    **changes: Any,
) -> list[Order]:
    """Orders in Error at this step; the steps before it are done. for_customer: only the customer can correct it."""
    keys, ((spot, claims),) = _taken_up(count, changes)
    while spot.definition.step(spot.position).name != at:
        started = step_verbs.start(spot, claims)
        claims = step_verbs.finish_at(spot)([(work, {"id": "it_1"}) for work in started]).claims
        spot = spot.following
    for work in step_verbs.start(spot, claims):
        failures.fail(spot, [(work.claim, Failure(outcome=outcome, message=message, code="refused", for_customer=for_customer))])
    return _orders(keys)


def stop_at(order: Order, step: str, direction: str = "do", attempt: int = 1) -> None:
    """Put the order into Error at this step, as if so many attempts of it had failed."""
    facts = {"process_state": "Error", "attempt": attempt, "last_error": "refused again", "not_before": None, "turn_at": None}
    StepState.objects.filter(run=order.run, name=step, direction=direction).update(**facts)
    Run.objects.filter(pk=order.run_id).update(process_state="Error")


def page(order: Order) -> str:
    """The URL of an order's page."""
    return reverse("admin:orders_order_change", args=[order.pk])


def verb(order: Order, name: str) -> str:
    """The URL of this verb's confirmation page."""
    return reverse("admin:orders_order_operate", args=[order.pk, name])


def hidden(html: str) -> dict[str, str]:
    """The hidden fields of the confirmation page's form."""
    pairs = {}
    for tag in re.findall(r"<input[^>]*>", html):
        name, value = re.search(r'name="([^"]*)"', tag), re.search(r'value="([^"]*)"', tag)
        if name and name[1] != "csrfmiddlewaretoken" and 'type="checkbox"' not in tag:
            pairs[name[1]] = value[1] if value else ""
    return pairs


def confirm(client: Client, order: Order, name: str, **fields: Any) -> Any:
    """Get the confirmation page, then send its form with these fields."""
    shown = client.get(verb(order, name))
    assert shown.status_code == 200, shown.content.decode()
    return client.post(verb(order, name), {**hidden(shown.content.decode()), **fields})


def state(order: Order) -> str:
    """The order's current state in the engine."""
    return testing.run_of(order.public_id).process_state


def finish() -> None:
    """Work until no job is left."""
    while working.turn(rest=0.0):
        pass
