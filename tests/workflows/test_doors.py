"""Where signals come in: the API, the command and the console."""

from __future__ import annotations

import json
import re

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from supervision import Step
from supervision.insight import directory
from supervision.models import Run, Signal
from tests.shopping import a_client, an_account
from tests.support.people import operator
from tests.workflows.conftest import BETA, paid

__all__ = ["operator"]


@pytest.fixture
def run(transactional_db, sas, flow, monkeypatch):
    """A run that waits for the signal `paid`, found by its public id."""
    monkeypatch.setattr(directory, "_used", [directory.Directory()])
    flow(paid(), Step("beta-step", agent="beta", reads=("paid",)), Step("last", agent="alpha"))
    return sas.start("waiting", client="user:77")


def post(client, run, name="paid", body=None, **headers):
    address = f"/api/v1/orders/{run.key}/signals/{name}/"
    return client.post(address, json.dumps(body or {}), content_type="application/json", headers=headers)


# ----------------------------------------------------------------------------------------------------------- the API


def test_an_operator_sends_a_signal_and_the_same_key_has_one_effect(sas, run):
    olga = a_client(an_account("olga", "operator"))
    for _ in range(2):
        answer = post(olga, run, body={"payload": {"amount": "3"}, "reason": "the bank called"}, **{"Idempotency-Key": "k"})
        assert (answer.status_code, answer.headers["Location"]) == (202, f"/api/v1/orders/{run.key}/")
    [signal] = Signal.objects.all()
    assert (signal.sent_by, signal.reason, signal.payload) == ("olga", "the bank called", {"amount": "3"})
    sas.run()
    run.assert_state("Processed")
    assert post(olga, run, **{"Idempotency-Key": "other"}).json()["code"] == "signal_ended"


def test_the_orders_own_client_sends_a_signal_and_another_client_finds_no_order(sas, run, monkeypatch):
    monkeypatch.setattr(directory.Directory, "client_of", lambda self, account: "user:77" if account.username == "ada" else "user:78")
    ada, eve = (a_client(an_account(name)) for name in ("ada", "eve"))
    assert post(eve, run, **{"Idempotency-Key": "k"}).status_code == 404
    assert not Signal.objects.exists()
    assert post(ada, run, **{"Idempotency-Key": "k"}).status_code == 202
    sas.run()
    run.assert_state("Processed")


@pytest.mark.parametrize(
    ("name", "body", "headers", "status", "told"),
    [
        ("paid", {}, {}, 400, {"Idempotency-Key": ["This header is required."]}),
        ("paid", {"payload": 1}, {"Idempotency-Key": "k"}, 400, {"payload": ['Expected a dictionary of items but got type "int".']}),
        (
            "paid",
            {"payload": {"x": "a\0"}},
            {"Idempotency-Key": "k"},
            400,
            {"payload": ["The payload has characters that cannot be kept."]},
        ),
        ("paid", {"amount": 1}, {"Idempotency-Key": "k"}, 400, {"amount": ["This field is not known."]}),
        ("payed", {}, {"Idempotency-Key": "k"}, 409, None),
    ],
)
def test_a_signal_that_is_wrong_is_answered_with_what_was_expected(run, name, body, headers, status, told):
    answer = post(a_client(an_account("olga", "operator")), run, name, body, **headers)
    assert answer.status_code == status, answer.json()
    if told:
        assert answer.json()["errors"] == told
    else:
        assert answer.json()["code"] == "signal_not_awaited"
    assert not Signal.objects.exists()


# ------------------------------------------------------------------------------------------------------- the command


def test_the_command_sends_a_signal_with_its_payload_and_reason(sas, run, capsys):
    call_command("signal", run.key, "--name", "paid", "--payload", '{"amount": "3"}', "--reason", "the bank called", "--key", "k")
    assert capsys.readouterr().out == f"{run.key}: Processing\n"
    [signal] = Signal.objects.all()
    assert (signal.payload, signal.reason, signal.key) == ({"amount": "3"}, "the bank called", "k")
    assert signal.sent_by.startswith("command (")
    sas.run()
    run.assert_state("Processed")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--name", "paid", "--payload", "{"], "--payload: expected a JSON object: "),
        (["--name", "paid", "--payload", "[1]"], "The payload must be a JSON object."),
        (["--name", "payed"], "No step of this order waits for a signal named payed."),
    ],
)
def test_the_command_says_what_is_wrong_with_a_signal(run, words, told):
    with pytest.raises(CommandError, match=told.replace(".", r"\.")):
        call_command("signal", run.key, "--reason", "x", *words)
    assert not Signal.objects.exists()


# ------------------------------------------------------------------------------------------------------- the console


def test_an_operator_sends_a_signal_from_the_page_of_the_run_and_sees_it_there(sas, run, operator):
    pk = Run.objects.get(key=run.key).pk
    page = reverse("admin:supervision_run_change", args=[pk])
    assert "waits for the signal paid until" in operator.get(page).content.decode()
    address = reverse("admin:supervision_run_operate", args=[pk, "signal"])
    assert address in operator.get(page).content.decode()
    form = operator.get(address)
    assert form.status_code == 200
    hidden = dict(re.findall(r'<input type="hidden" name="(key|attempt)" value="([^"]*)"', form.content.decode()))
    assert len(hidden["key"]) == 22
    assert '<option value="paid" selected>' in form.content.decode()

    wrong = operator.post(address, {**hidden, "name": "paid", "payload": "[1]", "reason": "x"})
    assert "Expected a JSON object." in wrong.content.decode()
    assert not Signal.objects.exists()
    for _ in range(2):  # a second click of the same form has no second effect
        sent = operator.post(address, {**hidden, "name": "paid", "payload": '{"amount": "3"}', "reason": "the bank called"})
        assert sent.status_code == 302
    [signal] = Signal.objects.all()
    sas.run()
    run.assert_state("Processed")
    shown = operator.get(page).content.decode()
    assert "the bank called" in shown
    assert signal.sent_by in shown


def test_the_page_of_a_run_shows_its_newest_signals_and_not_all_of_a_thousand(run, operator):
    for number in range(30):
        run.signal("paid", {"n": f"number {number}."})
    shown = operator.get(reverse("admin:supervision_run_change", args=[Run.objects.get(key=run.key).pk])).content.decode()
    assert shown.count("&quot;number ") == 20
    assert "number 29." in shown


def test_a_run_whose_workflow_waits_for_nothing_offers_no_signal(transactional_db, sas, flow, operator):
    flow(BETA, name="plain")
    sas.fake("beta-step", raises=RuntimeError("x"))
    run = sas.start("plain")
    pk = Run.objects.get(key=run.key).pk
    assert "operate/signal/" not in operator.get(reverse("admin:supervision_run_change", args=[pk])).content.decode()
