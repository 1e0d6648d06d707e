"""The archive moves whole finished orders out of the hot tables. It touches no other row and loses none."""

from __future__ import annotations

from datetime import timedelta

import pytest

from supervision import testing
from supervision.errors import Refused
from supervision.insight import queries
from supervision.intake import consuming
from supervision.models import Alert, ArchivedRun, Notification, Run, StepEvent, StepState, Submission
from supervision.operations import archive, operator_verbs
from supervision.postgres import db
from supervision.recovery import supervisor
from supervision.runtime import failpoints
from supervision.store import step_verbs
from supervision.workflow import StepPosition
from tests.engine import kit
from tests.support import toy

from .conftest import let_pass, rows

pytestmark = pytest.mark.usefixtures("engine")

MONTH = timedelta(days=30)


def done(*, days: float = 100, workflow: str = "toy", **payload) -> str:
    """An order that was Processed this many days ago."""
    key = kit.ran(workflow, **payload)
    let_pass(days, key)
    return key


def undone(*, days: float = 100) -> str:
    """An order that was refused at its second step and undone, with all rows that this wrote."""
    key = kit.undoing(1, "toy")
    testing.make_due()
    testing.run_until_idle()
    Notification.objects.filter(run__key=key).update(delivered_at=testing.run_of(key).finished_at)
    let_pass(days, key)
    return key


def many(count: int) -> list[str]:
    """This many orders that have just been Processed."""
    keys = testing.submit_many("toy-plain", [{"n": n} for n in range(count)])
    testing.run_until_idle()
    return keys


def archived(older_than: timedelta = MONTH, **options) -> archive.Moved:
    total = archive.Moved()
    for moved in archive.batches(older_than, **options):
        total.add(moved)
    return total


def test_what_ended_long_ago_leaves_every_table_but_the_archive():
    old, cancelled, young = done(), undone(), done(days=29)

    moved = archived()

    assert sorted(ArchivedRun.objects.values_list("key", "process_state")) == sorted([(old, "Processed"), (cancelled, "Cancelled")])
    assert list(Run.objects.values_list("key", flat=True)) == [young]
    assert (moved.runs, moved.submissions, moved.held) == (2, 2, 0)
    assert StepState.objects.count() == 3
    assert not StepEvent.objects.exclude(run__key=young).exists()
    assert not Alert.objects.exists()
    assert kit.healthy()


def open_alert(key: str) -> None:
    Alert.objects.create(run=testing.run_of(key), position=0, direction="do", generation=1, kind=Alert.Kind.SKIPPED)


def _undelivered(key: str, kind: str) -> None:
    Notification.objects.create(kind=kind, run=testing.run_of(key))


@pytest.mark.parametrize("state", ["accepted", "Pending", "Processing", "Error", "Compensating"])
def test_nothing_that_is_not_finished_is_touched_however_old_it_is(state):
    if state == "accepted":
        key = testing.submit("toy", {"n": 1})
    elif state == "Pending":
        key = testing.submit("toy", {"n": 1})
        consuming.consume_batch(born=False)
    elif state == "Processing":
        key, _place, _items = kit.started("toy")
    else:
        key = kit.in_error(1, "toy")
        if state == "Compensating":
            operator_verbs.compensate(key, by="olga", reason="no longer wanted")
    let_pass(1000, key)
    before = rows()

    moved = archived()

    assert rows() == before
    assert moved == archive.Moved()


@pytest.mark.parametrize("what", ["alert", "mail", "status", "slot"])
def test_an_order_of_which_somebody_still_has_to_hear_stays_until_they_have(what):
    key, other = done(), done()
    run_id = testing.run_of(key).pk
    if what == "alert":
        open_alert(key)
    elif what == "slot":
        db.run(
            "INSERT INTO supervision_slot (resource, run_id, direction, position, attempt, holder, until)"
            " VALUES ('r', %(run)s, 'do', 0, 1, 'h', now() + interval '1 min')",
            {"run": run_id},
        )
    else:
        _undelivered(key, {"mail": "order-cancelled", "status": "status"}[what])

    moved = archived()

    assert (moved.runs, moved.held) == (1, 1)
    assert list(ArchivedRun.objects.values_list("key", flat=True)) == [other]

    Alert.objects.update(closed_at="2026-01-01T00:00Z")
    Notification.objects.update(delivered_at="2026-01-01T00:00Z")
    db.run("UPDATE supervision_slot SET until = now() - interval '1 s'")
    assert archived().runs == 1
    assert kit.healthy()


