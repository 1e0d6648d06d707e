"""Export a person's data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from orders.privacy import exporting, people
from supervision.management.base import Command as Base


class Command(Base):
    """Writes everything that is held about a person, and no other person's data, into one file."""

    help = (
        "Write a ZIP with everything that is held about a person: data.json, and invoices and credit notes as PDF. The file is readable "
        "by its owner alone, and an existing file is not overwritten."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        who = parser.add_mutually_exclusive_group(required=True)
        who.add_argument("--email", metavar="ADDRESS", help="the person with this mail address: account and orders of a guest")
        who.add_argument("--account", metavar="NAME", help="the person with the account of this username")
        parser.add_argument("--order", metavar="ID", help="this order alone, by its public id")
        parser.add_argument("--output", required=True, metavar="FILE", help="where to write the ZIP")

    def handle(self, *args: Any, **options: Any) -> None:
        person = people.by_account(options["account"]) if options["account"] else people.by_email(options["email"])
        if person.accounts and not exporting.may_read():
            raise CommandError("this database role may not read accounts: use that of web, or the owner")
        path = Path(options["output"])
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except OSError as problem:
            raise CommandError(f"--output: {path} cannot be written: {problem.strerror}") from None
        try:
            with os.fdopen(descriptor, "wb") as out:
                count = exporting.write(person, out, order=options["order"])
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        if options["order"] and not count:
            path.unlink()
            raise CommandError(f"--order: {options['order']} is no order of this person")
        self.stdout.write(f"{path}: {count} orders")
