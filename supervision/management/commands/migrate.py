"""Django's `migrate`, safe beside running roles: short waits for locks, interrupted ones repeated, nothing deleted unasked."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.apps import apps as installed
from django.core.management.base import CommandError, CommandParser
from django.core.management.commands import migrate
from django.db import IntegrityError, OperationalError, connections
from django.db.migrations import Migration
from django.db.models.signals import pre_migrate
from psycopg.errors import DeadlockDetected, LockNotAvailable

from supervision.management.migrating import going_back, locking, together, unfinished
from supervision.postgres.params import own_session

AGAIN_SECONDS = 1.0


class Command(migrate.Command):
    """A statement that waits for a lock holds up every later statement on its table: so it gives up after `--lock-timeout`.

    The migration is rolled back then, and `migrate` tries again. The statements of a migration are sent together at its end. A
    migration that is not atomic waits without a limit: it has one operation (`CREATE INDEX CONCURRENTLY`), which blocks no statement
    while it waits. Where an earlier try of it was cut off, the index is dropped first. A second `migrate` waits for the first. Going
    back to an older migration is refused while that would delete rows or values, unless `--lose-data` is given.
    """

    def add_arguments(self, parser: CommandParser) -> None:
        """Django's options, and how long and how often to wait, and whether rows may be lost."""
        super().add_arguments(parser)
        parser.add_argument("--lock-timeout", type=float, default=0.1, metavar="SECONDS", help="most seconds to wait for a lock (0.1)")
        parser.add_argument("--lock-tries", type=int, default=60, metavar="N", help="how often to try to get the locks (60)")
        parser.add_argument("--lose-data", action="store_true", help="going back: delete what only the newer tables hold")

    def handle(self, *args: Any, **options: Any) -> None:
        """Migrate; after a lock timeout wait a second and repeat what is left."""
        self._database, self._seconds, self._current = options["database"], options["lock_timeout"], ""
        with own_session():
            if options["plan"] or options["check_unapplied"]:
                super().handle(*args, **options)
                return
            connection = connections[self._database]
            together.let_send_together(connection, self._seconds)
            with locking.alone(connection, self.stderr.write), self._nothing_lost_unasked(options["lose_data"]):
                self._migrate(*args, **options)

    def _migrate(self, *args: Any, **options: Any) -> None:
        for left in reversed(range(max(1, options["lock_tries"]))):
            try:
                self._limit(self._seconds)
                super().handle(*args, **options)
            except OperationalError as error:
                if not isinstance(error.__cause__, LockNotAvailable | DeadlockDetected):
                    raise
                waited = f"no lock within {self._seconds:g} s, this migration is rolled back: {str(error).splitlines()[0]}"
                if not left:
                    hint = "End the transactions that hold it (pg_stat_activity, pg_locks), then run migrate again."
                    raise CommandError(f"{waited}. {hint}") from error
                self.stderr.write(f"\n{waited}; trying again ({left} left)")
                locking.end_autovacuums(connections[self._database])
                time.sleep(AGAIN_SECONDS)
            except IntegrityError as error:
                if not self._current:
                    raise
                said = str(error).strip().replace("\n", "; ")
                raise CommandError(f"{self._current} cannot be undone: rows do not fit the older tables. {said}") from error
            else:
                return
            finally:
                self._limit(0)

    @contextmanager
    def _nothing_lost_unasked(self, agreed: bool) -> Iterator[None]:
        """Let Django's signal before the first migration look at the plan. agreed: whether data may be lost."""

        def look(using: str, plan: Any, apps: Any, **_: Any) -> None:
            lost = [] if agreed else going_back.lost(connections[using], plan, apps)
            if lost:
                raise CommandError(going_back.refusal(lost))

        sender = installed.get_app_config("supervision")  # the signal comes once for each app
        pre_migrate.connect(look, sender=sender, weak=False, dispatch_uid="supervision.migrate")
        try:
            yield
        finally:
            pre_migrate.disconnect(sender=sender, dispatch_uid="supervision.migrate")

    def migration_progress_callback(self, action: str, migration: Migration | None = None, fake: bool = False) -> None:
        """Set the limit for the migration that begins, and drop what an earlier try of it has left unfinished."""
        if action in ("apply_start", "unapply_start") and migration is not None:
            self._current = str(migration) if action == "unapply_start" else ""
            if not migration.atomic and not fake:
                self._limit(0)
                for index in unfinished.drop(connections[self._database], migration, backwards=action == "unapply_start"):
                    self.stderr.write(f"dropped the index {index}, which an earlier migrate did not finish")
            self._limit(self._seconds if migration.atomic else 0)
        super().migration_progress_callback(action, migration, fake)

    def _limit(self, seconds: float) -> None:
        with connections[self._database].cursor() as cursor:
            cursor.execute("SELECT set_config('lock_timeout', %s, false)", [f"{int(seconds * 1000)}ms"])
