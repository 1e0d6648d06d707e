"""The drill of migrations in short: every migration since release 0.1.0 on filled tables, beside orders. And that it notices a bad one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from chaos.migrations import AFTERWARDS, make_old, migrations
from chaos.shop import scratch_database
from tests.support.migrating import probing

pytestmark = pytest.mark.timeout(1200)
PROBE = """
from django.db import migrations
class Migration(migrations.Migration):
    dependencies = [("orders", "0009_order_total"), {after}]
    run_before = [("orders", "0010_order_customer")]
    operations = [migrations.RunSQL({sql!r})]
"""
# A name of a migration, what it does, and what the drill says of it.
BAD = (
    ("0001_stall", "LOCK TABLE supervision_run; SELECT pg_sleep(3)", r"probe\.0001_stall stalled a client for [23]\d\d\d"),
    ("0002_type", "ALTER TABLE orders_order ALTER COLUMN total TYPE numeric(20, 5)", "orders_order was rewritten"),
    (
        "0003_index",
        "CREATE INDEX bad ON supervision_stepstate (finished_at)",
        r"probe\.0003_index built an index of supervision_stepstate while nothing could be written",
    ),
    (
        "0004_column",
        "ALTER TABLE supervision_stepevent ADD COLUMN colour text NOT NULL DEFAULT 'red';"
        "ALTER TABLE supervision_stepevent ALTER COLUMN colour DROP DEFAULT",
        "a statement of an order failed: NotNullViolation",
    ),
)
HOURS = 3600 * 1000.0  # milliseconds; a test depends on no speed


def silent(text: str) -> None:
    """Says nothing."""


def drilled(tmp_path: Path, *, bad: bool = False, most_ms: float = HOURS) -> tuple[dict[str, dict[str, object]], list[str]]:
    """Run the drill on few rows; returns its rows by migration and what is wrong. bad: with bad migrations among them."""
    environ = {}
    if bad:
        written, after = {}, ""
        for name, sql, _said in BAD:
            written[name] = PROBE.format(sql=sql, after=after)
            after = f"('probe', '{name}')"
        environ = probing(tmp_path, written)
    with scratch_database() as url:
        assert make_old(url, 3000, silent) == 300
        _figures, wrong = migrations(url, tmp_path, rate=20, say=silent, calm=0.5, most_ms=most_ms, **environ)
    return {row["name"]: row for row in json.loads((tmp_path / "migrations.json").read_text())}, wrong


def test_every_migration_since_the_first_release_runs_beside_orders(tmp_path: Path):
    rows, wrong = drilled(tmp_path)

    assert wrong == []
    assert rows["supervision.0003_signals"]["locks"] == {"supervision_stepstate": "AccessExclusive"}
    assert rows["orders.0023_order_of_account"]["locks"].get("orders_order", "ShareUpdateExclusive") == "ShareUpdateExclusive"
    assert "orders.0042_statistics" in rows
    assert AFTERWARDS in rows


@pytest.mark.nightly
def test_a_migration_that_holds_orders_up_is_named(tmp_path: Path):
    _rows, wrong = drilled(tmp_path, bad=True, most_ms=1000)

    assert {said for _name, _sql, said in BAD if not any(re.match(said, line) for line in wrong)} == set(), wrong
