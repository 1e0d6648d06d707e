"""Mails and documents are written in the language that the customer ordered in, in every process that makes them."""

from __future__ import annotations

import json

import pytest

from orders import lifecycle
from orders.agents.email import EmailAgent
from orders.documents import pdf
from orders.documents.tables import Document
from orders.models import Order
from supervision.intake.consuming import consume_batch
from supervision.models import Run, Submission
from supervision.outbox.notifications import deliver_due
from supervision.workflow import ClosedRun
from tests.orders.test_checkout import a_checkout
from tests.shopping import ADDRESS, a_request, order, place, signed_in
from tests.support.requests import StepOfOrder

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("no_hints")]


def test_a_checkout_in_italian_is_an_order_in_italian(client, mug) -> None:
    form = a_checkout(client)

    client.post("/checkout/", form, headers={"Accept-Language": "it"})
    consume_batch(born=False)

    assert Order.objects.get().run.payload["language"] == "it"


def test_the_shops_own_language_is_not_written_down(client, mug) -> None:
    client.post("/checkout/", a_checkout(client))

    assert "language" not in json.loads(Submission.objects.get().payload)


def test_a_client_says_the_language_of_its_order_and_reads_it_again(mug) -> None:
    client = signed_in("shop-server", "client")

    key = order(client, consumed=True, language="it")
    usual = order(client)
    refused = client.post("/api/v1/orders/", a_request(language="xx"))

    assert Run.objects.get(key=key).payload["language"] == "it"
    assert [client.get(f"/api/v1/orders/{one}/").json()["language"] for one in (key, usual)] == ["it", "en"]
    assert refused.status_code == 400
    assert "language" in refused.json()["errors"]


@pytest.mark.parametrize(
    ("language", "amount", "country"),
    [(None, "€25.80", "Italy"), ("it", "25,80\xa0€", "Italia"), ("pt-br", "€\xa025,80", "Itália"), ("xx", "€25.80", "Italy")],
)
def test_the_confirmation_has_amounts_and_countries_in_the_orders_language(mailoutbox, language, amount, country) -> None:
    step = StepOfOrder("order-1", "notify-customer", run_id=4711, seconds=3)
    step.payload["language"] = language

    EmailAgent().perform(step.request())

    [mail] = mailoutbox
    assert amount in mail.body
    assert amount in mail.alternatives[0][0]
    assert country in mail.body.splitlines()


@pytest.mark.django_db(transaction=True)
def test_the_mail_about_a_cancellation_is_in_the_orders_language(mailoutbox, mug) -> None:
    payload = {"email": "ada@example.com", "language": "it"}

    lifecycle.tell_the_customer([ClosedRun(run_id=1, key="order-1", reason="", payload=payload)])
    deliver_due()

    assert mailoutbox[0].to == ["ada@example.com"]


def test_an_invoice_is_printed_in_the_orders_language(mug) -> None:
    place(language="it")
    consume_batch(born=False)
    view_of = Order.objects.get()
    body = {
        "lines": [
            {"sku": "MUG", "name": "Tazza", "quantity": 1, "unit_price": "1234.50", "amount": "1234.50", "rate": "22", "vat": "222.62"}
        ],
        "to": ADDRESS,
        "seller": "Harbour Goods",
        "order_number": view_of.number,
        "ordered_at": view_of.created_at.isoformat(),
    }
    made = Document(
        kind="invoice", currency="EUR", total="1234.50", vat="222.62", issued_at=view_of.created_at, series="INV", year=2026, number=1
    )

    made.body = {**body, "language": "it"}
    italian = pdf.printed(made)
    made.body = body

    assert b"/Lang (it)" in italian
    assert italian != pdf.printed(made)
