"""Make a token for the API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser
from knox.models import get_token_model

from supervision.management.acting import find_user
from supervision.management.base import Command as Base
from supervision.management.base import at_least


class Command(Base):
    """The token is printed only now: the database keeps only its hash."""

    help = (
        "Make an API token for an account and print it, alone on the last line. It is shown this once: the database keeps "
        "its hash only. Use it as `Authorization: Token <token>`; revoke it in the admin."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", metavar="USER", help="the account's name")
        parser.add_argument("--days", type=at_least(1), metavar="N", help="until it expires (default: until revoked)")

    def handle(self, *args: Any, **options: Any) -> None:
        user = find_user(options["user"])
        if not user.is_active:
            raise CommandError(f"the account {options['user']!r} is not active")
        expiry = timedelta(days=options["days"]) if options["days"] else None
        _, token = get_token_model().objects.create(user=user, expiry=expiry)
        lasts = f"for {options['days']} days" if expiry else "until it is revoked"
        self.stderr.write(f"a token for {options['user']}, good {lasts}; it is not shown again:", style_func=str)
        self.stdout.write(token)
