"""Leader election by lease: one leader at a time, a successor when it stops renewing, and no harm when two act at once."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor

import pytest

from supervision.models import LeaderLease
from supervision.recovery import leader_lease
from supervision.runtime import identity

from . import kit

pytestmark = pytest.mark.usefixtures("engine")


def as_another(monkeypatch, name: str) -> None:
    monkeypatch.setattr(leader_lease, "me", lambda: name)


def test_the_first_to_ask_leads_and_renewing_keeps_the_term(monkeypatch):
    assert leader_lease.lead("supervisor") == 1
    until = LeaderLease.objects.get().expires_at

    assert leader_lease.lead("supervisor") == 1
    assert LeaderLease.objects.get().expires_at > until


def test_nobody_else_leads_while_the_lease_holds(monkeypatch):
    leader_lease.lead("supervisor")
    as_another(monkeypatch, "rival")

    assert leader_lease.lead("supervisor") is None
    assert leader_lease.lead("something else") == 1


def test_another_takes_over_with_a_new_term_when_the_lease_has_run_out(monkeypatch):
    leader_lease.lead("supervisor")
    kit.fetch("UPDATE supervision_leaderlease SET expires_at = clock_timestamp() - interval '1 ms'")
    as_another(monkeypatch, "rival")

    assert leader_lease.lead("supervisor") == 2
    assert LeaderLease.objects.get().holder == "rival"


def test_a_leader_that_resigns_is_followed_at_once(monkeypatch):
    leader_lease.lead("supervisor")
    leader_lease.resign("supervisor")
    as_another(monkeypatch, "rival")

    assert leader_lease.lead("supervisor") == 2


def test_resigning_takes_the_lead_from_nobody_else(monkeypatch):
    leader_lease.lead("supervisor")
    as_another(monkeypatch, "rival")

    leader_lease.resign("supervisor")

    assert leader_lease.lead("supervisor") is None


def test_of_many_who_ask_at_once_one_leads(monkeypatch):
    monkeypatch.setattr(leader_lease, "me", lambda: threading.current_thread().name)

    answers = kit.at_once(*[lambda: leader_lease.lead("supervisor")] * 8)

    assert sorted(answers, key=str) == [1] + [None] * 7


def test_every_incarnation_has_a_name_of_its_own():
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as forked:
        names = [identity.me(), *(forked.submit(identity.me).result() for _ in range(2))]

    assert names[1] == names[2] != names[0] == identity.me()
