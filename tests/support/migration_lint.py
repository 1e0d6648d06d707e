"""Finds what would hold up a running shop in a migration: its SQL, as `sqlmigrate` prints it, read by squawk.

A migration that has to do such a thing says why: `accepted = {"ban-drop-column": "no release since 0.1.0 reads it"}`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from django.db import connection
from django.db.migrations import Migration, RunPython
from django.db.migrations.loader import MigrationLoader

SQUAWK = Path(sys.executable).with_name("squawk")
# Rules about taste, and about SQL files that are run twice: Django records what it ran.
LEFT_OUT = ("prefer-bigint-over-int", "prefer-bigint-over-smallint", "prefer-text-field", "prefer-identity", "prefer-timestamp-tz")
LEFT_OUT += ("prefer-robust-stmts", "require-statement-timeout")

_LOCKING = r'(?:ALTER TABLE(?: IF EXISTS)?(?: ONLY)?|(?:CREATE|DROP) TRIGGER [^;]*? ON|LOCK(?: TABLE)?)\s+"?(\w+)"?'
_NEW = r'CREATE (?:UNLOGGED )?TABLE(?: IF NOT EXISTS)?\s+"?(\w+)"?'


def locked_by(statements: list[str]) -> set[str]:
    """The tables that were there before and that these statements lock against writers, where their text says so."""
    text = "\n".join(statements)
    return set(re.findall(_LOCKING, text, re.IGNORECASE)) - set(re.findall(_NEW, text, re.IGNORECASE))


def sql_of(migration: Migration, loader: MigrationLoader) -> list[str]:
    """The statements of a migration, or of one that would come after all others. Nothing is run."""
    key = (migration.app_label, migration.name)
    state = loader.project_state(key, at_end=False) if key in loader.graph.nodes else loader.project_state()
    with connection.schema_editor(collect_sql=True, atomic=migration.atomic) as editor:
        migration.apply(state, editor, collect_sql=True)
    return list(editor.collected_sql)


def findings(migration: Migration, loader: MigrationLoader) -> dict[str, str]:
    """What is wrong with the migration: rule -> reason."""
    statements = sql_of(migration, loader)
    found: dict[str, str] = {}
    if any("DROP DEFAULT" in statement for statement in statements):
        found["default-of-django-only"] = "code of the release before writes rows without the new column: give it a db_default"
    if not migration.atomic and len(migration.operations) > 1:
        found["one-operation-if-not-atomic"] = "a failure between two operations leaves what migrate cannot repeat"
    if not all(operation.reversible for operation in migration.operations):
        found["cannot-be-undone"] = "going back ends here: say how each operation is undone, or why it cannot be"
    if migration.atomic and len(locked_by(statements)) > 1:
        found["two-tables-in-one-transaction"] = (
            f"orders lock these tables in another order, which is a deadlock: {', '.join(sorted(locked_by(statements)))}"
        )
    if any(isinstance(operation, RunPython) for operation in migration.operations) and not migration.replaces:
        found["python-is-not-read"] = "say which rows the function writes, and how many in one transaction"
    if migration.atomic:
        statements.insert(0, "SET lock_timeout = '100ms';")  # as our `migrate` does
    command = [str(SQUAWK), "--reporter=json", "--pg-version=14", f"--exclude={','.join(LEFT_OUT)}", "--stdin-filepath=migration.sql"]
    command += ["--assume-in-transaction"] if migration.atomic else []
    answer = subprocess.run(command, input="\n".join(statements), capture_output=True, text=True, check=False)
    for finding in json.loads(answer.stdout):
        # This lock blocks neither reads nor writes. `migrate` waits for it without a limit outside of transactions.
        if not (finding["rule_name"] == "require-lock-timeout" and "SHARE UPDATE EXCLUSIVE" in finding["message"]):
            found[finding["rule_name"]] = finding["message"]
    accepted: dict[str, str] = getattr(migration, "accepted", {})
    return {rule: message for rule, message in found.items() if not accepted.get(rule)}
