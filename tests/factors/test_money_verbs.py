"""A verb that moves or forgoes money asks again who it is, if the session was last proved too long ago, and loses nothing typed."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from orders.edits.codes import VERB as EDIT
from orders.models import Order
from orders.refunds.codes import VERB as REFUND
from orders.returns.codes import CORRECT
from supervision.approvals import gate
from supervision.approvals.stakes import Operation
from supervision.errors import ProofNeeded
from supervision.jobs import steering, working
from supervision.models import Approval, Job
from supervision.operations import operator_verbs
from tests.approvals.conftest import bob, olga, shop, store_database, tuned
from tests.approvals.kit import ask
from tests.approvals.test_doors import _charged, _failed
from tests.shopping import a_client
from tests.support import console
from tests.support.console import PASSWORD

__all__ = ["bob", "olga", "shop", "store_database", "tuned"]
pytestmark = pytest.mark.usefixtures("shop", "no_limit")
WHY = 'the customer has <called> & "agreed"\nto it'


@pytest.fixture
def no_limit(shop: None, tuned: Any) -> None:
    """No second operator is needed."""
    tuned(APPROVAL_ABOVE={})


def made_stale(account: User) -> Client:
    """A browser in which this account signed in long ago."""
    client = Client()
    client.force_login(account)
    session = client.session
    session["proved"] = [session["proved"][0] - 901, False]
    session.save()
    return client


def _unknown() -> Order:
    order = _failed()
    order.run.steps.filter(name="charge-payment").update(effect="unknown")
    return order


# Each verb with money at stake, as the console sends it: how the order is made, and what is typed.
PAGES: dict[str, tuple[Callable[[], Order], dict[str, str]]] = {
    "skip": (_failed, {}),
    "complete": (_failed, {"step": "charge-payment", "result": "{}"}),
    "resubmit": (_unknown, {"new_generation": "on"}),
    "compensate": (_charged, {}),
    "cancel": (_charged, {}),
    "abandon": (_charged, {}),
    "resume": (_charged, {"step": "charge-payment"}),
}
# Verbs that know their own stake, and pass the same gate.
KNOWN = (REFUND, CORRECT, "settle")
# A job asks where it starts, a signal where the shop knows its stake; `test_money_pages` changes lines. Moving moves no money.
OTHERS = ("job", "signal", "move")


def test_every_verb_that_can_be_approved_is_looked_at_here() -> None:
    assert set(gate._ways) == {*PAGES, *KNOWN, *OTHERS, EDIT}


@pytest.mark.parametrize("verb", PAGES)
def test_a_page_of_a_verb_asks_and_then_goes_on_with_what_was_typed(verb: str, olga: User) -> None:
    make, typed = PAGES[verb]
    order = make()
    before = console.state(order)
    client = made_stale(olga)

    asked = console.confirm(client, order, verb, reason=WHY, **typed)

    assert (asked.status_code, console.state(order)) == (403, before)
    assert "Nothing is done yet" in asked.text
    assert 'type="password"' in asked.text
    wrong = client.post(console.verb(order, verb), {**kept(asked.text), "proof-kind": "password", "proof-password": "wrong"})
    assert (wrong.status_code, console.state(order)) == (403, before)
    assert "The password is not right" in wrong.text
    session = client.session.session_key
    done = client.post(console.verb(order, verb), {**kept(wrong.text), "proof-kind": "password", "proof-password": PASSWORD}, follow=True)
    assert done.status_code == 200
    assert console.state(order) != before
    assert html.escape(WHY.splitlines()[1]) in done.text
    assert client.session.session_key != session


def kept(text: str) -> dict[str, str]:
    """The fields that the page keeps, as a browser reads them."""
    found = re.findall(r'<textarea name="([^"]*)" hidden>\r?\n(.*?)</textarea>', text, re.S)
    return {html.unescape(name): html.unescape(value) for name, value in found}


def test_many_orders_at_once_ask_too(olga: User, bob: User) -> None:
    first, second = console.fail(2)
    client, chosen = made_stale(olga), f"{first.public_id}:1 {second.public_id}:1"

    asked = client.post("/admin/orders/order/bulk/skip/", {"reason": WHY, "chosen": chosen})

    assert (asked.status_code, Job.objects.count()) == (403, 0)
    client.post("/admin/orders/order/bulk/skip/", {**kept(asked.text), "proof-kind": "password", "proof-password": PASSWORD})
    working.turn(rest=0)
    assert {console.state(first), console.state(second)} == {"Processing"}


def test_a_stopped_job_is_asked_for_before_it_goes_on(olga: User) -> None:
    _failed()
    job = steering.start("skip", {"process_state": "Error"}, by=olga, reason="r")
    steering.stop(job.pk, by=olga, reason="r")

    with pytest.raises(ProofNeeded):
        steering.resume(job.pk, by=olga_with_an_old_proof(olga), reason="r")


def test_a_stopped_job_that_moves_no_money_goes_on_as_it_was_started(olga: User) -> None:
    _failed()
    job = steering.start("resubmit", {"process_state": "Error"}, by=olga_with_an_old_proof(olga), reason="r")
    steering.stop(job.pk, by=olga, reason="r")

    steering.resume(job.pk, by=olga_with_an_old_proof(olga), reason="r")

    assert Job.objects.get(pk=job.pk).state == "running"


def olga_with_an_old_proof(account: User) -> User:
    account.proof_is_old = lambda: True  # type: ignore[attr-defined]
    return account


def test_an_approval_asks(olga: User, bob: User, tuned: Any) -> None:
    tuned(APPROVAL_ABOVE={"": "20"})
    order, number = ask(olga)
    client, page = made_stale(bob), f"/admin/supervision/approval/{number}/change/"

    asked = client.post(page, {"decision": "approve", "reason": "seen"})

    assert (asked.status_code, Approval.objects.get().state) == (403, "pending")
    client.post(page, {**kept(asked.text), "proof-kind": "password", "proof-password": PASSWORD})
    assert (Approval.objects.get().state, console.state(order)) == ("approved", "Processing")


@pytest.mark.parametrize("verb", KNOWN)
def test_a_verb_that_knows_its_stake_asks_at_the_gate(verb: str, olga: User) -> None:
    def through(amount: str, account: User) -> None:
        gate.through(Operation(verb=verb, subject="x", stake={"EUR": Decimal(amount)}), by=account, reason="r")

    through("1", olga)
    olga_with_an_old_proof(olga)
    through("0", olga)
    with pytest.raises(ProofNeeded):
        through("1", olga)


def test_a_signal_that_money_has_come_asks(olga: User) -> None:
    order = _failed()

    with pytest.raises(ProofNeeded):
        operator_verbs.signal(
            order.public_id, "transfer-received", by=olga_with_an_old_proof(olga), reason="r", payload={"amount": "25.80"}
        )


def test_one_proof_is_enough_for_a_while(olga: User) -> None:
    first, second = console.fail(2)
    client = made_stale(olga)
    asked = console.confirm(client, first, "skip", reason="r")
    client.post(console.verb(first, "skip"), {**kept(asked.text), "proof-kind": "password", "proof-password": PASSWORD})

    assert console.confirm(client, second, "skip", reason="r").status_code == 302
    assert {console.state(first), console.state(second)} == {"Processing"}


def test_what_moves_no_money_does_not_ask(olga: User) -> None:
    client = made_stale(olga)
    order = _charged()

    assert console.confirm(client, order, "skip", reason="sent by hand").status_code == 302
    assert console.state(order) == "Processing"


def test_the_api_refuses_an_old_session_and_asks_no_token(olga: User) -> None:
    first, second = console.fail(2)

    said = made_stale(olga).post(
        f"/api/v1/orders/{first.public_id}/skip/", {"reason": "r"}, "application/json", headers={"Idempotency-Key": "k"}
    )
    taken = a_client(olga).post(f"/api/v1/orders/{second.public_id}/skip/", {"reason": "r"}, headers={"Idempotency-Key": "l"})

    assert (said.status_code, said.json()["code"], console.state(first)) == (403, "proof_needed", "Error")
    assert (taken.status_code, console.state(second)) == (202, "Processing")


@pytest.mark.parametrize("enters", [True, False])
def test_the_api_asks_for_a_proof_that_also_an_account_without_the_console_can_give(enters: bool) -> None:
    account = console.person("cleo", "operator", staff=enters)
    order, client = _failed(), made_stale(account)
    skip = (f"/api/v1/orders/{order.public_id}/skip/", {"reason": "r"}, "application/json")

    said = client.post(*skip, headers={"Idempotency-Key": "k"}).json()
    assert (client.get("/admin/").status_code == 200) is enters
    assert (said["code"], said["detail"].rpartition(". ")[2]) == ("proof_needed", "Sign out and in again.")
    client.post("/accounts/logout/")
    client.post("/accounts/login/", {"username": "cleo", "password": PASSWORD})

    assert client.post(*skip, headers={"Idempotency-Key": "k"}).status_code == 202


def test_an_open_browser_that_guesses_the_password_is_stopped(olga: User) -> None:
    order, client = _failed(), made_stale(olga)
    client.cookies.pop("known-browser", None)
    sent = {"reason": "r", "proof-kind": "password"}

    for number in range(9):
        assert client.post(console.verb(order, "skip"), {**sent, "proof-password": f"guess {number}"}).status_code == 403
    stopped = client.post(console.verb(order, "skip"), {**sent, "proof-password": PASSWORD})

    assert (stopped.status_code, console.state(order)) == (429, "Error")


def test_off_never_asks(olga: User, settings: Any) -> None:
    settings.REAUTHENTICATE_SECONDS = None

    assert console.confirm(made_stale(olga), _failed(), "skip", reason="r").status_code == 302
