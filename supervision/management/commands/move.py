"""Let orders go on with a newer version of their workflow."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from supervision.errors import Refused, UnknownRun
from supervision.management.acting import OperatorCommand, actor
from supervision.management.base import at_least
from supervision.management.planned import add_plan_version, check_plan_version
from supervision.operations import moving


class Command(OperatorCommand):
    """Steps that have begun are kept; the others are planned again."""

    help = (
        "Let orders go on with a newer version of their workflow: the orders that are named, or with --workflow and --from all "
        "unfinished ones of a version. What has begun is kept, what has not begun is planned again. An order whose steps do not "
        "agree with the new version, or of which a step is running, is refused with the reason and stays as it is. --dry-run "
        "shows the plan and changes nothing."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        next(action for action in parser._actions if action.dest == "ids").nargs = "*"
        parser.add_argument("--to", type=at_least(1), metavar="VERSION", help="the version; without it, the newest")
        parser.add_argument("--workflow", metavar="NAME", help="all unfinished orders of this workflow, with --from")
        parser.add_argument("--from", type=at_least(1), dest="old", metavar="VERSION", help="the version that they have now")
        add_plan_version(parser)
        parser.add_argument("--dry-run", action="store_true", help="say what would be done and change nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        if bool(options["ids"]) == bool(options["workflow"]) or bool(options["workflow"]) != bool(options["old"]):
            raise CommandError("give the orders' IDs, or --workflow NAME with --from VERSION")
        check_plan_version(options)
        if options["workflow"]:
            self._all(options)
        else:
            super().handle(*args, **options)

    def act(self, key: str, *, by: Any, reason: str, options: dict[str, Any]) -> str:
        if not options["dry_run"]:
            return moving.move(key, by=by, reason=reason, version=options["to"], plan_version=options["plan_version"])
        plan = moving.plan(key, options["to"])
        if plan.refusals:
            raise Refused(" ".join(plan.refusals), "not_movable")
        steps = ", ".join(step.name if step.action == "run" else f"{step.action} {step.name}" for step in plan.steps)
        return f"would move: {steps}; version of the plan: {plan.version}"

    def _all(self, options: dict[str, Any]) -> None:
        by, reason = actor(options)
        moved = refused = 0
        keys = moving.runs_of(options["workflow"], options["old"])
        try:
            with self.progress(moving.count_of(options["workflow"], options["old"]), "orders") as progress:
                for one in moving.move_many(keys, by=by, reason=reason, version=options["to"], dry_run=options["dry_run"]):
                    moved, refused = moved + (not one.code), refused + bool(one.code)
                    self._tell(one, options)
                    progress.advance()
        except (Refused, UnknownRun) as problem:
            raise CommandError(str(problem)) from None
        if not options["json"]:
            self.stdout.write(f"{moved} {'would move' if options['dry_run'] else 'moved'}, {refused} refused")
        if refused:
            raise CommandError(f"{refused} of {moved + refused} refused")

    def _tell(self, one: moving.Moved, options: dict[str, Any]) -> None:
        if options["json"]:
            state = {"error": one.code, "message": one.message} if one.code else {"process_state": one.state}
            self.say_json({"id": one.key, **state})
        elif one.code:
            self.stderr.write(f"{one.key}: {one.message}")
