"""Hooks that raise: the order keeps its state, the engine repeats the call until it succeeds, and other orders go on."""

from __future__ import annotations

from contextlib import suppress

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from supervision import workflow as definitions
from supervision.intake import consuming
from supervision.models import Notification
from supervision.operations import operator_verbs
from supervision.outbox import notifications
from supervision.recovery import supervisor
from supervision.retry import RetryPolicy
from supervision.states import RunState
from supervision.store import hooks
from supervision.testing import expire, run_of, submit, submit_many
from supervision.workflow import Step, Workflow
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")


STEPS = tuple(Step(f"{name}-step", agent=name, retry=RetryPolicy(threshold=1)) for name in ("alpha", "beta", "gamma"))


WAIT = "SELECT extract(epoch FROM not_before - now())::int FROM supervision_notification WHERE kind = 'hook'"


class Told:
    """A hook that writes a row for each run it is called with, and raises while one of them is in `cursed`."""

    def __init__(self) -> None:
        self.cursed: set[str] = set()
        self.calls = 0

    def __call__(self, runs) -> None:
        self.calls += 1
        Notification.objects.bulk_create(Notification(kind="told", run_id=run.run_id, payload={"reason": run.reason}) for run in runs)
        for run in runs:
            if run.key in self.cursed:
                raise LookupError("the application's own mistake")

    @staticmethod
    def of() -> list[str]:
        """The keys of the runs whose rows were committed."""
        return sorted(Notification.objects.filter(kind="told").values_list("run__key", flat=True))


@pytest.fixture
def told():
    """Hooks of the workflow `hooked`, version 1."""
    hook = Told()
    kit.define(Workflow("hooked", STEPS, intake=toy.INTAKE, on_error=hook, on_processed=hook, on_cancelled=hook))
    yield hook
    definitions._workflows.pop(("hooked", 1), None)
    definitions._newest.pop("hooked", None)


def about_to_fail(count: int) -> list[str]:
    """Runs whose first step has expired; the next sweep puts them into Error."""
    keys = submit_many("hooked", [{"n": n} for n in range(count)])
    kit.start_all()
    expire()
    return keys


def put_off() -> list[str]:
    """The keys of the orders whose hook call is still due."""
    return sorted(Notification.objects.filter(kind="hook", delivered_at=None).values_list("run__key", flat=True))


@pytest.mark.parametrize("raises", [False, True])
def test_a_hook_that_leaves_a_block_open_is_called_again_and_its_order_ends(told, raises):
    """What its thread did next would have gone into that block, and would never have been committed."""
    real = told.__class__.__call__
    forgets = [True]

    def forgetful(self, runs):
        if forgets[0]:
            transaction.atomic().__enter__()
        real(self, runs)
        if raises and forgets[0]:
            raise LookupError("no")

    told.__class__ = type("Forgetful", (Told,), {"__call__": forgetful})
    key = submit("hooked", {"n": 1})
    kit.run_until_idle()

    assert not connection.in_atomic_block
    assert (run_of(key).process_state, put_off(), told.of()) == ("Processed", [key], [])
    forgets[0] = False
    let_time_pass()
    hooks.retry_due()
    assert (put_off(), told.of()) == ([], [key])


def let_time_pass() -> None:
    kit.fetch("UPDATE supervision_notification SET not_before = now() WHERE kind = 'hook'")


# ------------------------------------------------------------------------------------------- other orders go on


def test_a_batch_of_orders_whose_hook_raises_hides_no_innocent_step(told, tuned):
    tuned(SWEEP_BATCH=20)
    cursed = about_to_fail(20)
    told.cursed = set(cursed)
    innocent, *_ = kit.started("toy-plain")
    kit.fetch("UPDATE supervision_stepstate SET complete_by = now() - interval '1 day' WHERE process_state = 'Processing'")
    expire(innocent)  # its deadline is the newest, so the sweep takes it last

    supervisor.sweep_once()

    assert kit.states(innocent)[0] == "Pending"
    assert {kit.state(key) for key in cursed} == {"Error"}
    assert kit.alerts(cursed[0]) == ["error"]


def test_an_order_keeps_its_error_and_its_alert_where_the_hook_raises(told):
    cursed, blessed = about_to_fail(2)
    told.cursed = {cursed}

    supervisor.sweep_once()

    assert (kit.state(cursed), kit.state(blessed)) == ("Error", "Error")
    assert (told.of(), put_off()) == ([blessed], [cursed])
    assert kit.alerts(cursed) == ["error"]
    assert kit.healthy()