@pytest.mark.parametrize("make", [done, undone], ids=["done", "undone"])
def test_an_archived_order_is_told_as_it_was(make):
    key = make()
    run = testing.run_of(key)
    place = StepPosition("toy", 1, "do", 0)
    step_verbs.record_strays(place, [(step_verbs.Claim(run.pk, 9), "processed", "too late")])
    StepState.objects.filter(run=run, position=0, direction="do").update(result={"by": None, "of": [1, None, "né"]})
    before = (vars(Run.objects.get(pk=run.pk)), [vars(step) for step in queries.steps_of([run.pk])[run.pk]], queries.timeline(run.pk))

    archived()

    row = ArchivedRun.objects.get(key=key)
    after = (vars(row.run), [vars(step) for step in queries.steps_of([run.pk])[run.pk]], queries.timeline(run.pk))
    for facts in (before[0], after[0], *before[1], *after[1]):
        facts.pop("_state")
    assert after == before
    assert row.steps[0].result == {"by": None, "of": [1, None, "né"]}


def test_a_dry_run_counts_and_changes_nothing():
    done(), undone(), kit.in_error(1, "toy")
    before = rows()

    moved = archived(dry_run=True)

    assert rows() == before
    assert moved.runs == 2


def test_orders_that_stay_do_not_keep_later_ones_from_going(monkeypatch):
    monkeypatch.setattr(archive, "PAGE", 3)
    held = [done() for _ in range(4)]
    for key in held:
        open_alert(key)
    going = [done() for _ in range(4)]

    moved = archived(size=2)

    assert (moved.runs, moved.held) == (4, 4)
    assert set(ArchivedRun.objects.values_list("key", flat=True)) == set(going)


def test_an_order_that_cannot_be_moved_keeps_neither_the_others_nor_old_messages(monkeypatch):
    keys = [done() for _ in range(5)]
    sick = testing.run_of(keys[1]).pk
    db.run(
        "INSERT INTO supervision_notification (kind, created_at, delivered_at) VALUES"
        " ('alert', now() - interval '40 days', now() - interval '40 days')"
    )

    def facts_of(_intake, run_ids, *, keep):
        if sick in run_ids:
            raise LookupError("its customer is gone")
        return {}

    monkeypatch.setattr(toy.ToyIntake, "archive", facts_of)

    moved = archived(size=4)

    assert (moved.runs, moved.held, moved.notifications) == (4, 1, 1)
    assert set(ArchivedRun.objects.values_list("key", flat=True)) == {*keys} - {keys[1]}
    assert Run.objects.get().key == keys[1]


def test_an_order_that_somebody_holds_is_left_to_the_next_pass_and_nobody_waits():
    held, other = done(), done()
    with kit.another_connection() as holder:
        holder.execute("SELECT FROM supervision_stepstate WHERE run_id = %s AND position = 1 FOR UPDATE", [testing.run_of(held).pk])
        assert archived().runs == 1
        assert list(ArchivedRun.objects.values_list("key", flat=True)) == [other]

    assert archived().runs == 1


def test_two_archives_at_once_share_the_work_and_lose_nothing():
    keys = many(60)

    first, second = (kit.Process("archive", "4").ready() for _ in range(2))
    moved = first.begin(), second.begin()
    counts = [process.answer() for process in moved]
    rest = archived(timedelta(0)).runs

    assert sum(counts) + rest == 60
    assert set(ArchivedRun.objects.values_list("key", flat=True)) == set(keys)
    assert not Run.objects.exists()
    assert not StepEvent.objects.exists()
    assert kit.healthy()


