"""A verb for all orders of a filtered list: the page that shows what it would do, and the job that the page starts."""

from __future__ import annotations

import re

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from orders.models import Order
from supervision.models import Alert, Job, JobResult, Run
from supervision.operations import operator_verbs
from tests.support.console import ORDERS, fail, finish, hidden, person, place, state, stop_at

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_hints")]
WHY = {"reason": "the bank is back"}


def bulk(verb: str, query: str) -> str:
    return f"{ORDERS}bulk/{verb}/?{query}"


def confirmed(client: Client, verb: str, query: str) -> Job:
    """The job that the page's form starts."""
    shown = client.get(bulk(verb, query))
    assert shown.status_code == 200
    answer = client.post(bulk(verb, query), {**hidden(shown.content.decode()), **WHY})
    job = Job.objects.get()
    assert answer.headers["Location"] == f"/admin/supervision/job/{job.pk}/change/"
    return job


def test_the_filtered_list_leads_to_the_page_and_the_unfiltered_one_does_not(operator: Client, viewer: Client):
    fail()

    links = re.findall(r'href="([^"]*/bulk/[^"]*)"', operator.get(f"{ORDERS}?error_code=refused").content.decode())

    assert links == [f"/admin/orders/order/bulk/{verb}/?error_code=refused" for verb in ("resubmit", "skip", "cancel", "abandon")]
    assert "/bulk/" not in operator.get(ORDERS).content.decode()
    assert "/bulk/" not in viewer.get(f"{ORDERS}?error_code=refused").content.decode()


def test_the_page_says_what_would_happen_and_does_nothing(operator: Client):
    fail(2)
    fail(1, at="book-shipment")

    html = operator.get(bulk("resubmit", "error_code=refused")).content.decode()

    assert "Resubmit: 3 orders" in html
    assert "77.40 EUR" in html
    rows = [re.sub(r"\s*<[^>]+>\s*", "|", row) for row in re.findall(r"<tr><th scope=\"row\".*?</tr>", html, re.S)]
    assert [("charge-payment" in row, "book-shipment" in row) for row in rows] == [(True, False), (False, True)]
    assert not Job.objects.exists()
    assert {run.process_state for run in Run.objects.all()} == {"Error"}


@pytest.mark.parametrize(
    ("query", "chosen"),
    [
        ("step=charge-payment", "payment"),
        ("process_state=Error", "all"),
        ("alert=yes", "all"),
        ("children=no&step=book-shipment", "shipment"),
        ("age=1h", "old"),
        ("age=1h&step=charge-payment", "none"),
        ("q={mail}", "one"),
    ],
)
def test_any_filter_of_the_list_can_be_acted_on(operator: Client, query: str, chosen: str):
    payment, shipment = fail(2), fail(2, at="book-shipment")
    Order.objects.filter(pk=payment[0].pk).update(email="only.me@example.com")
    Run.objects.filter(key=shipment[0].public_id).update(created_at="2026-01-01T00:00:00Z")
    Alert.objects.update(code="")
    query = query.format(mail="only.me@example.com")
    meant = {"payment": payment, "shipment": shipment, "all": [*payment, *shipment], "old": shipment[:1], "one": payment[:1]}

    if chosen == "none":
        assert operator.get(bulk("resubmit", query)).headers["Location"] == f"{ORDERS}?{query}"
        assert not Job.objects.exists()
        return
    job = confirmed(operator, "resubmit", query)
    finish()

    assert set(JobResult.objects.filter(job=job).values_list("key", flat=True)) == {order.public_id for order in meant[chosen]}
    assert {order.pk for order in [*payment, *shipment] if state(order) == "Processing"} == {order.pk for order in meant[chosen]}
    assert job.filter == dict(part.split("=") for part in query.split("&"))


