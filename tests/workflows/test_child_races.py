"""Both orders of the races between a child that ends and its parent, and what holds between two transactions."""

from __future__ import annotations

import json
from datetime import timedelta
from threading import Semaphore

import pytest
from django.db import transaction
from django.db.models.functions import Now

from supervision import ForEach, PermanentFailure, testing
from supervision.insight import family as relatives
from supervision.insight.waiting import why_waiting
from supervision.models import Child, Run, StepState
from supervision.operations import archive
from supervision.store import sleeping
from supervision.testing import at_once
from supervision.wakeup import hints
from tests.engine import kit
from tests.support import toy
from tests.workflows.conftest import ALPHA, BETA, HOUR, paid
from tests.workflows.test_children import GAMMA, PACK, child_of, family

__all__ = ["family"]


@pytest.mark.parametrize("first", ["child", "parent"])
def test_an_end_and_a_parent_that_falls_asleep_lose_nothing(sas, family, first):
    """The parent is called again while the child ends: whichever commits first, the parent hears of the end."""
    family(PACK, child=(paid(),))
    run = sas.start("waiting")
    child = Run.objects.get(key=child_of(run).key)
    StepState.objects.filter(run__key=run.key).update(turn_at=Now(), not_before=Now())
    [(place, claims)] = testing.schedule()

    def ends():
        with transaction.atomic():
            Run.objects.filter(pk=child.pk).update(process_state="Processed", finished_at=Now())
            if first == "child":
                barrier.release()
                parent_done.acquire(timeout=3)

    def looks():
        if first == "child":
            barrier.acquire(timeout=3)
        testing.perform(place, claims)
        parent_done.release()

    barrier, parent_done = Semaphore(0), Semaphore(0)
    answers = at_once(ends, looks)
    assert answers == [None, None]
    testing.make_due()
    sas.run()
    assert StepState.objects.get(run__key=run.key).process_state == "Processed"


def test_the_last_two_items_end_at_the_same_moment(sas, family):
    family(ForEach("parcels", workflow="packing", retry=toy.RETRY, items=lambda _facts: [1, 2]), child=(paid(),))
    for _ in range(5):
        run = sas.start("waiting")
        ids = list(Run.objects.filter(parent_key=run.key).values_list("pk", flat=True))

        def ends(pk):
            Run.objects.filter(pk=pk).update(process_state="Processed", finished_at=Now())

        assert at_once(*[lambda pk=pk: ends(pk) for pk in ids]) == [None, None]
        testing.make_due()
        sas.run()
        run.assert_state("Processed")


def test_items_that_end_at_the_same_moment_pass_on_one_place_each(sas, family):
    items = list(range(12))
    family(ForEach("parcels", workflow="packing", retry=toy.RETRY, items=lambda _facts: items, at_once=4), child=(paid(),))
    run = sas.start("waiting")
    for left in (4, 0, 0):
        ids = list(Run.objects.filter(parent_key=run.key, finished_at=None).values_list("pk", flat=True))
        at_once(*[lambda pk=pk: Run.objects.filter(pk=pk).update(process_state="Processed", finished_at=Now()) for pk in ids])
        assert Child.objects.filter(state="Waiting").count() == left
        sas.run()
    testing.make_due()
    sas.run()
    run.assert_state("Processed")


def test_the_parent_is_cancelled_while_an_item_passes_its_place_on(sas, family):
    """The item that is started last is found by the undo of the parent, whose transaction has to wait for it."""
    family(ForEach("parcels", workflow="packing", retry=toy.RETRY, items=lambda _facts: [1, 2], at_once=1), child=(paid(),))
    run = sas.start("waiting")
    first = Run.objects.get(parent_key=run.key)
    passed, cancelled = Semaphore(0), Semaphore(0)

    def ends():
        with transaction.atomic():
            Run.objects.filter(pk=first.pk).update(process_state="Processed", finished_at=Now())
            passed.release()
            cancelled.acquire(timeout=3)

    def cancels():
        passed.acquire(timeout=3)
        run.cancel()
        [(place, claims)] = testing.schedule()
        cancelled.release()
        testing.perform(place, claims)

    assert at_once(ends, cancels) == [None, None]
    testing.make_due()
    sas.run()
    run.assert_state("Cancelled")
    assert set(Child.objects.values_list("state", flat=True)) == {"Cancelled"}


def test_the_sentence_says_which_child_the_parent_waits_for(sas, family):
    family(ALPHA, PACK, child=(paid(),))
    run = sas.start("waiting")
    pk = Run.objects.get(key=run.key).pk
    assert why_waiting([pk])[pk] == f"pack waits for child {child_of(run).key}."
    testing.let_pass(2 * HOUR.total_seconds())
    sas.sweep()
    sas.run()
    assert why_waiting([pk])[pk] == f"pack waits for child {child_of(run).key}, which is in Error at step paid."


