"""Real processes that are killed with SIGKILL while children run, and while parents are cancelled and undone."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from django.db import connection

from supervision import testing
from supervision.errors import Refused
from supervision.models import Alert, Child, Run
from supervision.operations import operator_verbs
from tests.support.shop import until
from tests.support.soak import sized
from tests.support.workers import two_workers
from tests.workflows.test_killed_workers import killed

__all__ = ["killed"]

PARENTS, ITEMS, KILLS = 16, 4, sized(4, 10)


@pytest.mark.nightly
def test_parents_and_children_survive_kills_and_cancels(killed, tmp_path):
    keys = testing.submit_many("killed-parent", [{"n": ITEMS} for _ in range(PARENTS)])
    calls, dice = tmp_path / "calls", random.Random(11)
    to_cancel = dice.sample(keys, PARENTS // 2)
    accepted = [cancelled(to_cancel.pop())]  # before any worker lives: fast workers may have ended all others by the first kill

    for kill in range(KILLS + 1):
        with two_workers("tests.workflows.worker", calls):
            events = count_events()
            until(lambda events=events: count_events() > events + 20 or all_final(), within=60)
            if kill >= 1 and to_cancel:
                accepted += [cancelled(to_cancel.pop()) for _ in range(min(2, len(to_cancel)))]
            if kill == KILLS:
                until(all_final, within=100)

    states = Counter(Run.objects.filter(parent_key=None).values_list("process_state", flat=True))
    assert states["Processed"] + states["Cancelled"] == PARENTS
    ended = dict(Run.objects.filter(key__in=filter(None, accepted)).values_list("key", "process_state"))
    assert set(ended.values()) == {"Cancelled"}
    assert states["Cancelled"] == len(ended)
    assert not Alert.objects.filter(kind="error").exists()
    for key in keys:
        parent = Run.objects.get(key=key)
        below = Child.objects.filter(parent_key=key)
        assert set(below.values_list("state", flat=True)) <= {str(parent.process_state)}
        if parent.process_state == "Processed":
            assert below.count() == ITEMS + 1
    ours = Run.objects.filter(parent_key__isnull=False).values_list("key", flat=True)
    assert len(ours) == len(set(ours)) == Child.objects.filter(started_at__isnull=False).count()
    done = Counter(calls.read_text().split())
    for key in Run.objects.filter(parent_key__isnull=False, process_state="Processed").values_list("key", flat=True):
        assert {f"{key}:pack:do:1", f"{key}:seal:do:1"} <= done.keys()
        assert not {f"{key}:pack:undo:1", f"{key}:seal:undo:1"} & done.keys()
    killed.assert_healthy()


def cancelled(key: str) -> str:
    """Cancel this parent; its key, or nothing where it was Processed already."""
    try:
        operator_verbs.cancel(key, by="test", reason="no longer wanted")
    except Refused:
        assert Run.objects.get(key=key).process_state == "Processed"
        return ""
    return key


def count_events() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM supervision_stepevent")
        return int(cursor.fetchone()[0])


def all_final() -> bool:
    return Run.objects.filter(parent_key=None).count() == PARENTS and not Run.objects.filter(finished_at=None).exists()