@pytest.mark.parametrize("query", ["", "process_state=", "o=1", "p=2", "unknown=1"])
def test_a_verb_for_every_order_is_refused(operator: Client, query: str):
    fail()

    for answer in (operator.get(bulk("cancel", query)), operator.post(bulk("cancel", query), {**WHY, "seen": 1})):
        assert answer.status_code == 302
    assert "Filter the list first" in operator.get(ORDERS).content.decode()
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("created_after=soon", "Expected a time"),
        ("age=2h", "unfinished for: Expected one of: 5m, 1h, 1d."),
        ("alert=no", "open alert: Expected one of: yes."),
        ("at=payment", "place: Expected one of: overdue, "),
        ("children=x&process_state=Error", "child runs: Expected one of: no, only."),
    ],
)
def test_a_filter_that_makes_no_sense_finds_nothing_and_says_why(operator: Client, query: str, told: str):
    [order] = fail()

    html = operator.post(bulk("cancel", query), {**WHY, "seen": 1}, follow=True).content.decode()

    assert told in html
    assert not Job.objects.exists()
    assert order.number not in operator.get(f"{ORDERS}?{query}").content.decode()
    assert order.number not in b"".join(operator.get(f"{ORDERS}export/?{query}")).decode()


@pytest.mark.parametrize("page", ["bulk/cancel/", "export/"])
def test_an_address_that_the_list_does_not_understand_leads_to_the_list(operator: Client, page: str):
    fail()

    answer = operator.get(f"{ORDERS}{page}?foo=1&process_state=Error")

    assert (answer.status_code, answer["Location"]) == (302, f"{ORDERS}?e=1")
    assert operator.get(answer["Location"]).status_code == 200
    assert not LogEntry.objects.exists()


def test_a_form_of_a_list_that_is_sent_twice_starts_one_job_and_another_form_another(operator: Client):
    fail(2)
    query = "process_state=Error"
    form = {**hidden(operator.get(bulk("resubmit", query)).content.decode()), **WHY}

    answers = [operator.post(bulk("resubmit", query), form) for _ in range(2)]
    finish()  # no order fits now
    answers.append(operator.post(bulk("resubmit", query), form))

    job = Job.objects.get()
    assert [answer.headers.get("Location") for answer in answers] == [f"/admin/supervision/job/{job.pk}/change/"] * 3
    fail()
    operator.post(bulk("resubmit", query), {**hidden(operator.get(bulk("resubmit", query)).content.decode()), **WHY})
    assert Job.objects.count() == 2


def test_a_form_of_chosen_orders_that_is_sent_twice_starts_one_job(operator: Client):
    chosen = [order.pk for order in fail(2)]
    shown = operator.post(ORDERS, {"action": "cancel_selected", "_selected_action": chosen})
    form = {**hidden(shown.content.decode()), **WHY}

    answers = [operator.post(f"{ORDERS}bulk/cancel/", form), operator.post(f"{ORDERS}bulk/cancel/", form)]

    job = Job.objects.get()
    assert [answer.headers.get("Location") for answer in answers] == [f"/admin/supervision/job/{job.pk}/change/"] * 2
    other = Client()
    other.force_login(person("otto", "operator"))
    other.post(f"{ORDERS}bulk/cancel/", form)
    assert Job.objects.count() == 2, "a form belongs to who was shown it"


def test_a_chosen_order_that_has_failed_at_another_step_since_is_left_alone(operator: Client):
    (order,), (other,) = fail(), fail()
    shown = operator.post(ORDERS, {"action": "cancel_selected", "_selected_action": [order.pk, other.pk]})
    operator_verbs.skip(order.public_id, by="another operator", reason="paid in cash")
    stop_at(order, "book-shipment")

    operator.post(f"{ORDERS}bulk/cancel/", {**hidden(shown.content.decode()), **WHY})
    finish()

    assert (state(order), state(other)) == ("Error", "Compensating")
    assert JobResult.objects.get(key=order.public_id).outcome == "changed"


