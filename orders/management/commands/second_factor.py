"""Show an account's second factors, or end them for an operator who has lost them all."""

from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
from django.contrib.auth.models import User
from django.core.management.base import CommandError, CommandParser

from orders.factors import resetting
from supervision.management.acting import shell_user
from supervision.management.base import Command as Base


class Command(Base):
    """Shows or resets second factors."""

    help = (
        "Show the second factors of an account. With --reset: delete them and its recovery codes, and end its sessions. "
        "Where CONSOLE_SECOND_FACTOR is `required`, the account enrols a new one after its next password: make sure who asks, "
        "and think of a new password, too (changepassword). API tokens stay as they are."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", metavar="USER", help="the account's username")
        parser.add_argument("--reset", action="store_true", help="delete them, and end the account's sessions")
        parser.add_argument("--reason", default="", metavar="TEXT", help="why; kept in the admin's log of the account")
        parser.add_argument("--by", default="", metavar="NAME", help="who resets, kept with the reason; by default the shell's user")

    def handle(self, *args: Any, **options: Any) -> None:
        account = User.objects.filter(username=options["user"]).first()
        if account is None:
            raise CommandError(f"there is no account named {options['user']!r}")
        if not options["reset"]:
            if options["reason"]:
                raise CommandError("--reason belongs to --reset")
            for one in Authenticator.objects.filter(user_id=account.pk).order_by("pk"):
                used = f"{one.last_used_at:%Y-%m-%d %H:%M} UTC" if one.last_used_at else "never"
                self.stdout.write(f"{one.type}: since {one.created_at:%Y-%m-%d}, last used {used}")
            return
        if not options["reason"].strip():
            raise CommandError("--reset needs --reason TEXT: it is kept in the admin's log")
        done = resetting.reset(account, by=options["by"] or shell_user(), reason=options["reason"].strip())
        self.stdout.write(f"{account}: {done.factors} second factors deleted, {done.sessions} sessions ended")
