"""Show bulk jobs; stop one, let it go on, or end it."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandError, CommandParser

from supervision.jobs import reading, steering
from supervision.jobs.acting import in_words
from supervision.management.acting import actor
from supervision.management.base import Command as Base
from supervision.management.base import at_least
from supervision.management.bulk import work_off
from supervision.models import Job, JobResult


class Command(Base):
    """Lists jobs, or shows one with the orders that were not done."""

    help = (
        "List the bulk jobs, the newest first, or show one with what became of its orders. `resubmit --where ...` and its like "
        "start jobs. --stop lets a job rest after the batch under way; --resume lets it go on with the orders that are left, and --end "
        "leaves these as they are."
    )
    moves_orders = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", nargs="?", type=at_least(1), metavar="ID", help="show this job")
        group = parser.add_mutually_exclusive_group()
        group.add_argument("--stop", action="store_true", help="stop it; with --reason")
        group.add_argument("--resume", action="store_true", help="let it go on; with --reason")
        group.add_argument("--end", action="store_true", help="end it, once it is stopped; with --reason")
        parser.add_argument("--reason", metavar="TEXT", default="", help="why; kept")
        parser.add_argument("--by", metavar="USER", help="the account that acts (default: the shell's user)")
        parser.add_argument("--wait", action="store_true", help="work on the job here until it rests, and show its progress")
        parser.add_argument("--outcome", choices=JobResult.Outcome.values, help="list orders with this result (default: those not done)")
        parser.add_argument("--again", action="store_true", help="list the orders that it set going and that are in Error now")
        parser.add_argument("--limit", type=at_least(1), default=100, metavar="N", help="most rows shown (default 100)")
        parser.add_argument("--json", action="store_true", help="JSON instead of tables")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["id"] is None:
            if any(options[name] for name in ("stop", "resume", "end", "wait", "outcome", "again")):
                raise CommandError("--stop, --resume, --end, --wait, --outcome and --again are about one job: give its ID")
            self._list(options)
            return
        for name, verb in (("stop", steering.stop), ("resume", steering.resume), ("end", steering.end)):
            if options[name]:
                by, reason = actor(options)
                verb(options["id"], by=by, reason=reason)
        job = Job.objects.filter(pk=options["id"]).first()
        if job is None:
            raise CommandError(f"no job {options['id']}: `manage.py jobs` lists them")
        if options["wait"]:
            job = work_off(self, job)
        self._show(job, options)

    def _list(self, options: dict[str, Any]) -> None:
        jobs = list(Job.objects.order_by("-started_at", "-pk")[: options["limit"]])
        if options["json"]:
            self.say_json([reading.facts(job) for job in jobs])
            return
        if not jobs:
            self.stdout.write("no jobs")
            return
        cells = [
            (job.pk, job.verb, job.state, job.total, job.done, job.failed, job.total - job.position, job.started_at,
             job.started_by, in_words(job.filter))
            for job in jobs
        ]  # fmt: skip
        self.say_table(("ID", "VERB", "STATE", "ORDERS", "DONE", "NOT DONE", "LEFT", "STARTED", "BY", "WHERE"), cells)

    def _show(self, job: Job, options: dict[str, Any]) -> None:
        rows = reading.results(job, outcome=options["outcome"] or "", again=options["again"])
        if not options["outcome"] and not options["again"]:
            rows = rows.exclude(outcome__in=[JobResult.Outcome.DONE, JobResult.Outcome.WAITING])
        listed = [reading.result_facts(row) for row in rows[: options["limit"]]]
        again = reading.in_error_again(job)
        if options["json"]:
            self.say_json({**reading.facts(job), "in_error_again": again, "results": listed})
            return
        left = job.total - job.position
        self.stdout.write(f"job {job.pk}: {job.verb} of {job.total} orders, {job.state}; where {in_words(job.filter)}")
        self.stdout.write(f"{job.done} done ({again} of them in Error again), {job.failed} not done, {left} left")
        self.stdout.write(f"started by {job.started_by}: {job.reason}")
        if job.state == Job.State.STOPPED:
            self.stdout.write(f"stopped by {job.stopped_by or 'the engine'}: {job.stop_reason}")
        if listed:
            cells = [(row["order"], row["outcome"], row["process_state"] or "-", row["message"] or "-") for row in listed]
            self.say_table(("ORDER", "RESULT", "STATE NOW", "WHY"), cells)
