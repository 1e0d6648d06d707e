"""Requests to a second operator in the API, the console and the command."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from supervision.errors import Refused
from supervision.models import Approval
from tests.approvals.kit import ask
from tests.shopping import a_client
from tests.support import console

pytestmark = pytest.mark.usefixtures("shop")


def test_the_api_approves_and_refuses(olga: User, bob: User):
    _order, first = ask(olga)
    _other, second = ask(olga, reason="another")
    mine, theirs = a_client(olga), a_client(bob)

    assert mine.post(f"/api/v1/approvals/{first}/approve/", {"reason": "r"}).status_code == 409
    assert mine.post(f"/api/v1/approvals/{first}/refuse/", {"reason": "r"}).json()["code"] == "same_operator"
    approved = theirs.post(f"/api/v1/approvals/{first}/approve/", {"reason": "seen"})
    refused = theirs.post(f"/api/v1/approvals/{second}/refuse/", {"reason": "no"})

    assert (approved.status_code, approved.json()["state"], approved.json()["decided_by"]) == (202, "approved", "bob")
    assert (refused.status_code, refused.json()["state"]) == (202, "refused")
    assert theirs.post(f"/api/v1/approvals/{first}/approve/", {"reason": "again"}).status_code == 409
    assert [row["id"] for row in theirs.get("/api/v1/approvals/?state=refused").json()["results"]] == [second]
    assert theirs.get("/api/v1/approvals/?state=odd").status_code == 400
    assert a_client(console.person("vera", "viewer")).post(f"/api/v1/approvals/{first}/approve/", {"reason": "r"}).status_code == 403


def test_the_console_shows_and_decides(olga: User, bob: User):
    order, number = ask(olga)
    mine, theirs = Client(), Client()
    mine.force_login(olga)
    theirs.force_login(bob)
    page = f"/admin/supervision/approval/{number}/change/"

    assert order.public_id in theirs.get("/admin/supervision/approval/?state=pending").content.decode()
    assert f"{page}" in theirs.get(console.page(order)).content.decode()
    assert "another operator has to decide" in mine.get(page).content.decode()
    assert mine.post(page, {"decision": "approve", "reason": "r"}, follow=True).status_code == 200
    assert console.state(order) == "Error"
    shown = theirs.get(page).content.decode()
    assert "25.80 EUR" in shown
    assert 'value="approve"' in shown
    theirs.post(page, {"decision": "approve", "reason": "seen the receipt"})

    assert (Approval.objects.get().state, console.state(order)) == ("approved", "Processing")


def test_a_request_is_read_in_the_operators_language(olga: User, bob: User):
    order, number = ask(olga)
    theirs = Client()
    theirs.force_login(bob)
    theirs.cookies[settings.LANGUAGE_COOKIE_NAME] = "it"

    for page in ("/admin/supervision/approval/", f"/admin/supervision/approval/{number}/change/", console.page(order)):
        assert "Salta il passo charge-payment" in theirs.get(page).content.decode()


def test_a_viewer_sees_requests_and_decides_nothing(olga: User):
    order, number = ask(olga)
    vera = Client()
    vera.force_login(console.person("vera", "viewer"))
    page = f"/admin/supervision/approval/{number}/change/"

    assert 'value="approve"' not in vera.get(page).content.decode()
    assert vera.post(page, {"decision": "approve", "reason": "r"}).status_code == 403
    assert console.state(order) == "Error"


def test_the_command_lists_and_decides(olga: User, bob: User, capsys: Any):
    order, number = ask(olga)

    call_command("approvals")
    assert "goods were paid in cash" in capsys.readouterr().out
    with pytest.raises((CommandError, Refused), match="another operator"):
        call_command("approvals", "approve", str(number), "--by", "olga", "--reason", "r")
    with pytest.raises(CommandError, match="--by USER"):
        call_command("approvals", "approve", str(number))
    console.person("ada", "customer")
    with pytest.raises(CommandError, match="no operator"):
        call_command("approvals", "approve", str(number), "--by", "ada", "--reason", "r")
    call_command("approvals", "approve", str(number), "--by", "bob", "--reason", "seen")

    assert console.state(order) == "Processing"


def test_the_shell_that_asked_may_not_approve(bob: User):
    order = console.fail()[0]
    call_command("skip", order.public_id, "--reason", "r")
    asked = Approval.objects.get()

    with pytest.raises((CommandError, Refused), match="another operator"):
        call_command("approvals", "approve", str(asked.pk), "--by", "bob", "--reason", "r")
