"""Encrypt the secrets that the database holds under the newest key."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from supervision.management.base import Command as Base
from supervision.sealing import rows

EPILOG = """
A new key: put it behind the present one in FIELD_ENCRYPTION_KEYS and restart every role; then put it in front, restart again, run
this command, and take the old key out. Secrets from before the encryption are encrypted by it as well: run it once every
process runs the new version. It may run beside everything, be killed, and be repeated.
"""


class Command(Base):
    """Encrypts stored secrets again, or counts them."""

    help = (
        "Encrypt the secrets of webhooks, channels and second factors under the first key of FIELD_ENCRYPTION_KEYS; without one, under "
        "SECRET_KEY. Exit code 1 if a secret cannot be decrypted."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.epilog = EPILOG
        parser.add_argument("--check", action="store_true", help="count them, and change nothing")

    def handle(self, *_: Any, check: bool, **options: Any) -> None:
        found = list(rows.stores())
        if missing := [place for place, _store in found if not rows.allowed(place, "SELECT" if check else "SELECT, UPDATE")]:
            raise CommandError(f"this database role may not {'read' if check else 'change'} {missing[0]}: use that of web, or the owner")
        lost = 0
        for place, store in found:
            count = rows.look(store) if check else rows.seal_again(store)
            done = "" if check else ", encrypted now"
            self.stdout.write(f"{place}: {count.all} secrets; {count.plain} in plain text{done}; {count.older} under an older key{done}")
            for pk, reason in count.unreadable.items():
                self.stdout.write(f"{place} {pk}: {reason}")
            lost += len(count.unreadable)
        if lost:
            raise CommandError(
                f"{lost} secrets cannot be decrypted: add their keys to FIELD_ENCRYPTION_KEYS, or give these rows new secrets"
            )
