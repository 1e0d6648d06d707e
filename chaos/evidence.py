"""The evidence about one run: its journal, the remote services' ledgers and the rows of the shop's database."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import namedtuple_row

from chaos.journal import Journal

QUERIES = {
    "submissions": "SELECT public_id, client_key, payload, consumed_at FROM supervision_submission",
    "runs": "SELECT id, key, process_state, direction, created_at, finished_at, cancel_requested_at FROM supervision_run",
    "steps": "SELECT run_id, direction, position, name, process_state, effect, attempt, generation, failure_count,"
    " idempotency_key, last_error FROM supervision_stepstate",
    "events": "SELECT run_id, seq, position, direction, attempt, from_state, to_state, actor, why, at"
    " FROM supervision_stepevent ORDER BY run_id, seq",
    "alerts": "SELECT run_id, position, direction, generation, kind, acknowledged_at, incident_id FROM supervision_alert",
    "orders": "SELECT o.public_id, o.run_id, o.total, l.sku, l.quantity FROM orders_order o"
    " LEFT JOIN orders_orderline l ON l.order_id = o.id",
    "products": "SELECT sku, available FROM orders_product",
    "reservations": "SELECT order_key, sku, quantity, released_at FROM orders_stockreservation",
    "deadletters": "SELECT id, public_id, source, reason FROM supervision_deadletter",
    "incidents": "SELECT id, kind, cause, step, resource, orders, opened_at, closed_at FROM supervision_incident",
    "operations": "SELECT run_id, position, key, operation, attempt, outcome FROM supervision_effect WHERE service = 'mail'",
    "notifications": "SELECT id, run_id, kind, payload, tries FROM supervision_notification WHERE kind IN ('order-cancelled', 'incident')",
    "strays": "SELECT run_id, direction, position, attempt, outcome FROM supervision_strayreply",
}


class Effect(NamedTuple):
    """One operation that had an effect in a remote service."""

    service: str
    operation: str
    order: str | None
    key: str
    amount: int


@dataclass
class Evidence:
    """All evidence about one finished run."""

    journal: Journal
    effects: list[Effect]
    calls: int
    stock_before: dict[str, int]
    rows: dict[str, list[Any]]
    audit: list[str] = field(default_factory=list)
    deadlocks: list[str] = field(default_factory=list)

    def by_run(self, table: str) -> dict[int, list[Any]]:
        """The rows of a table, by run id."""
        found: dict[int, list[Any]] = defaultdict(list)
        for row in self.rows[table]:
            found[row.run_id].append(row)
        return found

    def effects_of(self, *operations: str) -> dict[str | None, list[Effect]]:
        """Effects of these operations by order."""
        found: dict[str | None, list[Effect]] = defaultdict(list)
        for effect in self.effects:
            if effect.operation in operations:
                found[effect.order].append(effect)
        return found


def deadlocks(log: Path) -> list[str]:
    """The deadlocks that PostgreSQL ended, from its log: the processes that waited for each other, and their statements."""
    entries = re.split(r"\n(?!\t)", log.read_text(errors="replace"))  # further lines of an entry begin with a tab
    return [
        " ".join(following.partition("DETAIL:")[2].split())
        for entry, following in zip(entries, [*entries[1:], ""], strict=True)
        if entry.endswith("deadlock detected")
    ]


def gather(journal: Journal, ledger: Path, database_url: str, stock_before: dict[str, int]) -> Evidence:
    """Read the ledger, then all tables in one snapshot of the database."""
    effects, calls = [], 0
    for line in ledger.read_text().splitlines():
        entry = json.loads(line)
        calls += 1
        if entry["effect"]:
            operation = f"{entry['service']}-{entry['operation']}"
            effects.append(Effect(entry["service"], operation, entry["order"], entry["key"], entry["amount"]))
    with psycopg.connect(database_url, row_factory=namedtuple_row) as connection:
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        rows = {name: connection.execute(query).fetchall() for name, query in QUERIES.items()}
    return Evidence(journal, effects, calls, stock_before, rows)
