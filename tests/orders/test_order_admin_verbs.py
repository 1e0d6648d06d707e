"""Operators' verbs for one order and for many at once: each asks before it acts. Only operators may use them."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from django.urls import reverse

from orders.models import Order
from supervision import testing
from supervision.console.verb_forms import BULK_LIMIT, VERBS
from supervision.jobs import working
from supervision.models import Job, Run, StepEvent, StepState
from supervision.operations import operator_verbs
from tests.support.console import ORDERS, confirm, fail, hidden, page, person, place, state, stop_at, verb

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_hints")]


# --- Verbs ------------------------------------------------------------------------------------------------------------


SHOPS_VERBS = [name for name in VERBS if name not in ("signal", "move")]  # no step of the shop's order waits; no version is newer


@pytest.mark.parametrize("name", SHOPS_VERBS)
def test_a_verbs_page_shows_its_plan_and_does_nothing(operator: Client, name: str):
    (order,) = fail()

    events = StepEvent.objects.count()

    html = operator.get(verb(order, name)).content.decode()

    assert "What will happen" in html
    assert state(order) == "Error"
    assert StepEvent.objects.count() == events


@pytest.mark.parametrize(
    ("name", "step", "warning"),
    [
        ("skip", "charge-payment", "will not be charged, and the goods are still sent"),
        ("complete", "charge-payment", "are paid, and the goods are sent"),
        ("resubmit", "charge-payment", None),
        ("skip", "book-shipment", None),
    ],
)
def test_a_verb_that_gives_goods_away_says_so_in_money(operator: Client, name: str, step: str, warning: str | None):
    (order,) = fail(at=step)

    html = operator.get(verb(order, name)).content.decode()

    if warning:
        assert f"{order.total} {order.currency} {warning}" in html
    else:
        assert "goods are" not in html


@pytest.mark.parametrize("name", SHOPS_VERBS)
def test_nobody_acts_without_a_reason(operator: Client, name: str):
    (order,) = fail()

    for reason in ("", "   "):
        answer = confirm(operator, order, name, reason=reason)
        assert "This field is required" in answer.content.decode()

    assert state(order) == "Error"
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize(
    ("name", "becomes"),
    [
        ("resubmit", "Processing"),
        ("skip", "Processing"),
        ("compensate", "Compensating"),
        ("cancel", "Compensating"),
        ("abandon", "Compensating"),
    ],
)
def test_an_operator_acts_with_a_reason_and_it_is_kept_with_the_name(operator: Client, name: str, becomes: str):
    (order,), (bystander,) = fail(), fail()

    answer = confirm(operator, order, name, reason="asked by phone")

    assert answer.status_code == 302
    assert answer["Location"] == page(order)
    assert state(order) == becomes
    assert state(bystander) == "Error"
    entry = LogEntry.objects.get()
    assert entry.user.username == "olga"
    assert "asked by phone" in entry.change_message
    assert StepEvent.objects.filter(run=order.run, actor="olga", why__contains="asked by phone").exists()


def test_what_changed_since_the_operator_looked_is_left_alone(operator: Client):
    (order,) = fail()
    looked = hidden(operator.get(verb(order, "resubmit")).content.decode())
    operator_verbs.resubmit(order.public_id, by="another operator", reason="first")
    events = StepEvent.objects.filter(run=order.run).count()

    answer = operator.post(verb(order, "resubmit"), {**looked, "reason": "second"})

    assert answer.status_code == 409
    assert "changed meanwhile" in answer.content.decode()
    assert StepEvent.objects.filter(run=order.run).count() == events
    assert not LogEntry.objects.exists()


def test_skip_undo_and_cancel_too_leave_alone_what_changed(operator: Client):
    for name in ("skip", "compensate", "cancel"):
        (order,) = fail()
        looked = hidden(operator.get(verb(order, name)).content.decode())
        operator_verbs.resubmit(order.public_id, by="another operator", reason="first")

        answer = operator.post(verb(order, name), {**looked, "reason": "second"})

        assert answer.status_code == 409
        assert state(order) == "Processing"


@pytest.mark.parametrize("name", ["resubmit", "skip"])
def test_an_undo_that_is_stuck_can_be_settled_although_a_step_had_failed_before(operator: Client, name: str):
    (order,) = fail(at="book-shipment")
    operator_verbs.cancel(order.public_id, by="another operator", reason="hopeless")
    assert state(order) == "Compensating"
    stop_at(order, "charge-payment", "undo", attempt=3)
    assert order.run.steps.get(direction="do", process_state="Error").attempt == 1, "the step that had failed stays in Error"

    shown = operator.get(page(order)).content.decode()
    answer = confirm(operator, order, name, reason="looked at the service")

    assert (answer.status_code, state(order)) == (302, "Compensating")
    assert "Last error of charge-payment" in shown


def test_what_the_operator_typed_survives_a_change_elsewhere(operator: Client):
    (order,) = fail(at="book-shipment")
    looked = hidden(operator.get(verb(order, "resubmit")).content.decode())
    typed = {**looked, "plan_version": "older", "reason": "mistyped", "amend-shipping_address.city": "Asti"}

    html = operator.post(verb(order, "resubmit"), typed).content.decode()

    assert "changed meanwhile" in html
    assert "mistyped</textarea>" in html
    assert hidden(html)["amend-shipping_address.city"] == "Asti"
    assert hidden(html)["plan_version"] not in ("", "older")


def test_a_verb_is_not_offered_where_it_makes_no_sense(operator: Client):
    (order,) = place()

    html = operator.get(page(order)).content.decode()
    answer = operator.get(verb(order, "resubmit"))

    assert verb(order, "cancel") in html
    assert verb(order, "resubmit") not in html
    assert answer.status_code == 409
    assert "not possible now" in answer.content.decode()
    assert "<textarea" not in answer.content.decode()


def test_a_verb_that_makes_no_sense_any_more_says_so(operator: Client):
    (order,) = fail()
    Run.objects.filter(pk=order.run_id).update(process_state="Processing")
    StepState.objects.filter(run=order.run, process_state="Error").update(process_state="Pending")

    answer = operator.post(verb(order, "resubmit"), {"reason": "impatience"}, follow=True)

    assert "no step is in Error" in answer.content.decode()


def test_the_address_is_corrected_and_the_step_resubmitted_in_one_save(operator: Client):
    (order,) = fail(at="book-shipment", message="422 address_not_serviceable")

    answer = confirm(operator, order, "resubmit", reason="typing error", **{"amend-shipping_address.postal_code": "10122"})

    assert answer.status_code == 302
    run = testing.run_of(order.public_id)
    assert run.process_state == "Processing"
    assert run.payload["shipping_address"] == {**order.run.payload["shipping_address"], "postal_code": "10122"}
    why = StepEvent.objects.filter(run=run, actor="olga").first().why
    assert "10121" in why
    assert "10122" in why


@pytest.mark.parametrize(
    ("at", "field", "value"),
    [
        ("book-shipment", "shipping_address.country", "Italy"),
        ("book-shipment", "shipping_address.city", ""),
        ("charge-payment", "payment_method", "4242 4242 4242 4242"),
    ],
)
def test_a_correction_that_makes_no_sense_is_refused_at_its_field_and_nothing_runs(operator: Client, at: str, field: str, value: str):
    (order,) = fail(at=at)

    answer = confirm(operator, order, "resubmit", reason="typing error", **{f"amend-{field}": value})

    assert answer.status_code == 200
    assert "sc-error" in answer.content.decode()
    assert state(order) == "Error"
    assert testing.run_of(order.public_id).payload == order.run.payload


def test_only_the_failed_steps_own_fields_are_offered(operator: Client):
    (order,) = fail(at="charge-payment")

    html = operator.get(verb(order, "resubmit")).content.decode()

    assert "amend-payment_method" in html
    assert "amend-shipping_address" not in html
    confirm(operator, order, "resubmit", reason="x", **{"amend-email": "evil@example.com"})
    assert testing.run_of(order.public_id).payload["email"] == "ada@example.com"


def test_a_new_key_is_offered_only_where_the_effect_is_not_known(operator: Client):
    (sure,), (unsure,) = fail(), fail()
    StepState.objects.filter(run=unsure.run, process_state="Error").update(effect="unknown")

    assert "Use a new idempotency key" not in operator.get(verb(sure, "resubmit")).content.decode()
    assert "Use a new idempotency key" in operator.get(verb(unsure, "resubmit")).content.decode()


@pytest.mark.parametrize(("asked", "generation"), [({}, 1), ({"new_generation": "on"}, 2)])
def test_a_step_of_unknown_effect_keeps_its_key_unless_the_operator_has_looked(operator: Client, asked: dict[str, str], generation: int):
    (order,) = fail()
    StepState.objects.filter(run=order.run, process_state="Error").update(effect="unknown")

    confirm(operator, order, "resubmit", reason="looked at the bank", **asked)

    assert testing.step(order.public_id, "charge-payment").generation == generation


# --- Rights -----------------------------------------------------------------------------------------------------------


def test_a_viewer_sees_everything_and_is_offered_nothing(viewer: Client):
    (order,) = fail()

    html = viewer.get(page(order)).content.decode()

    assert order.public_id in html
    assert "/operate/" not in html
    assert "Acknowledge" not in html
    assert "resubmit_selected" not in viewer.get(ORDERS).content.decode()


@pytest.mark.parametrize("name", VERBS)
def test_a_viewer_who_posts_a_verb_is_refused_and_nothing_changes(viewer: Client, name: str):
    (order,) = fail()
    before = list(StepEvent.objects.values_list("run_id", "seq"))

    assert viewer.get(verb(order, name)).status_code == 403
    assert viewer.post(verb(order, name), {"reason": "because"}).status_code == 403
    bulk = reverse("admin:orders_order_bulk", args=[name])
    assert viewer.post(bulk, {"reason": "because", "chosen": f"{order.public_id}:1"}).status_code == 403
    chosen = {"action": f"{name}_selected", "_selected_action": [order.pk]}
    viewer.post(ORDERS, chosen)

    assert state(order) == "Error"
    assert list(StepEvent.objects.values_list("run_id", "seq")) == before


def test_customers_and_strangers_are_refused(client: Client):
    (order,) = fail()

    for who in (None, person("carl", "customer", staff=False), person("stan")):
        if who is not None:
            client.force_login(who)
        for address in (ORDERS, page(order), verb(order, "resubmit")):
            assert client.get(address).status_code in (302, 403)
            assert client.post(address, {"reason": "because"}).status_code in (302, 403)

    assert state(order) == "Error"


def test_a_verb_needs_the_forms_own_token(operator: Client):
    (order,) = fail()
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = operator.cookies

    assert strict.post(verb(order, "resubmit"), {"reason": "forged"}).status_code == 403
    assert state(order) == "Error"


# --- Many at once -----------------------------------------------------------------------------------------------------


def select(client: Client, name: str, orders: list[Order]) -> Any:
    return client.post(ORDERS, {"action": f"{name}_selected", "_selected_action": [order.pk for order in orders]})


def test_selected_orders_are_shown_before_anything_happens(operator: Client):
    failed, others = fail(3), place(2)

    html = select(operator, "resubmit", [*failed, *others]).content.decode()

    assert "3 orders in Error are chosen" in html
    assert "77.40 EUR" in html
    assert {state(order) for order in failed} == {"Error"}


@pytest.mark.parametrize(("name", "becomes"), [("resubmit", "Processing"), ("cancel", "Compensating")])
def test_confirmed_orders_are_done_and_those_that_changed_are_counted(operator: Client, name: str, becomes: str):
    failed, (untouched,) = fail(4), fail()
    shown = select(operator, name, failed).content.decode()
    operator_verbs.resubmit(failed[0].public_id, by="another operator", reason="first")

    answer = operator.post(reverse("admin:orders_order_bulk", args=[name]), {**hidden(shown), "reason": "the bank was down"}, follow=True)

    (job,) = Job.objects.all()
    html = answer.content.decode()
    if name == "resubmit":  # the one that runs again cannot be resubmitted; it could still be cancelled, if it had not changed
        assert "1 changed meanwhile and was left alone" in html
    assert f"is started for {3 if name == 'resubmit' else 4} orders" in html
    assert {state(order) for order in failed[1:]} == {"Error"}  # nothing is done in the request

    working.turn(rest=0)

    job.refresh_from_db()
    assert [state(order) for order in failed] == ["Processing", becomes, becomes, becomes]
    assert state(untouched) == "Error"
    assert (job.done, job.failed) == (3, 0 if name == "resubmit" else 1)
    assert LogEntry.objects.filter(object_id__in=[str(testing.run_of(order.public_id).pk) for order in failed]).count() == 3


def test_many_orders_need_a_reason_too(operator: Client):
    failed = fail(2)
    shown = hidden(select(operator, "resubmit", failed).content.decode())

    html = operator.post(reverse("admin:orders_order_bulk", args=["resubmit"]), {**shown, "reason": ""}).content.decode()

    assert "This field is required" in html
    assert hidden(html)["chosen"] == shown["chosen"]
    assert {state(order) for order in failed} == {"Error"}


def test_no_more_than_the_limit_is_taken_at_once(operator: Client, monkeypatch: pytest.MonkeyPatch):
    assert BULK_LIMIT == 500
    monkeypatch.setattr("supervision.console.bulk.pages.BULK_LIMIT", 3)
    failed = fail(5)

    html = select(operator, "resubmit", failed).content.decode()

    assert len(hidden(html)["chosen"].split()) == 3
    assert "More than 3 orders were selected" in html


def test_selecting_no_order_in_error_does_nothing(operator: Client):
    orders = place(2)

    answer = operator.post(ORDERS, {"action": "cancel_selected", "_selected_action": [order.pk for order in orders]}, follow=True)

    assert "None of the selected orders is in Error" in answer.content.decode()