def test_an_order_is_processed_where_its_hook_raises_and_its_neighbours_are_told_of(told):
    keys = submit_many("hooked", [{"n": n} for n in range(5)])
    told.cursed = {keys[2]}

    assert kit.idle_states(keys) == {"Processed"}
    assert told.of() == sorted(set(keys) - told.cursed)
    assert put_off() == [keys[2]]
    assert not kit.fetch("SELECT FROM supervision_strayreply")


def test_a_cancelled_order_is_cancelled_where_its_hook_raises(told):
    key, *_ = kit.claimed("hooked")
    told.cursed = {key}

    operator_verbs.cancel(key, by="ada", reason="the customer said so")

    assert (kit.state(key), told.of(), put_off()) == ("Cancelled", [], [key])


def test_a_hook_that_hides_a_failed_statement_is_put_off_like_one_that_raises(told):
    def careless(runs):
        with suppress(DatabaseError):
            kit.fetch("SELECT 1 / 0")

    kit.define(Workflow("hooked", STEPS, intake=toy.INTAKE, on_processed=careless))
    key = submit("hooked", {"n": 1})

    assert (kit.idle_state(key), put_off()) == ("Processed", [key])


# ---------------------------------------------------------------------------------------------- repeated calls


def test_a_call_that_was_put_off_is_made_again_later_and_later_until_it_succeeds(told):
    (key,) = about_to_fail(1)
    told.cursed = {key}
    supervisor.sweep_once()

    waits = []
    for _ in range(3):
        let_time_pass()
        assert hooks.retry_due() == 0
        waits.append(kit.fetch(WAIT)[0][0])
    assert hooks.retry_due() == 0  # nothing is due
    assert waits == sorted(waits)
    assert waits[0] < waits[2]

    told.cursed = set()
    let_time_pass()
    assert hooks.retry_due() == 1
    let_time_pass()
    assert hooks.retry_due() == 0

    assert (told.of(), put_off()) == ([key], [])
    assert kit.healthy()


def test_two_processes_make_a_call_once(told):
    keys = about_to_fail(30)
    told.cursed = set(keys)
    supervisor.sweep_once()
    told.cursed = set()
    let_time_pass()

    made = 0
    while put_off():  # a row that the other process has locked at this moment is left until it is due again
        made += sum(kit.at_once(hooks.retry_due, hooks.retry_due))
        let_time_pass()

    assert made == 30
    assert told.of() == sorted(keys)


def test_a_row_that_another_process_has_locked_is_not_counted_and_is_called_later(told):
    """A claim locks the rows that it finds before it sees that another claim has leased them, and holds the locks to its end."""
    keys = about_to_fail(3)
    told.cursed = set(keys)
    supervisor.sweep_once()
    told.cursed = set()
    let_time_pass()
    hold = hooks.db.fetch

    def held_by_another(statement, params=None):
        """As `db.fetch`; while it runs, another connection has the lock of one row."""
        if statement != hooks._HOLD:
            return hold(statement, params)
        with psycopg.connect(**connection.get_connection_params()) as other:
            other.execute("SELECT FROM supervision_notification WHERE id = %s FOR UPDATE", [params["ids"][0]])
            return hold(statement, params)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hooks.db, "fetch", held_by_another)
        assert hooks.retry_due() == 2

    assert (len(told.of()), len(put_off())) == (2, 1)
    assert hooks.retry_due() == 0  # its back-off has not passed
    let_time_pass()
    assert hooks.retry_due() == 1
    assert told.of() == sorted(keys)


def test_the_call_and_the_note_that_it_was_made_are_one_commit(told):
    """When a process dies after the hook's writes and before the commit, the call is still due."""
    (key,) = about_to_fail(1)
    told.cursed = {key}
    supervisor.sweep_once()
    told.cursed = set()
    let_time_pass()
    ids = [row[0] for row in kit.fetch("SELECT id FROM supervision_notification WHERE kind = 'hook'")]

    with kit.transaction.atomic():
        assert hooks._make(hooks._Call("hooked", 1, "on_error"), ids) == 1
        kit.transaction.set_rollback(True)

    assert (told.of(), put_off()) == ([], [key])
    assert hooks.retry_due() == 1
    assert told.of() == [key]


def test_a_process_that_does_not_know_the_version_leaves_the_call_to_one_that_does(told):
    (key,) = submit_many("hooked", [{"n": 1}])
    consuming.consume_batch(born=False)
    known = definitions._workflows.pop(("hooked", 1))

    operator_verbs.cancel(key, by="customer", reason="changed my mind")  # this web process may run older code

    assert (kit.state(key), put_off()) == ("Cancelled", [key])
    let_time_pass()
    assert hooks.retry_due() == 0
    assert Notification.objects.get(kind="hook").tries == 0  # this process did not try the call

    kit.define(known)
    assert hooks.retry_due() == 1
    assert told.of() == [key]