def test_the_sentence_counts_the_items(sas, family):
    family(ForEach("parcels", workflow="packing", retry=toy.RETRY, items=lambda _facts: [1, 2, 3]), child=(paid(),))
    run = sas.start("waiting")
    pk = Run.objects.get(key=run.key).pk
    assert why_waiting([pk])[pk] == "parcels waits for 3 child runs."


def test_a_child_is_not_archived_before_the_run_above_it_is_final(sas, family, flow):
    family(ALPHA, PACK, paid(), child=(GAMMA,))
    run = sas.start("waiting")
    testing.let_pass(1000)
    Run.objects.filter(parent_key=run.key).update(finished_at=Now() - timedelta(days=5))
    list(archive.batches(HOUR))
    assert Run.objects.filter(parent_key=run.key).exists()
    run.signal("paid")
    sas.run()
    run.assert_state("Processed")
    list(archive.batches(HOUR))
    assert not Run.objects.filter(parent_key=run.key).exists()
    sas.assert_healthy()
    Run.objects.filter(key=run.key).update(finished_at=Now() - timedelta(days=5))
    list(archive.batches(HOUR))
    assert (Run.objects.count(), Child.objects.count()) == (0, 0)
    sas.assert_healthy()


def test_the_command_tells_both_of_the_other(sas, family):
    family(ALPHA, PACK, child=(paid(),))
    run = sas.start("waiting")
    child = child_of(run).key
    assert f"children of pack: 1 Processing\n  {child} Processing" in kit.said("order", run.key)
    assert f"child of {run.key}, step pack" in kit.said("order", child)
    answer = json.loads(kit.said("order", run.key, "--json"))
    assert answer["children"] == [{"id": child, "step": "pack", "process_state": "Processing"}]
    assert json.loads(kit.said("order", child, "--json"))["parent"] == {"id": run.key, "step": "pack"}


def test_many_children_are_counted_and_the_one_in_error_comes_first(sas, family):
    family(ForEach("parcels", workflow="packing", retry=toy.RETRY, items=lambda _facts: list(range(60))))
    sas.fake("beta-step", does=lambda request: refused() if request.payload["index"] == 59 else {})
    run = sas.start("waiting")
    found = relatives.of(run.key)
    assert (found.children[0].key, len(found.children), found.hidden) == (f"{run.key}:parcels[59]:child", 50, 10)
    assert found.summary == [("parcels", "1 Error, 59 Processed")]


def refused():
    raise PermanentFailure("too heavy")


@pytest.mark.parametrize("before", [0, 1])
def test_a_child_that_ends_after_the_parent_has_looked_keeps_it_awake(sas, family, monkeypatch, before):
    """before: how many ends the parent has heard of already."""
    family(ForEach("parcels", workflow="packing", retry=toy.RETRY, items=lambda _facts: list(range(before + 1))), child=(paid(),))
    run = sas.start("waiting")
    ids = list(Run.objects.filter(parent_key=run.key).order_by("pk").values_list("pk", flat=True))
    for pk in ids[:-1]:
        Run.objects.filter(pk=pk).update(process_state="Processed", finished_at=Now())
        sas.run()
    StepState.objects.filter(run__key=run.key).update(turn_at=Now(), not_before=Now())
    real = sleeping.fall_asleep

    def ends_first(sleepers):
        monkeypatch.setattr(sleeping, "fall_asleep", real)
        assert at_once(lambda: Run.objects.filter(pk=ids[-1]).update(process_state="Processed", finished_at=Now())) == [1]
        real(sleepers)

    monkeypatch.setattr(sleeping, "fall_asleep", ends_first)
    sas.run()
    run.assert_state("Processed")


def test_the_end_of_a_child_calls_the_scheduler_and_the_consumer(sas, family, monkeypatch):
    family(ALPHA, PACK, child=(BETA,))
    run = sas.submit("waiting")
    sent = {}
    while work := testing.schedule():
        for place, claims in work:
            heard = sent.setdefault(place.workflow, [])
            monkeypatch.setattr(hints, "send", heard.append)
            testing.perform(place, claims)
    run.assert_state("Processed")
    assert sent["packing"] == [hints.CONSUME, hints.SCHEDULE]


def test_the_end_of_another_run_calls_nobody(sas, flow, monkeypatch):
    flow(BETA)
    run = sas.submit("waiting")
    [(place, claims)] = testing.schedule()
    heard = []
    monkeypatch.setattr(hints, "send", heard.append)
    testing.perform(place, claims)
    run.assert_state("Processed")
    assert heard == []