def test_an_archive_killed_in_the_middle_leaves_whole_orders_on_either_side_and_is_simply_started_again():
    keys = many(10)
    killed = kit.Process("archive", "4", FAILPOINTS="archive.before_commit=kill9@2", ALLOW_FAILPOINTS="1").ready()

    assert killed.begin().code() == -9

    assert (ArchivedRun.objects.count(), Run.objects.count()) == (4, 6)
    assert StepState.objects.count() == 6 * 3
    assert kit.healthy()
    assert archived(timedelta(0)).runs == 6
    assert set(ArchivedRun.objects.values_list("key", flat=True)) == set(keys)
    assert kit.healthy()


def test_an_error_before_the_commit_takes_everything_back(monkeypatch):
    done()
    before = rows()
    failpoints.load({"FAILPOINTS": "archive.before_commit=raise", "ALLOW_FAILPOINTS": "1"})

    with pytest.raises(failpoints.Injected):
        archived()

    assert rows() == before


def test_an_archive_beside_working_agents_disturbs_nobody(eventually):
    """The archive moves every finished order at once while new orders come in."""
    keys: list[str] = []
    finished = []

    def work():
        for n in range(15):
            keys.extend(testing.submit_many("toy-plain", [{"n": n}] * 4))
            testing.run_until_idle()
            supervisor.sweep_once()
        finished.append(True)

    def sweep_up():
        while not finished:
            archived(timedelta(0), size=3)

    answers = kit.at_once(work, sweep_up)
    archived(timedelta(0))

    assert answers == [None, None]
    assert sorted(ArchivedRun.objects.values_list("key", flat=True)) == sorted(keys)
    assert toy.ALPHA.performed
    assert len(toy.ALPHA.performed) == len(keys)
    assert kit.healthy()


def test_a_late_answer_to_an_archived_order_is_kept_and_breaks_no_invariant():
    key, place, items = kit.started("toy-plain")
    testing.expire(key)
    supervisor.sweep_once()
    testing.make_due()
    testing.run_until_idle()
    let_pass(100, key)
    archived()

    kit.finish(place, items)

    assert [entry.kind for entry in queries.timeline(items[0].run_id)].count("stray") == 1
    assert kit.healthy()


@pytest.mark.parametrize("verb", ["cancel", "compensate", "resubmit", "skip"])
@pytest.mark.parametrize("key", [None, "a key of the client's"])
def test_nothing_can_be_done_to_an_archived_order(verb, key):
    public_id = testing.submit("toy", {"n": 1}, client="c", client_key=key)
    testing.run_until_idle()
    let_pass(31, public_id)
    archived()

    with pytest.raises(Refused, match="archived"):
        getattr(operator_verbs, verb)(public_id, by="olga", reason="I want to")

    assert not Submission.objects.filter(cancel_requested_at__isnull=False).exists()


def test_a_clients_key_is_known_for_as_long_as_promised_and_then_forgotten(tuned):
    tuned(KEY_DAYS=90)
    young, old = (testing.submit("toy", {"n": 1}, client="c", client_key=key) for key in ("young", "old"))
    testing.run_until_idle()
    let_pass(31, young)
    let_pass(91, old)

    first = archived()

    assert first.runs == 2
    assert list(Submission.objects.values_list("client_key", flat=True)) == ["young"]
    assert archived().submissions == 0
    assert kit.healthy()

    let_pass(60, young)
    assert archived().submissions == 1


def test_a_dead_letters_submission_stays_with_it():
    """An operator may still requeue the dead letter, so its submission has not ended and is not archived."""
    public_id = testing.submit("toy", {"m": 1})
    testing.schedule()
    let_pass(1000, public_id)

    assert archived() == archive.Moved()
    assert kit.healthy()


def test_what_was_told_long_ago_is_forgotten_and_what_was_not_is_kept():
    db.run(
        "INSERT INTO supervision_notification (kind, created_at, delivered_at) SELECT 'alert', at, delivered FROM (VALUES"
        " (now() - interval '40 days', now() - interval '40 days'), (now() - interval '40 days', now()),"
        " (now() - interval '40 days', NULL), (now(), now())) v(at, delivered)"
    )

    moved = archived()

    assert moved.notifications == 1
    assert Notification.objects.count() == 3
