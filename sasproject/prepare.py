"""Prepares the demo's database before the roles start: tables, products, accounts. Run as `python -m sasproject.prepare`.

One process does all of it, because starting Django costs more than the work. It may be repeated, and is quick then.
Its last line of output is a JSON object with the accounts, which the launcher shows.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from pathlib import Path

import django
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.migrations.executor import MigrationExecutor

from sasproject.apps import complete_database

# One account for each kind of visitor.
ACCOUNTS = {"customer": "customer", "shop": "client", "operator": "operator", "viewer": "viewer"}


def main() -> None:
    """Bring the database up to date and make the demo's data."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "sasproject.settings")
    django.setup()
    if pending_migrations():
        say("creating tables")
        call_command("migrate", interactive=False, verbosity=0)
    else:
        complete_database()  # the broker may have changed since the last start
    call_command("seed_catalogue")
    facts = {"accounts": ensure_accounts(settings.STATE_DIR / "accounts.json")}
    sys.stdout.write(json.dumps(facts) + "\n")


def pending_migrations() -> bool:
    """Whether `migrate` has something to do."""
    executor = MigrationExecutor(connections[DEFAULT_DB_ALIAS])
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def ensure_accounts(path: Path) -> dict[str, dict[str, str | None]]:
    """The demo's accounts. New ones get a random password, which is kept in `path`; an existing account keeps its password."""
    known: dict[str, str] = json.loads(path.read_text()) if path.is_file() else {}
    existing = set(get_user_model().objects.filter(username__in=ACCOUNTS).values_list("username", flat=True))
    for name, group in ACCOUNTS.items():
        if name not in existing:
            known[name] = f"demo-{secrets.token_hex(4)}"
            call_command("create_user", name, group=group, password=known[name])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(json.dumps(known))
    return {name: {"group": group, "password": known.get(name)} for name, group in ACCOUNTS.items()}


def say(text: str) -> None:
    """Progress, shown by the launcher."""
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
