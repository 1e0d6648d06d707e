"""Where signals come in: the API, the command and the console."""

from __future__ import annotations

import json
import re

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from supervision import PermanentFailure, Step
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
        (["--name", "payed"], "No step of this order waits for a signal named payed. Its signals: paid."),
    ],
)
def test_the_command_says_what_is_wrong_with_a_signal(run, words, told):
    with pytest.raises(CommandError, match=told.replace(".", r"\.")):
        call_command("signal", run.key, "--reason", "x", *words)
    assert not Signal.objects.exists()


def failed_at_last(sas, run) -> None:
    """Let the run take its signal, and fail for good at the step after it."""
    sas.fake("last", raises=PermanentFailure("no"), times=1)
    run.signal("paid", {"amount": "3"}, key="first")
    sas.run()
    run.assert_state("Error")


IN_ERROR = "The order is in Error at last, and goes on when that is resubmitted."
LATE = f"The signal is kept, but no step of the order waits for it any more: it changes nothing. {IN_ERROR}"


def test_the_command_says_what_a_late_signal_means_and_where_the_order_is_in_error(sas, run, capsys):
    failed_at_last(sas, run)
    call_command("signal", run.key, "--name", "paid", "--reason", "again", "--key", "second")
    assert capsys.readouterr().out == f"{run.key}: Error. {LATE} (manage.py resubmit {run.key})\n"
    call_command("signal", run.key, "--name", "paid", "--reason", "again", "--key", "second", "--json")
    assert json.loads(capsys.readouterr().out)["remark"].startswith("The signal had come before under this key: nothing has changed.")
    run.resubmit()
    sas.run()
    run.assert_state("Processed")


def test_the_command_says_that_a_signal_is_kept_for_a_step_after_the_one_in_error(sas, run, flow, capsys):
    flow(BETA, paid(), name="later")
    sas.fake("beta-step", raises=PermanentFailure("no"), times=1)
    later = sas.start("later")
    call_command("signal", later.key, "--name", "paid", "--reason", "the bank called")
    told = "The signal is kept for the step that waits for it. The order is in Error at beta-step, and goes on when that is resubmitted."
    assert capsys.readouterr().out == f"{later.key}: Error. {told} (manage.py resubmit {later.key})\n"
    later.resubmit()
    sas.run()
    later.assert_state("Processed")


def test_the_api_says_what_became_of_a_signal(sas, run):
    olga = a_client(an_account("olga", "operator"))
    kept = post(olga, run, body={"payload": {"amount": "3"}}, **{"Idempotency-Key": "k"}).json()
    assert kept["signal"] == {"outcome": "accepted", "message": "The signal is kept for the step that waits for it."}
    assert post(olga, run, body={"payload": {"amount": "3"}}, **{"Idempotency-Key": "k"}).json()["signal"]["outcome"] == "repeated"
    failed_at_last(sas, run)
    assert post(olga, run, **{"Idempotency-Key": "late"}).json()["signal"] == {"outcome": "late", "message": LATE}


def test_the_console_says_what_a_late_signal_means(sas, run, operator):
    failed_at_last(sas, run)
    address = reverse("admin:supervision_run_operate", args=[Run.objects.get(key=run.key).pk, "signal"])
    hidden = dict(re.findall(r'<input type="hidden" name="(key|attempt)" value="([^"]*)"', operator.get(address).content.decode()))
    sent = operator.post(address, {**hidden, "name": "paid", "payload": "{}", "reason": "again"}, follow=True)
    assert LATE in sent.content.decode()


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


def test_the_heading_of_a_runs_page_has_its_key_letter_for_letter(run, operator):
    Run.objects.filter(key=run.key).update(key="aBcDeF-1234567890_xyz")
    shown = operator.get(reverse("admin:supervision_run_change", args=[Run.objects.get().pk])).content.decode()
    heading = re.search(r"<h1[^>]*>(.*?)</h1>", shown, re.S)
    assert heading is not None
    assert "un aBcDeF-1234567890_xyz" in heading[1]
    assert "ABcDeF" not in shown


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
