"""The audit finds what a superuser changes in linked history, and names run, event, link and batch; it finds nothing else."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command

from supervision.audit import chain
from supervision.history import linking
from supervision.models import ArchivedRun, HistoryBatch, HistoryLink, StepEvent
from supervision.operations import archive
from tests.engine import kit
from tests.support.history import rewrite

EVENT = "UPDATE supervision_stepevent SET {} WHERE run_id = %(run)s AND seq = 2"


def found() -> list[str]:
    return [*chain.batches(), *chain.histories()]


@pytest.fixture
def runs(engine: None) -> list[int]:
    """Three ended runs, linked in two batches."""
    kit.ran()
    linking.link(runs=ids())
    kit.ran()
    kit.ran()
    linking.link(runs=ids())
    return ids()


def ids() -> list[int]:
    return sorted(set(StepEvent.objects.values_list("run_id", flat=True)))


def test_history_that_was_not_changed_is_whole(runs):
    assert found() == []


@pytest.mark.parametrize("column", ["position", "direction", "attempt", "from_state", "to_state", "at"])
def test_each_column_that_the_digest_covers_is_named_when_it_was_changed(runs, column):
    other = {"direction": "'undo'", "from_state": "NULL", "to_state": "'Skipped'", "at": "at + interval '1 microsecond'"}
    rewrite(EVENT.format(f"{column} = {other.get(column, f'coalesce({column}, 0) + 1')}"), {"run": runs[1]})

    assert found() == [f"run_id={runs[1]}: event 2 was changed"]


def test_who_acted_and_why_stand_outside_of_the_chain_so_that_a_person_can_be_erased(runs):
    rewrite("UPDATE supervision_stepevent SET actor = '', why = NULL")

    assert found() == []


def test_a_value_cannot_slip_into_its_neighbour(runs):
    rewrite(EVENT.format("from_state = from_state || '10:Processing', to_state = ''"), {"run": runs[0]})

    assert found() == [f"run_id={runs[0]}: event 2 was changed"]


@pytest.mark.parametrize(
    ("statement", "breaks"),
    [
        ("DELETE FROM supervision_stepevent WHERE run_id = %(run)s AND seq = 2", ["event 2 was removed"]),
        (
            "UPDATE supervision_stepevent SET seq = CASE seq WHEN 2 THEN -3 ELSE -2 END WHERE run_id = %(run)s AND seq IN (2, 3);"
            "UPDATE supervision_stepevent SET seq = -seq WHERE run_id = %(run)s AND seq < 0",
            ["event 2 was event 3 when it was linked", "event 3 was event 2 when it was linked"],
        ),
        (
            "INSERT INTO supervision_stepevent (run_id, seq, to_state, actor) VALUES (%(run)s, 0, 'Pending', 'x')",
            ["event 0 was added before the first event"],
        ),
        (
            "UPDATE supervision_historylink SET digest = sha256('x') WHERE subject = %(run)s",
            [r"its link up to event \d+ \(batch 2\) was changed, .*"],
        ),
        (
            "UPDATE supervision_historylink SET newest_at = now() WHERE subject = %(run)s",
            [r"its link up to event \d+ \(batch 2\) was given another time"],
        ),
        (
            "DELETE FROM supervision_stepevent WHERE run_id = %(run)s; DELETE FROM supervision_run WHERE id = %(run)s",
            ["it was removed before RECORD_DAYS were over, and is neither in the tables nor in the archive"],
        ),
    ],
)
def test_a_run_that_was_rewritten_is_named_with_its_events(runs, statement, breaks):
    for part in statement.split(";"):
        rewrite(part, {"run": runs[1]})

    named = [line for line in found() if line.startswith("run_id=")]

    assert len(named) == len(breaks)
    assert all(re.fullmatch(f"run_id={runs[1]}: {what}", line) for line, what in zip(named, breaks, strict=True)), named


@pytest.mark.parametrize(
    ("statement", "breaks"),
    [
        ("UPDATE supervision_historybatch SET head = sha256('x') WHERE number = 2", ["batch 2 was changed, or one of its 2 links"]),
        (
            "UPDATE supervision_historybatch SET head = sha256('x') WHERE number = 1",
            ["batch 1 was changed, or one of its 1 links", "batch 2 does not follow the head of batch 1"],
        ),
        ("UPDATE supervision_historybatch SET made_at = now() WHERE number = 1", ["batch 1 was changed, or one of its 1 links"]),
        ("DELETE FROM supervision_historylink WHERE batch = 2 AND subject = %(run)s", ["batch 2 has 1 links, and was made of 2"]),
        ("UPDATE supervision_historylink SET digest = sha256('x') WHERE batch = 1", ["batch 1 was changed, or one of its 1 links"]),
        ("DELETE FROM supervision_historybatch WHERE number = 1", ["batches 1 to 1 are gone"]),
    ],
)
def test_a_batch_that_was_rewritten_is_named(runs, tuned, statement, breaks):
    tuned(RECORD_DAYS=None)
    rewrite(statement, {"run": runs[1]})

    assert list(chain.batches()) == breaks


def test_a_link_between_two_others_that_was_removed_is_missed(engine):
    run = ids_of(kit.waiting()[0])
    lengths = [linked_to(run)]
    kit.run_until_idle()
    lengths.append(linked_to(run))
    rewrite("DELETE FROM supervision_historylink WHERE through = %s", [lengths[0]])

    assert lengths[0] < lengths[1]
    assert list(chain.batches()) == ["batch 1 has 0 links, and was made of 1"]
    assert f"run_id={run}: its link up to event {lengths[1]} does not begin after event 0: a link was removed or changed" in found()


def ids_of(key: str) -> int:
    return int(StepEvent.objects.filter(run__key=key).values_list("run_id", flat=True)[0])


def linked_to(run: int) -> int:
    linking.link(runs=[run])
    return int(HistoryLink.objects.filter(subject=run).order_by("-through").values_list("through", flat=True)[0])


def test_an_archived_run_is_compared_too(runs):
    kit.fetch("UPDATE supervision_run SET finished_at = now() - interval '1 year'")
    assert sum(moved.runs for moved in archive.batches(timedelta(days=1))) == 3
    assert found() == []
    rewrite("UPDATE supervision_archivedrun SET body = jsonb_set(body, '{events,1,to_state}', '\"Skipped\"') WHERE run_id = %s", [runs[2]])

    assert found() == [f"run_id={runs[2]}: event 2 was changed"]


@pytest.mark.parametrize("value", ["[]", "{}", '"x"', '{"seq": "2", "at": 1}', '{"seq": 2, "at": "yesterday"}'])
def test_an_archive_that_was_made_unreadable_is_named_and_stops_nothing(runs, value):
    kit.fetch("UPDATE supervision_run SET finished_at = now() - interval '1 year'")
    assert sum(moved.runs for moved in archive.batches(timedelta(days=1))) == 3
    rewrite("UPDATE supervision_archivedrun SET body = jsonb_set(body, '{events,1}', %s::jsonb) WHERE run_id = %s", [value, runs[0]])
    rewrite("UPDATE supervision_archivedrun SET body = jsonb_set(body, '{events}', %s::jsonb) WHERE run_id = %s", [value, runs[1]])

    named = found()

    assert any(re.match(f"run_id={runs[0]}: event 2 was (changed|removed)", line) for line in named)
    assert f"run_id={runs[1]}: event 1 was removed" in named
    assert not [line for line in named if f"run_id={runs[2]}" in line]


def test_a_time_that_python_cannot_hold_stops_nothing(runs):
    rewrite("UPDATE supervision_stepevent SET at = 'infinity' WHERE run_id = %s AND seq = 2", [runs[0]])
    rewrite("UPDATE supervision_historylink SET newest_at = '-infinity' WHERE subject = %s", [runs[1]])
    rewrite("UPDATE supervision_historybatch SET made_at = '20000-01-01' WHERE number = 2")

    assert [line.partition("event")[0] for line in found()] == [
        "batch 2 was changed, or one of its 2 links",
        f"run_id={runs[0]}: ",
        f"run_id={runs[1]}: its link up to ",
    ]


def test_a_run_that_has_no_link_yet_gets_it_before_it_is_archived(engine):
    kit.ran()
    kit.fetch("UPDATE supervision_run SET finished_at = now() - interval '1 year'")

    assert sum(moved.runs for moved in archive.batches(timedelta(days=1))) == 1

    assert HistoryLink.objects.get().subject == ArchivedRun.objects.get().run_id
    assert found() == []


def test_the_operators_log_is_in_the_same_chain(engine):
    account = User.objects.create_user("olga")
    for object_id in ("1", "2", "3"):
        LogEntry.objects.create(user_id=account.pk, object_id=object_id, object_repr="x", action_flag=CHANGE, change_message="why")
    linking.turn()
    first, second, third = LogEntry.objects.order_by("id").values_list("pk", flat=True)
    assert found() == []
    rewrite("UPDATE django_admin_log SET object_repr = '', change_message = ''")
    assert found() == []
    rewrite("UPDATE django_admin_log SET object_id = '9' WHERE id = %s", [second])
    rewrite("DELETE FROM django_admin_log WHERE id = %s", [third])

    assert found() == [
        f"entry {second} of the operators' log: it was changed",
        f"entry {third} of the operators' log: it was removed before RECORD_DAYS were over",
    ]
    assert first < second


def test_an_entry_that_was_put_among_older_ones_is_named(engine):
    account = User.objects.create_user("olga")
    LogEntry.objects.create(user_id=account.pk, object_id="1", object_repr="x", action_flag=CHANGE, change_message="")
    first = LogEntry.objects.get().pk
    linking.turn()
    rewrite("UPDATE supervision_historybatch SET made_at = now() - interval '2 hours'")
    for forged in (first - 1, first + 1):
        LogEntry(pk=forged, user_id=account.pk, object_id="2", object_repr="x", action_flag=CHANGE, change_message="").save(
            force_insert=True
        )
        linking.link(entries=[forged])

    assert [line for line in found() if "entry" in line] == [
        f"entry {first - 1} of the operators' log: it was added when entry {first} had been under the chain for an hour"
    ]


def test_a_head_that_was_kept_shows_that_a_superuser_has_written_the_chain_anew(runs):
    kept = kit.said("audit", "--head").split()[0]
    kit.ran()
    linking.link(runs=ids())
    assert kit.said("audit", "--since-head", kept)
    rewrite(EVENT.format("to_state = 'Skipped'"), {"run": runs[1]})
    rewrite("DELETE FROM supervision_historylink; DELETE FROM supervision_historybatch")
    linking.link(runs=ids())

    assert found() == []  # the chain alone is whole again
    assert [line.partition(":")[0] for line in chain.since(kept)] == [f"no batch has the head {kept}"]
    with pytest.raises(SystemExit):
        call_command("audit", "--since-head", kept)


def test_a_head_that_cannot_be_one_is_refused_in_one_line(engine):
    with pytest.raises(CommandError, match="the 64 hexadecimal digits that --head prints"):
        call_command("audit", "--since-head", "abc")
    assert kit.said("audit", "--head") == "no batch yet: the supervisor makes the first one\n"


def test_an_event_that_was_removed_before_its_link_is_missed(runs):
    newest = StepEvent.objects.filter(run_id=runs[0]).latest("seq").seq
    rewrite("INSERT INTO supervision_stepevent (run_id, seq, to_state, actor) VALUES (%s, %s, 'Pending', 'x')", [runs[0], newest + 2])

    assert found() == [f"run_id={runs[0]}: event {newest + 1} was removed before it came under a link"]


def test_the_reader_gets_through_a_long_chain_page_by_page(runs, monkeypatch):
    monkeypatch.setattr(chain, "PAGE", 2)
    rewrite(EVENT.format("to_state = 'Skipped'"), {"run": runs[2]})

    assert found() == [f"run_id={runs[2]}: event 2 was changed"]
    assert HistoryBatch.objects.count() == 2
