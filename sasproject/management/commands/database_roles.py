"""Make the database's roles and grant their rights, or print the SQL that would."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db import connection, transaction
from psycopg import sql

from sasproject import database_roles
from supervision.management.base import Command as Base


class Command(Base):
    """Prints the statements; with `--apply` executes them in one transaction. Repeating it changes nothing."""

    help = (
        "Roles of the database: PREFIX_migrate owns the schema, PREFIX_web, PREFIX_worker and PREFIX_read get the rights that they need. "
        "Prints the SQL; --apply executes it. Run it as a superuser, or as the owner of the database with CREATEROLE. "
        "docs/operations.md, 'Database roles', explains the steps."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--apply", action="store_true", help="execute the statements in one transaction, instead of printing them")
        parser.add_argument("--prefix", help="the roles' names begin with it (default: that of the roles in use, else sas)")
        parser.add_argument(
            "--passwords",
            type=Path,
            metavar="DIR",
            help="with --apply: set each role's password to the text of the file DIR/ROLE; a file that is missing is made",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["passwords"] and not options["apply"]:
            raise CommandError("--passwords needs --apply: passwords are not printed")
        with transaction.atomic(), connection.cursor() as cursor:
            prefix = options["prefix"] or database_roles.prefix_in_use(cursor) or database_roles.DEFAULT_PREFIX
            if not re.fullmatch(r"[a-z][a-z0-9_]{0,40}", prefix):
                raise CommandError(f"--prefix: expected small letters, digits and _, a letter first, at most 41, not {prefix!r}")
            statements = list(database_roles.statements(cursor, prefix))
            if not options["apply"]:
                self.stdout.write("BEGIN;")
                for statement in statements:
                    self.stdout.write(f"{statement.as_string(cursor.connection)};")
                self.stdout.write("COMMIT;")
                return
            for statement in statements:
                cursor.execute(statement)
            if options["passwords"]:
                self._set_passwords(cursor, prefix, options["passwords"])
        roles = ", ".join(database_roles.name(prefix, role) for role in database_roles.ROLES)
        self.stdout.write(f"{len(statements)} statements executed. Roles: {roles}")

    def _set_passwords(self, cursor: Any, prefix: str, folder: Path) -> None:
        """Only the digest of a password travels to the server, so that none is in its log."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for role in database_roles.ROLES:
                name = database_roles.name(prefix, role)
                file = folder / name
                if not file.exists():
                    file.touch(mode=0o600)
                    file.write_text(f"{secrets.token_urlsafe(24)}\n")
                if not (password := file.read_text().strip()):
                    raise CommandError(f"--passwords: {file} is empty, expected a password")
                digest = cursor.connection.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256").decode()
                cursor.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(name), sql.Literal(digest)))
        except OSError as problem:
            raise CommandError(f"--passwords: {problem}") from problem
