"""The chaos run's checker: a good run passes every check, and each violation fails its own check."""

from __future__ import annotations

import copy
import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace as Row

import psycopg
import pytest

from chaos.checker import violations
from chaos.evidence import Effect, Evidence, deadlocks
from chaos.journal import Journal
from supervision.embedded.server import EmbeddedPostgres

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LINES = [{"sku": "MUG", "quantity": 2}]


def evidence(tmp_path: Path) -> Evidence:
    """Evidence of two correct orders: `good` is Processed, `gone` was cancelled after all its steps."""
    journal = Journal(tmp_path / "log.jsonl")
    rows: dict = {name: [] for name in ("alerts", "deadletters", "strays", "operations", "notifications", "incidents")}
    for name in ("submissions", "runs", "steps", "events", "orders", "reservations"):
        rows[name] = []
    effects = []
    for number, (key, state) in enumerate((("good", "Processed"), ("gone", "Cancelled")), start=1):
        journal.note("client", "ok", key=f"k-{key}", id=key, **{"as": "first"}, attempt=1, traits=[], lines=LINES)
        rows["submissions"].append(Row(public_id=key, client_key=f"k-{key}", payload=json.dumps({"lines": LINES}), consumed_at=NOW))
        rows["runs"].append(
            Row(id=number, key=key, process_state=state, direction="do", created_at=NOW, finished_at=NOW + timedelta(seconds=1))
        )
        for position, name in enumerate(("reserve-stock", "charge-payment", "book-shipment", "notify-customer")):
            rows["steps"].append(
                Row(run_id=number, direction="do", position=position, name=name, process_state="Processed", effect="done", attempt=1,
                    generation=1, failure_count=0, idempotency_key=f"{key}:{name}:do:1", last_error=None)
            )  # fmt: skip
            rows["events"].append(
                Row(run_id=number, seq=position + 1, position=position, direction="do", attempt=1, from_state="Processing",
                    to_state="Processed", at=NOW)
            )  # fmt: skip
        rows["orders"].append(Row(public_id=key, run_id=number, total=Decimal("25.80"), sku="MUG", quantity=2))
        rows["reservations"].append(Row(order_key=key, sku="MUG", quantity=2, released_at=None if state == "Processed" else NOW))
        effects += [
            Effect("payment", "payment-confirm", key, f"{key}:charge-payment:do:1:confirm", 2580),
            Effect("carrier", "carrier-create", key, f"{key}:book-shipment:do:1", 0),
            Effect("mail", "mail-deliver", key, f"{key}:notify-customer:do:1", 0),
        ]
    effects += [Effect("payment", "payment-refund", "gone", "r", 2580), Effect("carrier", "carrier-delete", "gone", "d", 0)]
    rows["products"] = [Row(sku="MUG", available=98)]
    return Evidence(journal, effects, 8, {"MUG": 100}, rows)


def red(found: Evidence) -> list[str]:
    """The names of the checks that fail."""
    return [kind for kind, those in violations(found).items() if those]


def test_a_good_run_is_found_good(tmp_path):
    assert red(evidence(tmp_path)) == []


def _second_run(e: Evidence) -> None:
    e.rows["submissions"].append(copy.copy(e.rows["submissions"][0]))
    e.rows["submissions"][-1].public_id = "twin"


def _event(e: Evidence, **changes: object) -> None:
    e.rows["events"].append(Row(**{**vars(e.rows["events"][0]), **changes}))


def _incident(e: Evidence, **changes: object) -> None:
    facts = {"id": 4, "kind": "step_error", "cause": "step_error:w:book-shipment", "step": "book-shipment", "orders": 1, "closed_at": NOW}
    e.rows["incidents"].append(Row(**{**facts, **changes}))


