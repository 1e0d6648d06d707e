"""Refunds by API and by command: accepted, refused and approved as on the console's page."""

from __future__ import annotations

from decimal import Decimal
from io import StringIO

import pytest
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command

from orders.models import Refund
from supervision.approvals import deciding
from supervision.errors import ChangedMeanwhile
from supervision.models import Approval
from tests.orders.test_refund_parts import refunds_made
from tests.orders.test_returns import ada, delivered, olga, shop
from tests.shopping import a_client, an_account

__all__ = ["ada", "delivered", "olga", "shop"]
SCRATCH = {"amount": "10.00", "reason": "a scratch"}


def path(key: str) -> str:
    return f"/api/v1/orders/{key}/refunds/"


def post(client, key: str, once: str | None = "one", **changes):
    return client.post(path(key), {**SCRATCH, **changes}, **({} if once is None else {"HTTP_IDEMPOTENCY_KEY": once}))


def command(*said: str) -> str:
    out = StringIO()
    call_command("refund", *said, stdout=out)
    return out.getvalue()


def above(settings, amount: str) -> None:
    settings.SUPERVISION = {**settings.SUPERVISION, "APPROVAL_ABOVE": {"": Decimal(amount)}}


def test_the_api_pays_once_for_one_key_and_lists_the_refund(shop, delivered, services, olga):
    first, again = post(olga, delivered), post(olga, delivered)
    other = post(olga, delivered, amount="11.00")
    shop.run()

    assert (first.status_code, again.status_code, again.json()) == (202, 202, first.json())
    assert ["Idempotent-Replayed" in answer.headers for answer in (first, again)] == [False, True]
    assert (other.status_code, other.json()["code"]) == (422, "key_reused")
    assert refunds_made(services, delivered) == [1000]
    (listed,) = olga.get(path(delivered)).json()["results"]
    assert listed.items() >= {"id": first.json()["id"], "asked_by": "olga", "currency": "EUR", **SCRATCH}.items()


@pytest.mark.parametrize(
    ("changes", "field"),
    [({"amount": "0.00"}, "amount"), ({"amount": "1.005"}, "amount"), ({"amount": 10}, "amount"), ({"amount": "NaN"}, "amount"),
     ({"reason": ""}, "reason"), ({"by": "otto"}, "by"), ({"once": None}, "idempotency_key"), ({"once": "k" * 256}, "idempotency_key")],
)  # fmt: skip
def test_a_mistake_is_told_at_its_field_and_nothing_is_paid(shop, delivered, olga, changes, field):
    answer = post(olga, delivered, **changes)

    assert (answer.status_code, list(answer.json()["errors"])) == (400, [field])
    assert not Refund.objects.exists()


def test_more_than_is_left_is_refused_at_both_doors(shop, delivered, olga):
    answer = post(olga, delivered, amount="79.81")

    assert (answer.status_code, answer.json()["code"]) == (409, "beyond_charge")
    with pytest.raises(CommandError, match=r"refused: Only 79\.80 EUR"):
        command(delivered, "79.81", "--key", "k", "--reason", "r")
    assert not Refund.objects.exists()


def test_above_the_limit_another_operator_approves_what_the_api_asked_for(shop, delivered, services, olga, settings):
    above(settings, "50")

    answer = post(olga, delivered, amount="60.00")

    asked = Approval.objects.get()
    assert (answer.status_code, answer.json()) == (202, {"approval": asked.pk, "state": "pending"})
    assert not Refund.objects.exists()
    deciding.approve(asked.pk, by=an_account("otto", "operator"), reason="I saw it")
    shop.run()
    assert refunds_made(services, delivered) == [6000]


def test_a_request_that_is_sent_again_after_its_approval_gets_the_same_refund(shop, delivered, services, olga, settings):
    above(settings, "50")
    waits = post(olga, delivered, amount="60.00").json()["approval"]
    deciding.approve(waits, by=an_account("otto", "operator"), reason="I saw it")
    shop.run()

    again = post(olga, delivered, amount="60.00")
    other = post(olga, delivered, amount="60.00", reason="another")

    assert (again.status_code, again.json()) == (202, {"id": Refund.objects.get().public_id})
    assert again.headers["Idempotent-Replayed"] == "true"
    assert (other.status_code, other.json()["code"]) == (422, "key_reused")
    assert refunds_made(services, delivered) == [6000]


def test_the_right_to_other_verbs_is_none_to_refund(shop, delivered):
    carla, rita = (an_account(name, "viewer") for name in ("carla", "rita"))
    carla.user_permissions.add(Permission.objects.get(codename="resubmit_run"))
    rita.user_permissions.add(Permission.objects.get(codename="refund_run"))

    assert post(a_client(carla), delivered).status_code == 403
    assert post(a_client(rita), delivered).status_code == 202


def test_the_command_pays_once_for_one_key(shop, delivered, services):
    first = command(delivered, "10.00", "--key", "ticket-7", "--reason", "a scratch", "--json")
    again = command(delivered, "10.00", "--key", "ticket-7", "--reason", "a scratch")
    shop.run()

    assert '"replayed": false' in first
    assert again == f"{delivered}: this refund was asked for before\n"
    assert refunds_made(services, delivered) == [1000]


@pytest.mark.parametrize(
    ("amount", "key", "problem"),
    [("ten", "k", "AMOUNT"), ("0", "k", "amount: Expected"), ("NaN", "k", "amount"), ("1", "", "idempotency_key")],
)
def test_a_mistake_at_the_shell_is_one_line_that_names_it(shop, delivered, amount, key, problem):
    with pytest.raises(CommandError, match=problem):
        command(delivered, amount, "--key", key, "--reason", "r")

    assert not Refund.objects.exists()


def test_the_command_waits_for_an_approval(shop, delivered, settings):
    above(settings, "50")
    an_account("olga", "operator")

    said = command(delivered, "60.00", "--key", "k", "--reason", "r", "--by", "olga", "--json")

    assert said == f'{{"approval": {Approval.objects.get().pk}, "state": "pending"}}\n'
    assert not Refund.objects.exists()


def test_parts_count_together_until_another_operator_has_approved(shop, delivered, services, olga, settings):
    above(settings, "20")
    otto = an_account("otto", "operator")

    first = post(olga, delivered, "one", amount="19.00")
    second = post(olga, delivered, "two", amount="6.80")
    assert post(olga, delivered, "one", amount="19.00").json() == first.json(), "a replay asks for nothing"

    asked = Approval.objects.get()
    assert second.json() == {"approval": asked.pk, "state": "pending"}
    assert (asked.stake, asked.arguments["amount"]) == ([["25.80", "EUR"]], "6.80")
    deciding.approve(asked.pk, by=otto, reason="I saw both")
    assert "id" in post(olga, delivered, "three", amount="1.00").json(), "what was approved counts no more"
    assert "approval" in post(olga, delivered, "four", amount="0.01").json()
    shop.run()
    assert sorted(refunds_made(services, delivered)) == [100, 680, 1900]


def test_a_part_that_was_paid_meanwhile_makes_the_request_fail(shop, delivered, services, olga, settings):
    above(settings, "20")
    post(olga, delivered, "one", amount="21.00")
    post(olga, delivered, "two", amount="19.00")

    with pytest.raises(ChangedMeanwhile, match=r"40\.00 EUR are at stake now"):
        deciding.approve(Approval.objects.get().pk, by=an_account("otto", "operator"), reason="I saw one")

    assert [str(one.amount) for one in Refund.objects.all()] == ["19.00"]
