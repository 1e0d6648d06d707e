"""The doors at which operators let runs go on from an earlier step: API, command, console."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from supervision import PermanentFailure
from supervision.models import Run
from tests.shopping import a_client, an_account
from tests.support.people import operator
from tests.workflows.test_moving import A, B, C, D, version
from tests.workflows.test_resuming_earlier import failed

__all__ = ["failed", "operator", "version"]


def test_an_operator_lets_an_order_go_on_from_an_earlier_step_through_the_api(sas, failed):
    olga = a_client(an_account("otto", "operator"))
    address = f"/api/v1/orders/{failed.key}/"

    def post(**body):
        return olga.post(f"{address}resume-from/", json.dumps(body), content_type="application/json")

    assert post(reason="r").json()["errors"].keys() == {"step"}
    assert olga.get(f"{address}plan/", {"action": "resume"}).status_code == 400
    assert olga.get(f"{address}plan/", {"action": "skip", "step": "b"}).status_code == 400
    assert post(reason="r", step="d").json()["code"] == "not_resumable"
    assert post(reason="r", step="x").json()["code"] == "unknown_step"
    answer = olga.get(f"{address}plan/", {"action": "resume", "step": "b"}).json()
    assert [(step["name"], step["direction"]) for step in answer["steps"] if step["action"] == "run"][:2] == [("b", "undo"), ("b", "do")]
    assert post(reason="r", step="b", plan_version=answer["version"]).status_code == 202
    sas.run()
    failed.assert_state("Processed")
    assert sas.undone == ["b"]


def test_an_operator_lets_an_order_go_on_from_an_earlier_step_by_command(sas, failed):
    def manage(*words):
        out = StringIO()
        call_command("resubmit", failed.key, "--reason", "wrong price", *words, stdout=out, stderr=StringIO())
        return out.getvalue()

    with pytest.raises(CommandError, match="--from goes with none of"):
        manage("--from", "a", "--new-generation")
    with pytest.raises(CommandError, match="has no step x"):
        manage("--from", "x")
    assert manage("--from", "a") == f"{failed.key}: Compensating\n"
    sas.run()
    failed.assert_state("Processed")


def test_an_order_is_corrected_and_goes_back_one_after_the_other(sas, version):
    version(1, A, B, replace(C, amendable=("colour",)), D)
    sas.fake("c", raises=PermanentFailure("no"), times=1)
    run = sas.start("moved", {"colour": "red"})
    run.assert_state("Error")
    words = {"STEP": "a", "ID": run.key, "JSON": '{"colour": "blue"}'}
    with pytest.raises(CommandError, match="--from and --amend are done one after the other: ") as refused:
        call_command("resubmit", run.key, "--reason", "r", "--from", "a", "--amend", "{}")
    commands = re.findall("`manage.py ([^`]*)`", str(refused.value))

    for command in commands:  # as the text says
        call_command(*[words.get(word, word) for word in command.split()], "--reason", "wrong colour", stdout=StringIO())

    assert len(commands) == 4
    sas.run()
    run.assert_state("Processed")
    assert sas.performed == ["a", "b", "c", "a", "b", "c", "d"]
    assert Run.objects.get(key=run.key).payload["colour"] == "blue"


def test_an_operator_lets_an_order_go_on_from_an_earlier_step_in_the_console(sas, failed, operator):
    pk = Run.objects.get(key=failed.key).pk
    assert "operate/resume/" in operator.get(reverse("admin:supervision_run_change", args=[pk])).content.decode()
    address = reverse("admin:supervision_run_operate", args=[pk, "resume"])
    page = operator.get(address).content.decode()
    assert re.findall(r'<option value="([^"]*)"', page) == ["a", "b", "c"]
    hidden = dict(re.findall(r'name="(plan_version|attempt)" value="([^"]*)"', page))
    assert operator.post(address, {**hidden, "reason": "wrong price", "step": "b"}).status_code == 302
    sas.run()
    failed.assert_state("Processed")
    assert sas.undone == ["b"]
    assert operator.post(address, {**hidden, "reason": "again", "step": "b"}).status_code in (302, 409)
    failed.assert_state("Processed")