BROKEN = {
    "lost": lambda e: e.rows["runs"].pop(0),
    "duplicate order": _second_run,
    "phantom": lambda e: setattr(e.rows["submissions"][0], "client_key", "another-key"),
    "another body": lambda e: setattr(e.rows["submissions"][0], "payload", '{"lines": [{"sku": "MUG", "quantity": 7}]}'),
    "stuck": lambda e: setattr(e.rows["runs"][0], "process_state", "Processing"),
    "an Error that": lambda e: setattr(e.rows["runs"][0], "process_state", "Error"),
    "duplicate charge": lambda e: e.effects.append(e.effects[0]),
    "duplicate shipment": lambda e: e.effects.append(e.effects[1]),
    "a mail repeated": lambda e: e.effects.append(e.effects[2]),
    "Processed without": lambda e: e.effects.__setitem__(0, e.effects[0]._replace(amount=1)),
    "Cancelled with": lambda e: e.effects.pop(-2),
    "orphan effect": lambda e: setattr(e.rows["steps"][1], "effect", "none"),
    "an attempt ended": lambda e: _event(e, seq=9),
    "a cancellation": lambda e: e.journal.note("client", "cancel-ok", id="good", key="k-good"),
    "an order that was in Error": lambda e: _event(e, seq=9, position=None, to_state="Error", from_state="Processing"),
    "an incident that": lambda e: _incident(e, closed_at=None),
    "two incidents": lambda e: [_incident(e) for _ in "12"],
    "poison": lambda e: e.journal.note("bot", "left", id="good", incident=4),
    "malformed input": lambda e: e.rows["deadletters"].append(Row(id=1, public_id="good", source="submission", reason="?")),
    "stock is not": lambda e: setattr(e.rows["products"][0], "available", 97),
    "two clicks": lambda e: [e.journal.note("bot", "resubmit", id="good", step="s", direction="do", attempt=1, status=202) for _ in "12"],
    "manage.py audit": lambda e: e.audit.append("events are numbered without a gap: run_id=1"),
    "deadlock": lambda e: e.deadlocks.append("Process 1 waits for ShareLock on transaction 2; blocked by process 3."),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_each_broken_promise_turns_its_check_red(tmp_path, kind):
    found = evidence(tmp_path)

    BROKEN[kind](found)

    assert [name for name in red(found) if name.startswith(kind)], red(found)
    assert set(BROKEN) == {key for key in BROKEN for name in violations(found) if name.startswith(key)}


KEY = "good:notify-customer:do:1"


def _noted(e: Evidence, *, failed: str | None = "Pending") -> None:
    """A mail arrived twice. The shop noted the repetition, after an attempt that ended with this outcome."""
    e.effects.append(e.effects[2])
    e.rows["operations"].append(Row(run_id=1, position=3, key=KEY, operation="repeat", attempt=2, outcome="done"))
    if failed:
        _event(e, seq=9, position=3, attempt=1, to_state=failed)
        e.rows["events"][3].attempt = 2


def _told(e: Evidence, times: int, tries: int) -> None:
    e.effects += [Effect("mail", "mail-deliver", "gone", "gone.order-cancelled", 0)] * times
    e.effects += [Effect("mail", "mail-deliver", None, "incident-4-7-9", 0)] * times
    e.rows["notifications"] += [
        Row(id=8, run_id=2, kind="order-cancelled", payload={}, tries=tries),
        Row(id=9, run_id=None, kind="incident", payload={"incidents": [4, 7]}, tries=tries),
    ]


@pytest.mark.parametrize(
    ("story", "good"),
    [
        (_noted, True),
        (lambda e: _noted(e, failed=None), False),  # no attempt had an unknown outcome
        (lambda e: (_noted(e), e.effects.append(e.effects[2])), False),  # three times
        (lambda e: (_noted(e), e.rows["operations"].clear()), False),  # the shop has no note of it
        (lambda e: _told(e, 2, 2), True),
        (lambda e: _told(e, 2, 1), False),
    ],
)
def test_a_mail_comes_twice_only_after_an_attempt_in_doubt_and_from_the_outbox_once_for_each_try(tmp_path, story, good):
    found = evidence(tmp_path)

    story(found)

    assert (red(found) == []) is good


def test_a_poisonous_order_that_its_steps_incident_gathered_is_well_told_of(tmp_path):
    found = evidence(tmp_path)
    found.journal.note("bot", "left", id="good", incident=4)
    _incident(found)
    found.rows["alerts"].append(Row(run_id=1, kind="error", incident_id=4))

    assert red(found) == []


@pytest.mark.parametrize(("kind", "looked_at", "good"), [("skipped", None, True), ("skipped", NOW, False), ("error", None, False)])
def test_an_incident_of_a_step_that_was_given_up_stays_open_until_an_operator_has_looked(tmp_path, kind, looked_at, good):
    found = evidence(tmp_path)
    _incident(found, closed_at=None)
    found.rows["alerts"].append(Row(run_id=1, kind=kind, incident_id=4, acknowledged_at=looked_at))

    assert (red(found) == []) is good


def test_a_deadlock_is_found_in_the_servers_log_with_both_statements(tmp_path):
    update = "UPDATE shelf\n SET pieces = 0\n WHERE sku = %s"
    server = EmbeddedPostgres(tmp_path, fast=True)
    server.start()
    try:
        with psycopg.connect(server.url) as one, psycopg.connect(server.url) as other:
            one.execute("CREATE TABLE shelf AS SELECT sku, 1 AS pieces FROM unnest(ARRAY['MUG', 'PEN']) sku")
            one.commit()
            assert deadlocks(server.log) == []
            one.execute(update, ["MUG"])
            other.execute(update, ["PEN"])
            with ThreadPoolExecutor(2) as both:
                ends = [both.submit(one.execute, update, ["PEN"]), both.submit(other.execute, update, ["MUG"])]
            assert sum(isinstance(end.exception(), psycopg.errors.DeadlockDetected) for end in ends) == 1
    finally:
        server.stop()

    [found] = deadlocks(server.log)
    assert found.count("waits for") == 2
    assert found.count("UPDATE shelf SET pieces = 0 WHERE sku = $1") == 2
