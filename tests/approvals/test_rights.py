"""Permissions per verb and per agent, in the console, at the API and in commands alike; `operate` stays the right to all verbs."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import Client

from supervision.approvals import deciding
from supervision.errors import NotPermitted
from supervision.models import Submission
from supervision.operations import operator_verbs, pauses
from tests.approvals.kit import ask
from tests.shopping import a_client, place
from tests.support import console

pytestmark = pytest.mark.usefixtures("shop")
WHY = {"reason": "the customer has called"}


@pytest.fixture(autouse=True)
def _no_limit(shop: None, tuned: Any) -> None:
    tuned(APPROVAL_ABOVE={})


def clerk(*codenames: str) -> User:
    """An account that sees everything and has these rights."""
    user = console.person("carla", "viewer")
    user.user_permissions.set(Permission.objects.filter(content_type__app_label="supervision", codename__in=codenames))
    assert user.user_permissions.count() == len(codenames)
    return User.objects.get(pk=user.pk)


def status(user: User, order: Any, verb: str) -> tuple[int, int, bool]:
    """What the API and the console answer, and whether the page of the order offers the verb."""
    browser = Client()
    browser.force_login(user)
    offered = f'id="sc-verb-{verb}"' in browser.get(console.page(order)).content.decode()
    page = browser.get(console.verb(order, verb)).status_code
    return a_client(user).post(f"/api/v1/orders/{order.public_id}/{verb}/", WHY).status_code, page, offered


@pytest.mark.parametrize("verb", ["resubmit", "skip", "compensate", "abandon"])
def test_a_right_to_one_verb_opens_that_verb_alone(verb: str):
    allowed, other = console.fail(2)
    user = clerk(f"{verb}_run")

    for name in ("resubmit", "skip", "compensate", "abandon"):
        if name != verb:
            assert status(user, other, name) == (403, 403, False)
            with pytest.raises(CommandError, match="may not"):
                call_command(name, other.public_id, "--reason", "r", "--by", "carla")
    browser = Client()
    browser.force_login(user)
    assert f'id="sc-verb-{verb}"' in browser.get(console.page(allowed)).content.decode()
    assert a_client(user).post(f"/api/v1/orders/{allowed.public_id}/{verb}/", WHY).status_code == 202
    console.confirm(browser, other, verb, **WHY)
    assert console.state(other) != "Error"


def test_a_right_at_one_agent_ends_at_the_others():
    payment, parcel = console.fail()[0], console.fail(at="book-shipment")[0]
    user = clerk("skip_run_at_shipping")

    assert status(user, payment, "skip")[::2] == (403, False)
    with pytest.raises(NotPermitted, match="skip steps of payment"):
        operator_verbs.skip(payment.public_id, by=user, reason="r")
    with pytest.raises(CommandError, match="payment"):
        call_command("skip", payment.public_id, "--reason", "r", "--by", "carla")
    assert console.state(payment) == "Error"

    assert status(user, parcel, "skip") == (202, 200, True)


def test_pausing_cancelling_and_approving_are_rights_of_their_own(tuned: Any):
    order, number = console.fail()[0], 0
    user = clerk("pause_run")

    pauses.pause("order", order.public_id, reason="r", by=user)
    assert a_client(user).post(f"/api/v1/orders/{order.public_id}/cancel/", WHY).status_code == 403
    tuned(APPROVAL_ABOVE={"": "20"})
    order, number = ask(console.person("olga", "operator"), order)
    with pytest.raises(NotPermitted, match="may not approve"):
        deciding.approve(number, by=user, reason="r")
    assert a_client(user).post(f"/api/v1/approvals/{number}/approve/", WHY).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="approve_verb"))
    with pytest.raises(NotPermitted, match="may not skip"):  # who may not do it may not approve it
        deciding.approve(number, by=User.objects.get(pk=user.pk), reason="r")
    user.user_permissions.add(Permission.objects.get(codename="skip_run"))

    assert deciding.approve(number, by=User.objects.get(pk=user.pk), reason="seen").state == "approved"


def test_an_account_with_a_right_to_cancel_is_no_customer_at_the_gate(tuned: Any):
    order = console.fail(at="book-shipment")[0]
    tuned(APPROVAL_ABOVE={"": "20"})

    answer = a_client(clerk("cancel_run")).post(f"/api/v1/orders/{order.public_id}/cancel/", WHY)

    assert (answer.status_code, answer.json()["state"], console.state(order)) == (202, "pending", "Error")


def test_operators_keep_every_verb():
    user = console.person("olga", "operator")
    for verb, order in zip(("resubmit", "skip", "compensate"), console.fail(3), strict=True):
        assert a_client(user).post(f"/api/v1/orders/{order.public_id}/{verb}/", WHY).status_code == 202


def test_an_order_that_was_not_taken_up_yet_is_cancelled_by_those_who_may_cancel():
    console.mug()
    key, user = place(), clerk("skip_run")
    with pytest.raises(NotPermitted, match="may not cancel"):
        operator_verbs.cancel(key, by=user, reason="r")
    assert Submission.objects.get(public_id=key).cancel_requested_at is None
    user.user_permissions.add(Permission.objects.get(codename="cancel_run"))

    operator_verbs.cancel(key, by=User.objects.get(pk=user.pk), reason="r")

    assert Submission.objects.get(public_id=key).cancelled_by == "carla"
