"""A signal that says that money or goods have come is evidence: the client that placed the order may not send it, at any door."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import Permission

from orders import stakes
from orders.intake_queue import take
from orders.payments import codes
from orders.queries import answer, order_view
from orders.returns.codes import PAID_OUT, RECEIVED
from supervision.approvals import deciding
from supervision.approvals.stakes import Operation
from supervision.intake.amqp import Incoming
from supervision.models import Approval, Signal, Submission
from supervision.signals import sending
from tests.engine.conftest import tuned
from tests.shopping import a_client, a_product, an_account, place

__all__ = ["tuned"]

TRANSFER = {"amount": "25.80", "currency": "EUR", "reference": "T1"}
SAID = "Operators send the signal transfer-received. The client that placed the order may not."


@pytest.fixture
def shop(sas, services, transactional_db, settings):
    a_product()
    settings.BANK_ACCOUNT = "Shop, IT00 TEST"
    return sas


@pytest.fixture
def acme(shop):
    return an_account("acme", "client")


@pytest.fixture
def waiting(shop, acme) -> str:
    """An order of acme's that waits for a transfer."""
    key = place(acme, payment_method=codes.BANK_TRANSFER)
    shop.run()
    return key


def post(account, key: str, name: str, under: str = "k1"):
    address = f"/api/v1/orders/{key}/signals/{name}/"
    return a_client(account).post(address, {"payload": TRANSFER}, format="json", HTTP_IDEMPOTENCY_KEY=under)


def message(key: str, name: str, under: str = "m1") -> Incoming:
    body = json.dumps({"order": key, "name": name, "payload": TRANSFER}).encode()
    return Incoming(body=body, message_id=under, user_id="acme", content_type=None, content_encoding=None, kind="signal")


def waits(key: str) -> bool:
    return answer(order_view(key))["payment"]["state"] == "pending"


@pytest.mark.parametrize("name", [codes.TRANSFER, PAID_OUT, RECEIVED, "a-name-of-tomorrow"])
def test_a_client_tells_the_shop_of_no_money_and_no_goods_of_its_own_order(shop, acme, waiting, name):
    refused = post(acme, waiting, name)
    assert (refused.status_code, refused.json()["code"]) == (403, "not_permitted")
    assert refused.json()["detail"] == SAID.replace(codes.TRANSFER, name)
    assert take([message(waiting, name)]) == [SAID.replace(codes.TRANSFER, name)]

    shop.run()
    assert not Signal.objects.exists()
    assert waits(waiting)


def test_evidence_never_comes_by_the_intake_queue_which_asks_no_second_operator(shop, acme, waiting):
    acme.user_permissions.add(Permission.objects.get(codename="signal_run"))

    assert take([message(waiting, codes.TRANSFER)]) == [SAID]
    assert not Signal.objects.exists()


def test_a_program_with_the_right_to_signals_tells_of_the_transfers_of_every_order(shop, acme, waiting):
    bank = an_account("bank")
    bank.user_permissions.add(Permission.objects.get(codename="signal_run"))

    assert post(bank, waiting, codes.TRANSFER).status_code == 202

    shop.run()
    assert order_view(waiting).process_state == "Processed"


def test_a_client_leaves_room_for_the_signals_of_operators_and_programs(shop, acme, waiting, monkeypatch):
    monkeypatch.setattr(sending, "MOST_SIGNALS", 4)
    monkeypatch.setattr(sending, "MOST_BEFORE_A_CLIENTS", 2, raising=False)
    assert take([message(waiting, codes.ANSWERED)]) == [None]
    for number in range(1, 4):
        last = post(acme, waiting, codes.ANSWERED, f"k{number}")
    full = "The order has 2 signals and takes no more."
    assert (last.status_code, last.json()["code"], last.json()["detail"]) == (409, "signal_too_many", full)
    assert take([message(waiting, codes.ANSWERED, "m2"), message(waiting, codes.ANSWERED)]) == [full, None], "a repetition is none too many"

    assert post(an_account("olga", "operator"), waiting, codes.TRANSFER).status_code == 202

    shop.run()
    assert order_view(waiting).process_state == "Processed"


@pytest.mark.parametrize("readable", [True, False])
def test_a_transfer_that_is_told_before_the_run_waits_for_a_second_operator_too(shop, acme, tuned, readable):
    tuned(APPROVAL_ABOVE={"": "20"})
    key = place(acme, payment_method=codes.BANK_TRANSFER)
    if not readable:
        Submission.objects.filter(public_id=key).update(payload="no order")
    bank = an_account("bank")
    bank.user_permissions.add(Permission.objects.get(codename="signal_run"))

    asked = post(bank, key, codes.TRANSFER)

    assert (asked.status_code, Approval.objects.get().stake) == (202, [["25.80", "EUR"]])
    assert not Signal.objects.exists()


def test_a_transfer_that_is_told_again_after_its_approval_needs_no_other_one(shop, acme, waiting, tuned):
    tuned(APPROVAL_ABOVE={"": "20"})
    bank = an_account("bank")
    bank.user_permissions.add(Permission.objects.get(codename="signal_run"))
    asked = post(bank, waiting, codes.TRANSFER).json()["approval"]
    deciding.approve(asked, by=an_account("otto", "operator"), reason="seen at the bank")
    shop.run()

    again = post(bank, waiting, codes.TRANSFER)

    assert (again.status_code, again.json()["signal"]["outcome"]) == (202, "repeated")
    assert Approval.objects.get().state == "approved"
    assert post(an_account("vera", "viewer"), waiting, codes.TRANSFER).status_code == 403


def test_news_of_a_payment_may_come_from_the_client_because_its_step_only_looks_again(acme, shop):
    key = place(acme, payment_method="pm_card_authenticationRequired")
    shop.run()

    assert post(acme, key, codes.ANSWERED).status_code == 202

    shop.run()
    assert answer(order_view(key))["payment"]["state"] != "paid"


@pytest.mark.django_db
@pytest.mark.parametrize("amount", ["NaN", "Infinity", "ten"])
def test_an_amount_that_is_none_puts_nothing_at_stake(amount):
    operation = Operation(verb="signal", subject="unread", arguments={"payload": {"currency": "EUR", "amount": amount}})

    assert stakes._announced(operation) == {}
