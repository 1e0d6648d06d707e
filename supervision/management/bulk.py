"""Operators' verbs for all orders that filters find: `--where`, as a job in the background, or with `--wait` in this process."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import CommandError, CommandParser

from supervision.insight import directory
from supervision.insight.filters import BadFilter
from supervision.jobs import reading, selection, steering, working
from supervision.management.acting import OperatorCommand, actor
from supervision.management.base import Command
from supervision.management.filtering import SHORT, in_one_line, since, where
from supervision.management.planned import add_plan_version, check_plan_version, say_plan
from supervision.management.progress import Progress
from supervision.models import Job
from supervision.outbox.incident_mail import amounts

REASON = "the following arguments are required: --reason"
_LONG = {short.removeprefix("--"): name for name, words in SHORT.items() for short in words}


class BulkCommand(OperatorCommand):
    """A verb for the orders that are named, or for all that `--where` finds."""

    verb: str
    most_ids, asks_reason = "*", False

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add_plan_version(parser)
        group = parser.add_argument_group("many orders")
        names = ", ".join([*directory.current().filters.fields, "since"])
        group.add_argument(
            "--where", action="append", metavar="FILTERS",
            help=f'all orders that fit, as a job: "error_code=card_declined since=1h"; may be repeated; names: {names}',
        )  # fmt: skip
        group.add_argument("--dry-run", action="store_true", help="only say what would be done, to one order or with --where")
        group.add_argument("--wait", action="store_true", help="with --where: work on the job here and show its progress")

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parse = parser.parse_args

        def parse_args(args: Sequence[str] | None = None, namespace: Any = None) -> Any:
            options = parse(args, namespace)
            if parser.called_from_command_line and options.reason is None and not options.dry_run:
                parser.error(REASON)  # before the database is asked
            return options

        parser.parse_args = parse_args  # type: ignore[method-assign, assignment]
        return parser

    def handle(self, *args: Any, **options: Any) -> None:
        if options["reason"] is None and not options["dry_run"]:
            raise CommandError(REASON)
        if not options["where"]:
            if options["wait"]:
                raise CommandError("--wait goes with --where")
            if not options["ids"]:
                raise CommandError("give orders' IDs, or --where FILTERS")
            check_plan_version(options)
            if options["dry_run"]:
                self.say_one(options)
            else:
                self.one_by_one(*args, **options)
            return
        if apart := [word for word in options["ids"] if "=" in word]:
            raise CommandError(f'all filters are one word of the shell: --where "{" ".join([*options["where"], *apart])}"')
        if options["ids"]:
            raise CommandError("give orders' IDs or --where FILTERS, not both")
        given = given_where(options["where"])
        self.check_bulk(options)
        try:
            self._many(given, options)
        except BadFilter as bad:
            raise in_one_line(bad) from bad

    def one_by_one(self, *args: Any, **options: Any) -> None:
        """Act on the orders that are named."""
        super().handle(*args, **options)

    def say_one(self, options: Mapping[str, Any]) -> None:
        """Print what the verb would do to the order that is named, with the version of the plan."""
        if len(options["ids"]) > 1:
            raise CommandError("--dry-run shows the plan of one order: give a single ID with it")
        say_plan(self, options["ids"][0], self.verb, as_json=options["json"])

    def check_bulk(self, options: Mapping[str, Any]) -> None:
        """Raise CommandError where an option does not go with `--where`."""
        if options["plan_version"] is not None:
            raise CommandError("--plan-version belongs to one order: it does not go with --where")
        if options.get("step"):
            raise CommandError("--step does not go with --where: say step=NAME in it")

    def changes(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Corrections to every order."""
        return {}

    def _many(self, given: Mapping[str, str], options: Mapping[str, Any]) -> None:
        if options["dry_run"]:
            shown = selection.preview(self.verb, selection.by_filter(given), self.changes(options))
            self._say_preview(shown, options)
            return
        by, reason = actor(dict(options))
        job = steering.start(self.verb, given, by=by, reason=reason, changes=self.changes(options))
        if options["wait"]:
            job = work_off(self, job)
        if options["json"]:
            self.say_json(reading.facts(job))
            return
        said = f"job {job.pk}: {self.verb} of {job.total} orders"
        self.stdout.write(f"{said} is done: {job.done} done, {job.failed} not done" if options["wait"] else f"{said} is started")
        self.stdout.write(f"manage.py jobs {job.pk}")

    def _say_preview(self, shown: selection.Preview, options: Mapping[str, Any]) -> None:
        if options["json"]:
            self.say_json(reading.preview_facts(shown))
            return
        self.stdout.write(f"{self.verb}: {shown.orders} orders, {amounts(list(shown.held)) or 'no money'}; nothing was done")
        if shown.left_out:
            self.stdout.write(f"{shown.left_out} more fit, but cannot be treated so now")
        if shown.differ:
            key = ("KEY",) if self.verb == "resubmit" else ()
            rows = []
            for group in shown.differ[: selection.MOST_GROUPS]:
                reused = ("same" if group.key_reused else "new",) if key else ()
                steps, version = ", ".join(group.steps) or "-", f"{group.workflow} {group.version}"
                held = amounts(list(group.held))
                rows.append((group.orders, version, group.process_state, steps, *reused, group.error_code or "-", held))
            self.say_table(("ORDERS", "WORKFLOW", "STATE", "STEPS", *key, "ERROR", "HELD"), rows)


def given_where(texts: Sequence[str]) -> dict[str, str]:
    """The filters of `--where`; the short names of the options of `orders`, and `since`, are known too."""
    try:
        given = where([word for text in texts for word in shlex.split(text)])
    except ValueError as problem:
        raise CommandError(f"--where: {problem}") from None
    named = {_LONG.get(name, name.replace("-", "_")): value for name, value in given.items()}
    if "since" in named:
        if "created_after" in named:
            raise CommandError("--where: give since or created_after, not both")
        named["created_after"] = since(named.pop("since"))
    return named


def work_off(command: Command, job: Job) -> Job:
    """Work on jobs in this process until this one rests, with its progress; returns it as it is then."""
    with Progress(job.total, f"job {job.pk}", stream=command.stderr) as progress:
        while job.state == Job.State.RUNNING:
            working.turn(seconds=1.0, rest=0.0)
            job.refresh_from_db()
            progress.advance(job.position - progress.done)
    return job
