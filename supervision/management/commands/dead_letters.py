"""Show dead letters, and requeue or discard them."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.utils.timezone import now

from supervision.deadletters.dead_letters import hex_dump
from supervision.errors import Refused
from supervision.management.acting import find_user
from supervision.management.base import Command as Base
from supervision.management.base import at_least
from supervision.models import DeadLetter
from supervision.operations import operator_verbs

VERBS = {"requeue": operator_verbs.requeue_dead_letter, "discard": operator_verbs.discard_dead_letter}
BYTES_SHOWN, TEXT_SHOWN = 1024, 16_384
PAST = {"requeue": "requeued", "discard": "discarded"}


class Command(Base):
    """list, show, requeue, discard."""

    help = (
        "Dead letters are messages and submissions that could not be read or used, kept byte for byte with the "
        "reason. `list` shows the open ones, `show ID` one with its body as text and as hexadecimal digits, "
        "`requeue ID... --reason TEXT` gives the same bytes back to where they came from, "
        "`discard ID... --reason TEXT` closes them for good."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", nargs="?", choices=("list", "show", *VERBS), default="list")
        parser.add_argument("ids", nargs="*", type=at_least(1), metavar="ID")
        parser.add_argument("--reason", help="why; required by requeue and discard, and kept")
        parser.add_argument("--by", metavar="USER", help="the account that decides (default: the command itself)")
        parser.add_argument("--all", action="store_true", help="list the resolved ones too")
        parser.add_argument("--limit", type=at_least(1), default=100, help="most rows of a list (default 100)")
        parser.add_argument("--raw", action="store_true", help="show: the exact bytes and nothing else")
        parser.add_argument("--json", action="store_true", help="JSON instead of text")

    def handle(self, *args: Any, **options: Any) -> None:
        action = options["action"]
        if action == "list":
            if options["ids"]:
                raise CommandError("list takes no ids: use show")
            self.list_letters(options)
        elif not options["ids"]:
            raise CommandError(f"{action} needs at least one id: see `dead_letters list`")
        elif action == "show":
            self.show_letters(options)
        else:
            self.decide(action, options)

    def list_letters(self, options: dict[str, Any]) -> None:
        """List the letters, newest first."""
        letters = DeadLetter.objects.order_by("-created_at", "-pk")
        if not options["all"]:
            letters = letters.filter(resolved_at__isnull=True)
        rows = list(letters[: options["limit"]])
        if options["json"]:
            self.say_json([facts(letter) for letter in rows])
            return
        if not rows:
            self.stdout.write("no open dead letters" if not options["all"] else "no dead letters")
            return
        columns = ("ID", "AT", "SOURCE", "ORDER", "BYTES", "RESOLUTION", "REASON")
        self.say_table(
            columns,
            [
                (
                    letter.pk,
                    letter.created_at,
                    letter.source,
                    letter.public_id,
                    len(letter.body),
                    letter.resolution or None,
                    letter.reason.splitlines()[0] if letter.reason else None,
                )
                for letter in rows
            ],
        )

    def show_letters(self, options: dict[str, Any]) -> None:
        """Show everything about each letter, the body last."""
        letters = [self.find(pk) for pk in options["ids"]]
        if options["raw"]:
            if len(letters) != 1:
                raise CommandError("--raw shows one dead letter at a time")
            out = getattr(self.stdout, "buffer", None)
            if out is None:
                raise CommandError("--raw needs an output that takes bytes")
            out.write(bytes(letters[0].body))
            return
        if options["json"]:
            self.say_json([facts(letter) | {"body": readable(letter)} for letter in letters])
            return
        for letter in letters:
            for name, value in facts(letter).items():
                self.stdout.write(f"{name}: {value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)}")
            body = bytes(letter.body)
            self.stdout.write(f"body:\n{printable(readable(letter))}\n")
            self.stdout.write(f"bytes:\n{hex_dump(body[:BYTES_SHOWN])}")
            if len(body) > BYTES_SHOWN:
                self.stdout.write(f"and {len(body) - BYTES_SHOWN} more: --raw gives them all")

    def decide(self, action: str, options: dict[str, Any]) -> None:
        """Requeue or discard each letter. A refused letter does not stop the others."""
        reason = (options["reason"] or "").strip()
        if not reason:
            raise CommandError(f"{action} needs --reason TEXT")
        by: Any = find_user(options["by"]) if options["by"] else "command"
        failed = 0
        for pk in options["ids"]:
            try:
                self.find(pk)
                VERBS[action](pk, by=by, reason=reason)
            except (CommandError, Refused) as problem:
                failed += 1
                self.stderr.write(f"{pk}: {problem}")
            else:
                self.stdout.write(f"{pk}: {PAST[action]}")
        if failed:
            raise CommandError(f"{failed} of {len(options['ids'])} not {PAST[action]}")

    def find(self, pk: int) -> DeadLetter:
        """The dead letter of this id."""
        try:
            return DeadLetter.objects.get(pk=pk)
        except DeadLetter.DoesNotExist:
            raise CommandError(f"no dead letter {pk}: see `dead_letters list --all`") from None


def facts(letter: DeadLetter) -> dict[str, Any]:
    """The letter's fields for a list or a script, without its body."""
    return {
        "id": letter.pk,
        "source": letter.source,
        "order": letter.public_id,
        "reason": letter.reason,
        "content_type": letter.content_type,
        "headers": letter.headers,
        "delivery": letter.delivery,
        "deliveries": letter.deliveries,
        "bytes": len(letter.body),
        "created_at": letter.created_at,
        "age_seconds": round((now() - letter.created_at).total_seconds()),
        "resolved_at": letter.resolved_at,
        "resolution": letter.resolution,
    }


def printable(text: str) -> str:
    """The text with every control character escaped except line ends and tabs, so that a terminal obeys none."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else sign.encode("unicode_escape").decode() for sign in text[:TEXT_SHOWN])


def readable(letter: DeadLetter) -> str:
    """The body as text, every byte that is not UTF-8 escaped; `show --raw` gives the bytes themselves."""
    return bytes(letter.body).decode("utf-8", "backslashreplace")
