"""Erase a person's data."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandError, CommandParser

from orders.models import Erasure
from orders.privacy import again, erasing, people
from orders.privacy.people import Person
from supervision.management.acting import actor
from supervision.management.base import Command as Base


class Command(Base):
    """Plans, begins, and works until the erasure is done or waits. The supervisor's role goes on with what is left."""

    help = (
        "Erase a person's data. First look at the plan: --dry-run. Orders keep their lines, totals, VAT and country, and invoices stay "
        "as long as the law asks. An erasure may be killed at any moment: the supervisor's role goes on. --list prints the hashes of "
        "all erased addresses: keep it beside the backups. --again FILE repeats these erasures after a restore."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        who = parser.add_mutually_exclusive_group(required=True)
        who.add_argument("--email", metavar="ADDRESS", help="the person with this mail address: account and orders of a guest")
        who.add_argument("--account", metavar="NAME", help="the person with the account of this username")
        who.add_argument("--list", action="store_true", help="print the hashes of all erased addresses, one a line")
        who.add_argument("--again", metavar="FILE", help="erase again everyone whose hash is in this file (-: standard input)")
        parser.add_argument("--reason", metavar="TEXT", help="why; kept with the erasure")
        parser.add_argument("--dry-run", action="store_true", help="say what would be done, and change nothing")
        parser.add_argument("--when-ended", action="store_true", help="do not refuse while orders run: erase them when they have ended")
        parser.add_argument("--by", metavar="USER", help="the account that acts (default: the shell's user)")
        parser.add_argument("--json", action="store_true", help="one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["list"]:
            for line in again.listed():
                self.stdout.write(line)
            return
        if not options["dry_run"] and not (options["reason"] or "").strip():
            raise CommandError("--reason TEXT is needed: why the person is erased")
        if options["again"]:
            self._again(options)
            return
        person = people.by_account(options["account"]) if options["account"] else people.by_email(options["email"])
        planned = erasing.plan(person)
        if options["dry_run"]:
            self._say(options, asdict(planned), _in_words(planned))
            return
        _confirm_rights([person])
        by, reason = actor(options)
        erasure = erasing.begin(person, by=by, reason=reason, when_ended=options["when_ended"])
        self._work(erasure, options)

    def _again(self, options: dict[str, Any]) -> None:
        try:
            lines = sys.stdin.readlines() if options["again"] == "-" else open(options["again"], encoding="utf-8").readlines()  # noqa: SIM115
        except (OSError, UnicodeDecodeError) as problem:
            raise CommandError(f"--again: {options['again']} cannot be read: {problem}") from None
        found, left = again.found([line.strip() for line in lines if line.strip()])
        if options["dry_run"]:
            self._say(options, {"persons": len(found)}, f"{len(found)} persons of the list are in the database again")
        else:
            _confirm_rights(found)
            by, reason = actor(options)
            for person in found:
                self._work(erasing.begin(person, by=by, reason=reason, when_ended=True), options)
            if not found and not left:
                self._say(options, {"persons": 0}, "no person of the list is in the database")
        if left:
            raise CommandError(
                f"not erased, because these accounts are no customers': {', '.join(left)}. Take away their rights, and repeat the command"
            )

    def _work(self, erasure: Erasure, options: dict[str, Any]) -> None:
        able = erasing.may_work()
        while able and erasing.work(erasure.pk, 60.0):
            erasure.refresh_from_db()
            self.stderr.write(f"erasure {erasure.pk}: {erasing.progress(erasure)}", style_func=str)
        erasure.refresh_from_db()
        facts = {"erasure": erasure.pk, "state": erasure.state, "step": erasure.step, "waits": erasure.waits or 0, "rows": erasure.counts}
        left = "" if able else "; the supervisor's role does the rest"
        self._say(options, facts, f"erasure {erasure.pk}: {erasing.progress(erasure)}{left}")

    def _say(self, options: dict[str, Any], facts: dict[str, Any], words: str) -> None:
        if options["json"]:
            self.say_json(facts)
        else:
            self.stdout.write(words)


def _confirm_rights(persons: Sequence[Person]) -> None:
    """Refuse before anything is changed if this process's database role may not close the accounts of these persons."""
    if any(person.accounts for person in persons) and not erasing.may_close():
        raise CommandError("this database role may not close accounts: use that of web, or the owner")


def _in_words(planned: erasing.Plan) -> str:
    lines = [
        f"orders: {planned.orders}, of which {planned.waiting} have not ended",
        f"accounts closed: {planned.accounts}, with {planned.addresses} saved addresses",
        f"orders of other people that lose the mail address: {planned.named_in}",
        "dead letters that name the person are blanked; an open one is settled by it",
    ]
    if planned.documents:
        lines.append(f"kept by law: {planned.documents} invoices and credit notes, until the end of {planned.documents_until}")
    if planned.under_way:
        lines.append(f"under way already: erasure {planned.under_way}")
    return "\n".join(lines)