def test_many_calls_that_go_on_failing_keep_no_mail_back(told):
    keys = about_to_fail(40)
    told.cursed = set(keys)
    supervisor.sweep_once()
    let_time_pass()
    kit.fetch("DELETE FROM supervision_notification WHERE kind = 'incident'")
    sent = []
    notifications.handler("letter")(sent.append)
    Notification.objects.create(kind="letter")

    assert notifications.deliver_due() == 1
    assert len(sent) == 1


# ---------------------------------------------------------------------------------------------------- incidents


def test_one_hook_that_raises_is_one_cause_however_many_orders_it_has(told):
    keys = about_to_fail(7)
    told.cursed = set(keys)
    supervisor.sweep_once()

    (cause,) = hooks.failing()

    assert (cause.kind, cause.key, cause.orders, cause.code) == ("hook_failed", "hook_failed:hooked:1:on_error", 7, "LookupError")
    assert "on_error of hooked version 1" in cause.title
    told.cursed = set()
    let_time_pass()
    hooks.retry_due()
    assert list(hooks.failing()) == []


def test_a_call_that_waits_for_newer_code_is_told_of_only_when_it_waits_too_long(told, tuned):
    (key,) = about_to_fail(1)
    definitions._workflows.pop(("hooked", 1))
    with kit.transaction.atomic():
        run = run_of(key)
        hooks.tell("hooked", 1, RunState.ERROR, [definitions.ClosedRun(run_id=run.pk, key=key, reason="", payload={})])

    assert list(hooks.failing()) == []
    tuned(PICKUP_SECONDS=0)
    assert [cause.orders for cause in hooks.failing()] == [1]


# ------------------------------------------------------------------------------------ steps that cannot be settled


def test_a_step_whose_run_was_deleted_by_hand_ends_no_sweep(tuned):
    tuned(SWEEP_BATCH=2)
    for _ in range(4):
        gone, *_ = kit.started("toy-plain")
        kit.fetch("DELETE FROM supervision_run WHERE key = %s", [gone])
    innocent, *_ = kit.started("toy-plain")
    kit.fetch("UPDATE supervision_stepstate SET complete_by = now() - interval '1 day' WHERE process_state = 'Processing'")
    kit.expire_and_sweep(innocent)

    assert kit.states(innocent)[0] == "Pending"


@pytest.fixture
def unwritable():
    """A trigger that refuses updates of steps in generation 99."""
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION refuse_99() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;"
            "CREATE TRIGGER refuse_99 BEFORE UPDATE ON supervision_stepstate FOR EACH ROW WHEN (OLD.generation = 99)"
            " EXECUTE FUNCTION refuse_99()"
        )
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP FUNCTION refuse_99 CASCADE")


def test_steps_that_cannot_be_settled_hide_none_behind_them(unwritable, tuned):
    tuned(SWEEP_BATCH=3)
    for _ in range(7):
        kit.started("toy-plain")
    kit.fetch("UPDATE supervision_stepstate SET generation = 99, complete_by = now() - interval '1 day' WHERE process_state = 'Processing'")
    innocent, *_ = kit.started("toy-plain")
    report = kit.expire_and_sweep(innocent)

    assert kit.states(innocent)[0] == "Pending"
    assert report.overdue == 1


def test_orders_that_cannot_be_stopped_hide_none_behind_them(unwritable, tuned):
    tuned(SWEEP_BATCH=3)
    stuck = submit_many("toy-plain", [{"n": n} for n in range(7)])
    innocent = submit("toy-plain", {"n": 8})
    consuming.consume_batch(born=False)
    kit.fetch(
        "UPDATE supervision_stepstate s SET generation = 99 FROM supervision_run r WHERE r.id = s.run_id AND r.key = ANY(%s)", [stuck]
    )
    kit.fetch("UPDATE supervision_run SET complete_by = now() - interval '1 day' + id * interval '1 ms'")

    supervisor.sweep_once()

    assert kit.state(innocent) == "Error"


def test_a_part_of_the_sweep_that_fails_keeps_no_other_from_its_work(monkeypatch):
    key, *_ = kit.started("toy-plain")
    expire(key)

    def broken(*_):
        raise RuntimeError("this part is broken")

    monkeypatch.setattr(supervisor.failures, "recall", broken)

    with pytest.raises(RuntimeError, match="this part is broken"):
        supervisor.sweep_once()

    assert kit.states(key)[0] == "Pending"
