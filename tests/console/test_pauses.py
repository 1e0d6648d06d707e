"""C21: a pause stops claims of what it names and nothing else, until an operator resumes it or its time is over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db import connection

from supervision.dispatch import scheduler
from supervision.errors import Refused, UnknownRun
from supervision.insight import queries
from supervision.intake import consuming
from supervision.models import Pause, Run, Submission
from supervision.operations import operator_verbs, pauses
from supervision.testing import make_due, run_of, schedule, step, submit
from supervision.wakeup import hints
from tests.commands.test_command_line import database_url
from tests.engine import kit
from tests.support import toy

pytestmark = pytest.mark.usefixtures("engine")
LATER = timedelta(hours=1)


@pytest.mark.parametrize(("scope", "of"), [("all", ""), ("workflow", "toy-plain"), ("agent", "alpha"), ("order", "key")])
def test_a_pause_stops_claims_of_what_it_names_until_it_is_lifted(scope: str, of: str):
    bystander = _due_at_beta() if scope == "agent" else kit.waiting(1, "toy-skip" if scope == "workflow" else "toy-plain")[0]
    (key,) = kit.waiting()
    name = key if of == "key" else of

    pauses.pause(scope, name, reason="looking into it", by="olga")
    schedule()

    assert (step(key, "alpha-step").process_state, scheduler.due()) == ("Pending", False)
    assert ("Processing" in kit.states(bystander)) == (scope != "all")
    pauses.lift(scope, name, by="olga")
    assert kit.idle_state(key) == "Processed"
    assert kit.healthy()


def _due_at_beta() -> str:
    key = kit.in_error(1)
    operator_verbs.resubmit(key, by="olga", reason="again")
    return key


@pytest.mark.parametrize(("scope", "of"), [("all", ""), ("workflow", "toy-plain"), ("agent", "beta"), ("order", "key")])
def test_what_runs_finishes_and_the_next_step_waits(scope: str, of: str):
    key, place, items = kit.started("toy-plain")
    name = key if of == "key" else of
    pauses.pause(scope, name, reason="stop here", by="olga")

    handed = kit.finish(place, items)

    assert (handed.claims, kit.states(key)) == ([], ["Processed", "Pending", "Pending"])
    assert step(key, "beta-step").not_before is not None
    assert schedule() == []
    pauses.lift(scope, name, by="olga")
    assert kit.idle_state(key) == "Processed"
    assert kit.seqs_are_gapless()


def test_undo_waits_for_a_paused_agent_too():
    key, *_ = kit.at_step(1)
    operator_verbs.cancel(key, by="operator", reason="not wanted")
    pauses.pause("agent", "alpha", reason="stocktaking", by="olga")
    kit.expire_and_sweep()
    make_due()
    assert (kit.idle_state(key), toy.ALPHA.undone) == ("Compensating", [])

    pauses.lift("agent", "alpha", by="olga")

    assert kit.idle_state(key) == "Cancelled"


def test_an_agents_worker_that_goes_on_by_itself_stops_before_a_paused_step():
    kit.runner.process.serve({"agent.alpha", "agent.beta", "agent.gamma"})
    pauses.pause("agent", "beta", reason="stocktaking", by="olga")

    key = kit.ran()

    assert kit.states(key) == ["Processed", "Pending", "Pending"]
    assert toy.BETA.performed == []


def test_orders_are_still_consumed_while_everything_is_paused():
    pauses.pause("all", reason="moving house", by="olga")

    key = submit("toy-plain", {"n": 1})
    schedule()

    assert kit.state(key) == "Pending"
    assert Submission.objects.get(public_id=key).consumed_at is not None


def test_an_order_is_paused_before_it_is_taken_up_and_its_run_is_held():
    key, other = submit("toy-plain", {"n": 1}), submit("toy-plain", {"n": 2})
    held = pauses.pause("order", key, reason="an odd address", by="olga")
    assert held.run_id is None

    assert (kit.idle_state(key), kit.state(other)) == ("Pending", "Processed")
    held.refresh_from_db()
    assert held.run_id == run_of(key).pk


def test_a_pause_and_a_consumer_at_the_same_moment_never_miss_each_other():
    key = submit("toy-plain", {"n": 1})
    with kit.another_connection() as consumer:
        consumer.execute("SELECT FROM supervision_submission WHERE public_id = %s FOR UPDATE", [key])
        done = threading.Event()

        def pause() -> None:
            try:
                pauses.pause("order", key, reason="in time", by="olga")
            finally:
                connection.close()
                done.set()

        thread = threading.Thread(target=pause)
        thread.start()
        kit.until(kit.blocked_backends)  # the pause waits for the consumer that holds the order's lock
        assert not done.is_set()
        consumer.rollback()
    thread.join(20)

    assert kit.idle_state(key) == "Pending"


def test_a_pause_ends_by_itself_by_the_databases_clock():
    (key,) = kit.waiting()
    held = pauses.pause("agent", "alpha", reason="maintenance", by="olga", until=LATER)
    schedule()
    assert kit.state(key) == "Pending"
    assert 3590 < (held.until - held.paused_at).total_seconds() <= 3601

    kit.fetch("UPDATE supervision_pause SET until = now() - interval '1 s'")
    assert kit.idle_state(key) == "Processed"
    assert list(pauses.active()) == []
    with pytest.raises(Refused, match="not paused"):
        pauses.lift("agent", "alpha", by="olga")


def test_pausing_what_is_paused_gives_it_the_new_reason_and_time_and_keeps_the_old_row():
    first = pauses.pause("agent", "alpha", reason="first", by="olga")
    second = pauses.pause("agent", "alpha", reason="second", by="oscar", until=LATER)

    assert [row.pk for row in pauses.active()] == [second.pk]
    assert (second.reason, second.paused_by, second.until is not None) == ("second", "oscar", True)
    first.refresh_from_db()
    assert (first.lifted_by, first.lift_reason, first.reason) == ("oscar", "second", "first")


def test_one_that_is_over_makes_room_for_the_next_and_says_when_it_ended():
    first = pauses.pause("all", reason="first", by="olga", until=LATER)
    kit.fetch("UPDATE supervision_pause SET until = now() - interval '1 h'")

    pauses.pause("all", reason="second", by="oscar")

    first.refresh_from_db()
    assert (first.lifted_at, first.lifted_by) == (first.until, "")


def test_two_who_pause_the_same_thing_at_once_leave_one_pause():
    answers = kit.at_once(*(lambda n=n: pauses.pause("all", reason=f"{n}", by="olga") for n in range(4)))

    assert all(isinstance(answer, Pause) for answer in answers), answers
    assert pauses.active().count() == 1
    assert Pause.objects.count() == 4


@pytest.mark.parametrize(
    ("scope", "name", "words"),
    [
        ("agent", "alpah", "there is no agent 'alpah'; there are: alpha, .*beta"),
        ("agent", "", "there is no agent"),
        ("workflow", "toi", "there is no workflow 'toi'; there are: .*toy, toy-five"),
        ("all", "alpha", "a pause of everything has none"),
        ("queue", "alpha", "There is no scope 'queue'; there are: all, workflow, agent, order"),
    ],
)
def test_a_name_that_nobody_has_is_refused_naming_what_exists(scope: str, name: str, words: str):
    with pytest.raises(Refused, match=words):
        pauses.pause(scope, name, reason="r", by="olga")


def test_an_order_that_nobody_knows_or_that_has_ended_cannot_be_paused():
    done = kit.ran()

    with pytest.raises(UnknownRun):
        pauses.pause("order", "no-such-order", reason="r", by="olga")
    with pytest.raises(Refused, match="Processed"):
        pauses.pause("order", done, reason="r", by="olga")
    with pytest.raises(Refused, match="A reason is required"):
        pauses.pause("all", reason="  ", by="olga")


def test_a_moment_that_has_passed_is_refused_and_what_was_paused_stays_so():
    pauses.pause("all", reason="first", by="olga")

    with pytest.raises(Refused, match="passed already"):
        pauses.pause("all", reason="second", by="olga", until=datetime(2020, 1, 1, tzinfo=UTC))

    assert pauses.active().get().reason == "first"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15m", timedelta(minutes=15)),
        ("2h", LATER * 2),
        ("1d12h", timedelta(hours=36)),
        ("90s", timedelta(seconds=90)),
        ("2026-11-21T14:05+01:00", datetime(2026, 11, 21, 13, 5, tzinfo=UTC)),
        ("2026-11-21T14:05", datetime(2026, 11, 21, 14, 5, tzinfo=UTC)),
        ("", None),
        ("0m", None),
        ("9999d", None),
        ("soon", None),
        ("2126-01-01T00:00", None),
        ("9999-12-31T23:59-12:00", None),
        ("2026-13-45T99:99", None),
        ("m", None),
    ],
)
def test_until_is_a_time_or_a_duration(text: str, expected: Any):
    if expected is None:
        with pytest.raises(ValueError, match="Expected a"):
            pauses.read_until(text)
    else:
        assert pauses.read_until(text) == expected


def test_resuming_makes_the_scheduler_look_at_once(hinted: list[Any]):
    pauses.pause("all", reason="r", by="olga")
    assert hinted == []

    pauses.lift("all", by="olga", reason="it is over")

    assert hinted == [hints.SCHEDULE]
    assert Pause.objects.get().lift_reason == "it is over"


def test_only_the_pause_that_was_seen_is_lifted():
    seen = pauses.pause("all", reason="first", by="olga")
    pauses.pause("all", reason="second", by="oscar")

    with pytest.raises(Refused, match="not paused"):
        pauses.lift("all", by="olga", pk=seen.pk)
    assert pauses.active().count() == 1


def test_who_paused_and_resumed_what_why_and_when_is_on_record():
    olga = User.objects.create_superuser("olga")
    (key,) = kit.waiting()

    pauses.pause("order", key, reason="first look", by=olga)
    pauses.pause("order", key, reason="second look", by="oscar")
    pauses.lift("order", key, by=olga, reason="all is well")

    told = [(entry.to_state, entry.actor, entry.why) for entry in queries.timeline(run_of(key).pk) if entry.kind == "pause"]
    assert told == [("Paused", "olga", "first look"), ("Paused", "oscar", "second look"), ("Resumed", "olga", "all is well")]
    assert sorted(LogEntry.objects.values_list("change_message", flat=True)) == ["pause: first look", "resume: all is well"]


def test_the_history_tells_of_a_pause_that_ended_by_itself():
    key = submit("toy-plain", {"n": 1})
    pauses.pause("order", key, reason="a moment", by="olga", until=LATER)
    consuming.consume_batch(born=False)
    kit.fetch("UPDATE supervision_pause SET paused_at = now() - interval '2 h', until = now() - interval '1 h'")

    entries = queries.timeline(run_of(key).pk)

    assert [(entry.kind, entry.to_state, entry.actor) for entry in entries] == [
        ("pause", "Paused", "olga"),
        ("pause", "Resumed", ""),
        ("event", "Pending", entries[2].actor),
    ]


def test_a_pause_of_an_order_that_has_ended_is_no_longer_shown_as_in_force():
    key, place, items = kit.at_step(2, "toy-plain")
    pauses.pause("order", key, reason="too late", by="olga")
    assert pauses.active().count() == 1

    kit.finish(place, items)

    assert kit.state(key) == "Processed"
    assert pauses.active().count() == 0


def test_a_paused_order_can_be_cancelled_and_is_undone_when_it_is_resumed():
    key, place, items = kit.started("toy")
    pauses.pause("order", key, reason="wait", by="olga")
    kit.finish(place, items)

    operator_verbs.cancel(key, by="customer", reason="never mind")
    assert kit.idle_state(key) == "Compensating"

    pauses.lift("order", key, by="olga")
    assert kit.idle_state(key) == "Cancelled"
    assert Run.objects.filter(key=key, finished_at__isnull=False).exists()


def test_a_pause_is_honoured_by_a_process_that_starts_later():
    (key,) = kit.waiting()
    pauses.pause("workflow", "toy-plain", reason="a restart is no way round it", by="olga")

    assert claimed_by_another_process() == 0
    pauses.lift("workflow", "toy-plain", by="olga")
    assert claimed_by_another_process() == 1
    assert kit.state(key) == "Processing"


# The process needs the toy workflows: it claims only orders whose workflow its code knows.
SCHEDULE_ONCE = """
import django
django.setup()
from django.core.management import call_command
import tests.support.toy
call_command("schedule", "--once")
"""


def claimed_by_another_process() -> int:
    said = subprocess.run(
        [sys.executable, "-c", SCHEDULE_ONCE],
        cwd=settings.BASE_DIR,
        env={**os.environ, "DATABASE_URL": database_url(connection.settings_dict["NAME"]), "CELERY_BROKER_URL": "memory://", "DEBUG": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return int(json.loads(said.stdout)["claimed"])
