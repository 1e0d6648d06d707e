"""Hazard 4: a signal of 10 MB, at every door. It is refused in plain words, nothing of it is kept, and the order waits on."""

from __future__ import annotations

import json

import pytest
from django.core.management import CommandError, call_command

from supervision.errors import Refused
from supervision.insight import directory
from supervision.models import Signal
from tests.shopping import a_client, an_account
from tests.workflows.conftest import asleep, flow, paid

__all__ = ["flow"]

TEN_MB = "y" * 10_000_000


@pytest.fixture
def run(transactional_db, sas, flow, monkeypatch):
    monkeypatch.setattr(directory, "_used", [directory.Directory()])
    flow(paid())
    return sas.start("waiting", client="user:77")


def sent(run):
    with pytest.raises(Refused, match="at most 65536 are kept"):
        run.signal("paid", {"x": TEN_MB}, key="k")


def posted(run):
    body = json.dumps({"payload": {"x": TEN_MB}, "reason": "the bank called"})
    answer = a_client(an_account("olga", "operator")).post(
        f"/api/v1/orders/{run.key}/signals/paid/", body, content_type="application/json", headers={"Idempotency-Key": "k"}
    )
    assert answer.status_code in (400, 413), answer.content
    assert len(answer.content) < 2_000
    assert answer.json()["detail"]


def commanded(run):
    with pytest.raises(CommandError, match="at most 65536 are kept"):
        call_command("signal", run.key, "--name", "paid", "--key", "k", "--payload", json.dumps({"x": TEN_MB}), "--reason", "r")


@pytest.mark.parametrize("door", [sent, posted, commanded])
def test_a_signal_of_ten_megabytes_is_refused_at_every_door_and_the_order_waits_on(sas, run, door):
    door(run)

    sas.run()
    assert (asleep(), Signal.objects.count()) == (1, 0)
    run.signal("paid", {"amount": 3}, key="k")
    sas.run()
    run.assert_state("Processed")
    assert run.results["paid"] == {"came": True, "payload": {"amount": 3}}
    sas.assert_healthy()
