"""Run an order's failed step again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandError, CommandParser

from supervision.management.base import at_least
from supervision.management.bulk import BulkCommand
from supervision.management.planned import say_plan
from supervision.operations import operator_verbs, resuming


class Command(BulkCommand):
    """The failed step runs again; the steps that are done stay done."""

    verb = "resubmit"
    help = (
        "Run the failed step of orders in Error again, once the cause of the failure is removed. Steps that are done are "
        "kept. The step keeps its idempotency key while its effect is unknown, so that the service cannot do it twice. "
        "--new-generation takes a new key: use it only after you have looked at the service."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--attempt", type=at_least(0), metavar="N", help="only if the step is still at the attempt you saw")
        parser.add_argument("--step", metavar="NAME", help="only this failed step, where several branches of an order have failed")
        parser.add_argument(
            "--from",
            dest="earlier",
            metavar="NAME",
            help="go on from this earlier step: it and all that came after it are undone first, and then done anew under new keys",
        )
        parser.add_argument("--amend", metavar="JSON", help="corrected fields of the payload, which the failed step names as `amendable`")
        parser.add_argument("--new-generation", action="store_true", help="use a new idempotency key: the service sees a new request")

    def one_by_one(self, *args: Any, **options: Any) -> None:
        if options["attempt"] is not None and len(options["ids"]) > 1:
            raise CommandError("--attempt belongs to one order: give a single ID with it")
        if options["amend"] is not None:
            if len(options["ids"]) > 1:
                raise CommandError("--amend belongs to one order: give a single ID with it")
            options["amend"] = _an_object(options["amend"])
        if options["earlier"] and options["amend"] is not None:
            raise CommandError(
                "--from and --amend are done one after the other: `manage.py pause --order ID`, `manage.py resubmit ID --amend JSON`, "
                "`manage.py resubmit ID --from STEP`, `manage.py resume --order ID`"
            )
        if options["earlier"] and (options["step"] or options["new_generation"] or options["attempt"] is not None):
            raise CommandError("--from goes with none of --step, --attempt and --new-generation")
        super().one_by_one(*args, **options)

    def say_one(self, options: Mapping[str, Any]) -> None:
        if not options["earlier"]:
            super().say_one(options)
            return
        if len(options["ids"]) > 1:
            raise CommandError("--dry-run shows the plan of one order: give a single ID with it")
        say_plan(self, options["ids"][0], "resume", step=options["earlier"], as_json=options["json"])

    def check_bulk(self, options: Mapping[str, Any]) -> None:
        super().check_bulk(options)
        if options["earlier"] or options["new_generation"] or options["attempt"] is not None:
            raise CommandError("--from, --new-generation and --attempt are about one order: they do not go with --where")

    def changes(self, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return {} if options["amend"] is None else _an_object(options["amend"])

    def act(self, key: str, *, by: Any, reason: str, options: dict[str, Any]) -> str:
        if options["earlier"]:
            return resuming.resume_from(key, options["earlier"], by=by, reason=reason, plan_version=options["plan_version"])
        seen = {name: options[name] for name in ("attempt", "step", "new_generation", "amend", "plan_version")}
        return operator_verbs.resubmit(key, by=by, reason=reason, **seen)


def _an_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise CommandError(f"--amend: expected a JSON object: {problem}") from None
    if not isinstance(found, dict):
        raise CommandError("--amend: expected a JSON object")
    return found
