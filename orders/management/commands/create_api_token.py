"""Make a token for the API."""

from __future__ import annotations

from typing import Any, cast

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from orders.identity import tokens
from orders.identity.tables import NAME_LENGTH, OPERATE, SCOPES
from supervision.management.acting import find_user
from supervision.management.base import Command as Base
from supervision.management.base import at_least


class Command(Base):
    """The token is printed only now: the database keeps only its hash."""

    help = (
        "Make an API token for an account and print it, alone on the last line. It is shown this once: the database keeps "
        "its hash only. Use it as `Authorization: Token <token>`. Its owner revokes it on the page of the account, an "
        "administrator in the console."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", metavar="USER", help="the account's name")
        parser.add_argument("--name", default="command", metavar="TEXT", help="what it is for, as its owner sees it (default: command)")
        parser.add_argument("--scope", default=OPERATE, choices=SCOPES, help="how much of the account's rights (default: all, operate)")
        ends = parser.add_mutually_exclusive_group()
        ends.add_argument("--days", type=at_least(1), metavar="N", help=f"until it expires (default: {settings.TOKEN_DAYS})")
        ends.add_argument("--forever", action="store_true", help="it does not expire")

    def handle(self, *args: Any, **options: Any) -> None:
        user = find_user(options["user"])
        if not user.is_active:
            raise CommandError(f"the account {options['user']!r} is not active")
        days = None if options["forever"] else options["days"] or settings.TOKEN_DAYS
        if len(options["name"]) > NAME_LENGTH:
            raise CommandError(f"--name has at most {NAME_LENGTH} characters")
        if not options["name"].isprintable():
            raise CommandError("--name has a control character, or one that turns the direction of text")
        token = tokens.issue(cast(User, user), name=options["name"], scope=options["scope"], days=days)
        lasts = f"for {days} days" if days else "until it is revoked"
        self.stderr.write(f"a token for {options['user']}, good {lasts}; it is not shown again:", style_func=str)
        self.stdout.write(token)
