"""Django's `migrate`, safe beside running roles: it waits only briefly for a lock, and then tries again."""

from __future__ import annotations

import time
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.core.management.commands import migrate
from django.db import OperationalError, connections
from django.db.migrations import Migration
from psycopg.errors import LockNotAvailable

from supervision.postgres.params import own_session


class Command(migrate.Command):
    """A statement that waits for a lock holds up every later statement on its table: so it gives up after `--lock-timeout`.

    The migration is rolled back then, and `migrate` tries again. A migration that is not atomic waits without a limit: it has one
    operation (`CREATE INDEX CONCURRENTLY`), which blocks no statement while it waits, and would leave an invalid index if it gave up.
    """

    def add_arguments(self, parser: CommandParser) -> None:
        """Django's options, and how long and how often to wait."""
        super().add_arguments(parser)
        parser.add_argument("--lock-timeout", type=float, default=3.0, metavar="SECONDS", help="most seconds to wait for a lock (3)")
        parser.add_argument("--lock-tries", type=int, default=20, metavar="N", help="how often to try to get the locks (20)")

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate; after a lock timeout wait as long again and repeat what is left."""
        self._database, self._seconds = options["database"], options["lock_timeout"]
        with own_session():
            self._migrate(*args, **options)

    def _migrate(self, *args: Any, **options: Any) -> None:
        for left in reversed(range(max(1, options["lock_tries"]))):
            try:
                self._limit(self._seconds)
                super().handle(*args, **options)
            except OperationalError as error:
                if not isinstance(error.__cause__, LockNotAvailable):
                    raise
                waited = f"no lock within {self._seconds:g} s, this migration is rolled back: {str(error).splitlines()[0]}"
                if not left:
                    hint = "End the transactions that hold it (pg_stat_activity, pg_locks), then run migrate again."
                    raise CommandError(f"{waited}. {hint}") from error
                self.stderr.write(f"\n{waited}; trying again ({left} left)")
                time.sleep(self._seconds)
            else:
                return
            finally:
                self._limit(0)

    def migration_progress_callback(self, action: str, migration: Migration | None = None, fake: bool = False) -> None:
        """Set the limit for the migration that begins."""
        if action == "apply_start" and migration is not None:
            self._limit(self._seconds if migration.atomic else 0)
        super().migration_progress_callback(action, migration, fake)

    def _limit(self, seconds: float) -> None:
        with connections[self._database].cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, false)", [f"{int(seconds * 1000)}ms"])