def test_many_more_orders_than_were_seen_are_shown_again(operator: Client):
    fail(2)
    shown = hidden(operator.get(bulk("cancel", "process_state=Error")).content.decode())
    fail(1)

    answer = operator.post(bulk("cancel", "process_state=Error"), {**shown, **WHY})

    html = answer.content.decode()
    assert answer.status_code == 409
    assert "Many more orders fit now" in html
    assert WHY["reason"] in html
    assert not Job.objects.exists()
    assert operator.post(bulk("cancel", "process_state=Error"), {**hidden(html), **WHY}).status_code == 302
    assert Job.objects.get().total == 3


def test_a_reason_is_needed(operator: Client):
    fail()
    shown = hidden(operator.get(bulk("resubmit", "process_state=Error")).content.decode())

    answer = operator.post(bulk("resubmit", "process_state=Error"), {**shown, "reason": " "})

    assert "This field is required" in answer.content.decode()
    assert not Job.objects.exists()


def test_skipping_payments_says_in_money_what_it_means(operator: Client):
    fail(2)
    fail(1, at="book-shipment")

    many = operator.get(bulk("skip", "process_state=Error")).content.decode()
    none = operator.get(bulk("skip", "step=book-shipment")).content.decode()

    assert "2 orders will not be charged, 51.60 EUR in all, and their goods are still sent" in many
    assert "will not be charged" not in none


def test_select_all_of_the_admins_own_list_means_all_that_fit(operator: Client):
    orders = fail(3)
    chosen = {"action": "cancel_selected", "_selected_action": [orders[0].pk], "select_across": "1"}

    answer = operator.post(f"{ORDERS}?step=charge-payment", chosen)

    assert answer.headers["Location"] == bulk("cancel", "step=charge-payment")


def test_an_account_with_the_right_to_one_verb_starts_jobs_of_that_verb_only(client: Client):
    fail()
    lena = person("lena", "viewer")
    lena.user_permissions.add(Permission.objects.get(codename="cancel_run"))
    client.force_login(lena)

    assert client.get(bulk("resubmit", "process_state=Error")).status_code == 403
    assert client.post(bulk("resubmit", "process_state=Error"), {**WHY, "seen": 1}).status_code == 403
    links = re.findall(r"/bulk/(\w+)/", client.get(f"{ORDERS}?process_state=Error").content.decode())
    assert links == ["cancel"]
    job = confirmed(client, "cancel", "process_state=Error")
    assert client.post(f"/admin/supervision/job/{job.pk}/change/", {"verb": "stop", "reason": "wait"}).status_code == 302
    job.refresh_from_db()
    assert job.state == "stopped"
    client.post(f"/admin/supervision/job/{job.pk}/change/", {"verb": "resume", "reason": "go on"})
    finish()
    assert set(JobResult.objects.values_list("outcome", flat=True)) == {"done"}


def test_a_job_of_an_account_that_lost_its_right_is_stopped(operator: Client):
    fail()
    confirmed(operator, "resubmit", "process_state=Error")
    User.objects.get(username="olga").groups.clear()

    finish()

    job = Job.objects.get()
    assert (job.state, job.done) == ("stopped", 0)
    assert "may not act on orders any more" in job.stop_reason


def test_orders_that_cannot_be_treated_so_are_counted(operator: Client):
    fail(1)
    place(2)

    html = operator.get(bulk("resubmit", "step=charge-payment")).content.decode()
    left = operator.get(bulk("resubmit", "created_after=2020-01-01")).content.decode()

    assert "Resubmit: 1 order" in html
    assert "2 fit, but cannot be treated so now" in left


def test_what_no_form_of_ours_sends_starts_nothing(operator: Client):
    (order,) = fail()
    page = reverse("admin:orders_order_bulk", args=["resubmit"])

    huge = operator.post(page, {"chosen": f"{order.public_id}:{'9' * 30}", "reason": "r"})
    unprintable = operator.get(page, {"step": "\0"})

    assert (huge.status_code, unprintable.status_code) == (302, 400)
    assert not Job.objects.exists()
