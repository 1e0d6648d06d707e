"""Permissions per verb and per agent, in the console, at the API and in commands alike; `operate` stays the right to all verbs."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import CommandError, call_command
from django.test import Client

from orders.models import Order
from supervision.approvals import deciding, rights
from supervision.errors import NotPermitted
from supervision.incidents import lifecycle
from supervision.models import Alert, DeadLetter, Incident, Resource, Submission
from supervision.operations import operator_verbs, pauses, resource_limits
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


@pytest.mark.parametrize("may", [True, False])
def test_the_right_to_approve_is_enough_in_the_console(tuned: Any, may: bool):
    olga = console.person("olga", "operator")
    tuned(APPROVAL_ABOVE={"": "20"})
    order, number = ask(olga)
    browser = Client()
    browser.force_login(clerk(*(["approve_verb"] if may else []), "skip_run"))
    page = f"/admin/supervision/approval/{number}/change/"

    assert ('name="decision"' in browser.get(page).content.decode()) is may
    answer = browser.post(page, {"decision": "approve", "reason": "seen"})

    assert (answer.status_code, console.state(order) == "Error") == ((302, False) if may else (403, True))


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


# ------------------------------------------------------------------------------ duties beside the verbs of orders

DUTIES = {"incident": "handle_incident", "alert": "handle_incident", "letter": "settle_dead_letter", "resource": "change_resource"}


@pytest.fixture
def rows() -> dict[str, Any]:
    """A row that each duty is about."""
    (order,) = console.fail()
    lifecycle.look()
    return {
        "incident": Incident.objects.get(),
        "alert": Alert.objects.get(run=order.run),
        "letter": DeadLetter.objects.create(source="test", body=b"x", reason="y"),
        "resource": Resource.objects.get_or_create(name="payment")[0],
    }


def answers(user: User, rows: dict[str, Any], duty: str) -> dict[str, int]:
    """What the doors of this duty answer."""
    api, pk = a_client(user), rows[duty].pk
    browser = Client()
    browser.force_login(user)
    match duty:
        case "incident":
            found = {
                "acknowledge": api.post(f"/api/v1/incidents/{pk}/acknowledge/", WHY).status_code,
                "notes": api.post(f"/api/v1/incidents/{pk}/notes/", {"text": "seen"}).status_code,
                "owner": api.put(f"/api/v1/incidents/{pk}/owner/", {"owner": None}).status_code,
                "page": browser.post(f"/admin/supervision/incident/{pk}/change/", {"verb": "note", "text": "seen"}).status_code,
            }
        case "alert":
            found = {
                "acknowledge": api.post(f"/api/v1/alerts/{pk}/acknowledge/").status_code,
                "page": browser.post("/admin/supervision/alert/acknowledge/", {"alert": str(pk)}).status_code,
            }
        case "letter":
            found = {
                "discard": api.post(f"/api/v1/dead-letters/{pk}/discard/", WHY).status_code,
                "page": browser.get(f"/admin/supervision/deadletter/{pk}/resolve/discard/").status_code,
            }
        case _:
            found = {
                "change": api.patch(f"/api/v1/resources/{rows[duty].name}/", {"capacity": 5}).status_code,
                "page": browser.post(f"/admin/supervision/resource/{pk}/close/").status_code,
            }
    return found


def by_command(duty: str, rows: dict[str, Any]) -> None:
    words = {"incident": ["incidents", "--acknowledge"], "letter": ["dead_letters", "discard"]}[duty]
    errors = StringIO()
    try:
        call_command(*words, str(rows[duty].pk), "--reason", "r", "--by", "carla", stdout=StringIO(), stderr=errors)
    except CommandError as problem:
        raise CommandError(f"{errors.getvalue()}{problem}") from problem


@pytest.mark.parametrize("duty", DUTIES)
def test_a_right_to_one_duty_opens_that_duty_alone(rows: dict[str, Any], duty: str):
    user = clerk(DUTIES[duty])

    for other, right in DUTIES.items():
        if right == DUTIES[duty]:
            continue
        assert set(answers(user, rows, other).values()) == {403}, other
        if other in ("incident", "letter"):
            with pytest.raises(CommandError, match="carla may not"):
                by_command(other, rows)
    order = Order.objects.get()
    assert status(user, order, "resubmit") == (403, 403, False)
    if duty in ("incident", "letter"):
        by_command(duty, {**rows, "letter": DeadLetter.objects.create(source="test", body=b"z", reason="y")})
    assert all(code in (200, 201, 202, 302) for code in answers(user, rows, duty).values())


@pytest.mark.parametrize("duty", DUTIES)
def test_operators_keep_every_duty_and_viewers_and_clerks_of_verbs_have_none(rows: dict[str, Any], duty: str):
    assert set(answers(clerk("skip_run", "approve_verb"), rows, duty).values()) == {403}
    User.objects.filter(username="carla").delete()
    assert set(answers(clerk(), rows, duty).values()) == {403}
    User.objects.filter(username="carla").delete()

    assert all(code in (200, 201, 202, 302) for code in answers(clerk("operate"), rows, duty).values())


def test_an_order_cannot_be_steered_by_who_handles_incidents_but_an_incident_can_be_given_to_them(rows: dict[str, Any]):
    user = clerk("handle_incident")

    assert a_client(user).put(f"/api/v1/incidents/{rows['incident'].pk}/owner/", {"owner": "carla"}).status_code == 200
    assert not rights.is_operator(user)
    with pytest.raises(NotPermitted, match="carla may not settle dead letters"):
        operator_verbs.discard_dead_letter(rows["letter"].pk, by=user, reason="r")
    with pytest.raises(NotPermitted, match="carla may not change limits"):
        resource_limits.change("payment", by=user, capacity=1)


def test_what_a_page_offers_follows_the_rights(rows: dict[str, Any]):
    order = Order.objects.get()
    for right, offered in (("handle_incident", True), ("skip_run", False)):
        browser = Client()
        browser.force_login(clerk(right))
        assert ("/alert/acknowledge/" in browser.get(console.page(order)).content.decode()) is offered
        assert (
            'value="acknowledge"' in browser.get(f"/admin/supervision/incident/{rows['incident'].pk}/change/").content.decode()
        ) is offered
        User.objects.filter(username="carla").delete()
