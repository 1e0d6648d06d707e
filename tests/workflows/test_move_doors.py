"""The doors at which operators move runs to a newer version: API, command, console."""

from __future__ import annotations

import json
import re
from io import StringIO

from django.core.management import CommandError, call_command
from django.urls import reverse

from supervision.models import Run
from tests.shopping import a_client, an_account
from tests.support.people import operator
from tests.workflows.test_moving import PAID, A, B, X, version

__all__ = ["operator", "version"]


def test_an_operator_moves_an_order_through_the_api(sas, version):
    version(1, A, PAID, B)
    run = sas.start("moved")
    version(2, A, X, PAID)
    version(3, A, PAID, X)
    olga = a_client(an_account("otto", "operator"))
    address = f"/api/v1/orders/{run.key}/"

    def post(**body):
        return olga.post(f"{address}move/", json.dumps(body), content_type="application/json")

    assert post(version=3).json()["errors"].keys() == {"reason"}
    assert post(version="3", reason="r").json()["errors"].keys() == {"version"}
    assert olga.get(f"{address}plan/", {"action": "skip", "version": 2}).status_code == 400
    wrong = olga.get(f"{address}plan/", {"action": "move", "version": 2}).json()
    assert wrong["refusals"] == ["x comes before paid in version 2 and is not done, and paid has begun."]
    refusal = post(version=2, reason="r")
    assert (refusal.status_code, refusal.json()["code"]) == (409, "not_movable")
    answer = olga.get(f"{address}plan/", {"action": "move"}).json()
    assert post(reason="r", version=3, plan_version=answer["version"]).status_code == 202
    assert Run.objects.get(key=run.key).version == 3
    assert post(reason="r", version=9).json()["code"] == "unknown_version"


def manage(*words):
    out, errors = StringIO(), StringIO()
    try:
        call_command("move", *words, "--reason", "new law", stdout=out, stderr=errors)
    except CommandError as problem:
        return out.getvalue(), f"{errors.getvalue()}{problem}"
    return out.getvalue(), ""


def test_an_operator_moves_orders_by_command(sas, version):
    version(1, A, PAID, B)
    one, *_others = (sas.start("moved") for _ in range(3))
    version(2, A, PAID, X)
    plan = manage(one.key, "--dry-run")[0]
    assert plan.startswith(f"{one.key}: would move: keep a, keep paid, add x, remove b; version of the plan: ")
    assert "has changed since" in manage(one.key, "--plan-version", "0123456789abcdef")[1]
    assert Run.objects.get(key=one.key).version == 1
    seen = plan.split()[-1]
    assert manage(one.key, "--plan-version", seen) == (f"{one.key}: Processing\n", "")
    assert "only a newer one" in manage(one.key)[1]
    assert "give the orders' IDs" in manage()[1]
    assert "give the orders' IDs" in manage(one.key, "--workflow", "moved", "--from", "1")[1]
    assert manage("--workflow", "moved", "--from", "1", "--dry-run")[0] == "2 would move, 0 refused\n"
    assert "version 7 is not registered" in manage("--workflow", "moved", "--from", "1", "--to", "7")[1]
    assert manage("--workflow", "moved", "--from", "1", "--to", "2") == ("2 moved, 0 refused\n", "")
    assert set(Run.objects.values_list("version", flat=True)) == {2}
    version(3, A, X, PAID)
    said, wrong = manage("--workflow", "moved", "--from", "2", "--json")
    assert {json.loads(line)["error"] for line in said.splitlines()} == {"not_movable"}
    assert "3 of 3 refused" in wrong


def test_an_operator_moves_an_order_in_the_console(sas, version, operator):
    version(1, A, PAID, B)
    run = sas.start("moved")
    pk = Run.objects.get(key=run.key).pk
    assert "operate/move/" not in operator.get(reverse("admin:supervision_run_change", args=[pk])).content.decode()
    version(2, A, X, PAID)
    assert "operate/move/" in operator.get(reverse("admin:supervision_run_change", args=[pk])).content.decode()
    address = reverse("admin:supervision_run_operate", args=[pk, "move"])
    wrong = operator.get(address)
    assert (wrong.status_code, "x comes before paid" in wrong.content.decode()) == (409, True)
    version(3, A, PAID, X)
    page = operator.get(address).content.decode()
    assert "is added" in page
    hidden = dict(re.findall(r'name="(plan_version|attempt)" value="([^"]*)"', page))
    assert operator.post(address, {**hidden, "reason": "new law"}).status_code == 302
    assert Run.objects.get(key=run.key).version == 3
    sas.assert_healthy()
