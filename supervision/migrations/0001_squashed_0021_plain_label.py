"""The engine's tables. Replaces the migrations that made them one by one before 0.1.0; a database that has all of those goes on."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.validators import MinValueValidator
from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.text import camel_case_to_spaces

from supervision.migrations import _initial_sql as sql

ID = models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")
RUN_STATES = [(name, name) for name in ("Pending", "Processing", "Processed", "Error", "Compensating", "Cancelled")]
STEP_STATES = [(name, name) for name in ("Pending", "Processing", "Processed", "Error", "Skipped", "Cancelled")]
DIRECTIONS = [("do", "do"), ("undo", "undo")]
# Rows of django-celery-beat, so that operators change the times in the admin: name -> task, queue, and seconds or the hour at night.
EVERY = {
    "look for overdue steps": ("supervision.sweep", "supervisor", None),
    # The second only bounds the delay of retries and lost hints: work is handed over at once.
    "look for due work": ("supervision.schedule", "scheduler", 1.0),
}
NIGHTLY = {
    "archive finished orders": ("supervision.archive", "3", "17"),
    "reconcile with the services": ("supervision.reconcile", "2", "47"),
}
REPLACED = """
0001_initial 0002_store 0003_periodic_tasks 0004_resource 0005_competing_and_governed 0006_status_messages 0007_journal
0008_archive 0009_audience 0010_effect_ledger 0011_workflow_versions 0012_hooks 0013_blame 0014_incidents 0015_suspicion
0016_reconciliation 0017_held_time 0018_reader 0019_standing_alerts 0020_epochs 0021_plain_label
"""


def indexed_key(to: str, **options: Any) -> models.ForeignKey:
    """A reference without a constraint: the engine keeps it by itself, without a lock on the row it refers to."""
    return models.ForeignKey(to, on_delete=models.DO_NOTHING, db_constraint=False, **options)


def unindexed_key(to: str, **options: Any) -> models.ForeignKey:
    """The same where another index begins with this column, or no query looks it up."""
    return indexed_key(to, db_index=False, **options)


def columns(**fields: Any) -> list[tuple[str, Any]]:
    """A table's columns, by name."""
    return list(fields.items())


def index(name: str, *fields: str, where: Q | None = None) -> models.Index:
    return models.Index(name=name, fields=fields, condition=where)


def unique(name: str, *fields: str, where: Q | None = None) -> models.UniqueConstraint:
    return models.UniqueConstraint(name=name, fields=fields, condition=where)


def check(name: str, condition: Q) -> models.CheckConstraint:
    return models.CheckConstraint(name=name, condition=condition)


def table(
    name: str, fields: list[tuple[str, Any]], *, called: str = "", plural: str = "", may: tuple[str, ...] | None = ("view",), **options: Any
) -> migrations.CreateModel:
    """A table. called: unless as its name. plural: unless with an s. may: the permissions that Django makes for it; None: all."""
    called = called or camel_case_to_spaces(name)
    options |= {"verbose_name": called, "verbose_name_plural": plural or f"{called}s"}
    if may is not None:
        options["default_permissions"] = may
    return migrations.CreateModel(name, fields, options)


def create_periodic_tasks(apps: Any, schema_editor: Any) -> None:
    """Create the tasks, keeping what is there."""
    interval = apps.get_model("django_celery_beat", "IntervalSchedule")
    crontab = apps.get_model("django_celery_beat", "CrontabSchedule")
    task = apps.get_model("django_celery_beat", "PeriodicTask")
    for name, (path, queue, seconds) in EVERY.items():
        every = float(seconds or getattr(settings, "SUPERVISION", {}).get("SWEEP_SECONDS") or 5.0)
        whole = every == int(every)
        schedule, _ = interval.objects.get_or_create(
            every=int(every) if whole else int(every * 1_000_000), period="seconds" if whole else "microseconds"
        )
        task.objects.get_or_create(name=name, defaults={"task": path, "queue": queue, "interval": schedule})
    for name, (path, hour, minute) in NIGHTLY.items():
        at = {"minute": minute, "hour": hour, "day_of_week": "*", "day_of_month": "*", "month_of_year": "*", "timezone": "UTC"}
        nightly, _ = crontab.objects.get_or_create(**at)
        task.objects.get_or_create(name=name, defaults={"task": path, "queue": "supervisor", "crontab": nightly})


def remove_periodic_tasks(apps: Any, schema_editor: Any) -> None:
    """Remove the tasks. Their schedules may serve others."""
    apps.get_model("django_celery_beat", "PeriodicTask").objects.filter(name__in=[*EVERY, *NIGHTLY]).delete()


class Migration(migrations.Migration):
    """Every table, then what models cannot say, then the rows."""

    initial = True
    dependencies = [("django_celery_beat", "0019_alter_periodictasks_options")]
    replaces = [("supervision", name) for name in REPLACED.split()]
    operations = [
        table(
            "Heartbeat",
            columns(
                incarnation=models.TextField(primary_key=True, serialize=False, verbose_name="incarnation"),
                role=models.TextField(verbose_name="role"),
                started_at=models.DateTimeField(db_default=Now(), verbose_name="started at"),
                seen_at=models.DateTimeField(db_default=Now(), verbose_name="seen at"),
                detail=models.JSONField(db_default={}, verbose_name="detail"),
            ),
        ),
        table(
            "LeaderLease",
            columns(
                name=models.TextField(primary_key=True, serialize=False, verbose_name="name"),
                holder=models.TextField(verbose_name="holder"),
                term=models.IntegerField(db_default=1, verbose_name="term"),
                elected_at=models.DateTimeField(db_default=Now(), verbose_name="elected at"),
                expires_at=models.DateTimeField(verbose_name="expires at"),
            ),
        ),
        table(
            "DeadLetter",
            columns(
                id=ID,
                source=models.TextField(verbose_name="source"),
                body=models.BinaryField(verbose_name="body"),
                content_type=models.TextField(db_default="", verbose_name="content type"),
                headers=models.JSONField(db_default={}, verbose_name="headers"),
                reason=models.TextField(verbose_name="reason"),
                deliveries=models.IntegerField(db_default=1, verbose_name="deliveries"),
                public_id=models.TextField(db_index=True, null=True, verbose_name="public id"),
                created_at=models.DateTimeField(db_default=Now(), verbose_name="created at"),
                resolved_at=models.DateTimeField(null=True, verbose_name="resolved at"),
                resolution=models.TextField(db_default="", verbose_name="resolution"),
                delivery=models.JSONField(db_default={}, verbose_name="delivery"),
            ),
            indexes=[index("dead_letter_open", "-created_at", where=Q(resolved_at__isnull=True))],
        ),
        table(
            "Run",
            columns(
                id=ID,
                process_state=models.TextField(choices=RUN_STATES, db_default="Pending", verbose_name="state"),
                finished_at=models.DateTimeField(null=True, verbose_name="finished at"),
                created_at=models.DateTimeField(db_default=Now(), verbose_name="created at"),
                complete_by=models.DateTimeField(null=True, verbose_name="complete by"),
                workflow=models.TextField(verbose_name="workflow"),
                version=models.SmallIntegerField(db_default=1, verbose_name="version"),
                key=models.TextField(verbose_name="public id"),
                direction=models.TextField(choices=DIRECTIONS, db_default="do", verbose_name="direction"),
                priority=models.SmallIntegerField(db_default=0, verbose_name="priority"),
                session_key=models.TextField(null=True, verbose_name="session"),
                partition=models.TextField(null=True, verbose_name="partition"),
                reply_to=models.TextField(null=True, verbose_name="reply token"),
                payload=models.JSONField(db_default={}, verbose_name="payload"),
                cancel_requested_at=models.DateTimeField(null=True, verbose_name="cancel requested at"),
                notify=models.BooleanField(db_default=False, verbose_name="has receivers"),
                status_seq=models.SmallIntegerField(db_default=0, verbose_name="status messages"),
                session_client=models.TextField(null=True, verbose_name="client of the session"),
                held_until=models.DateTimeField(null=True, verbose_name="held time counted until"),
            ),
            permissions=[("operate", "Can resubmit, skip, cancel and undo")],
            indexes=[
                index("run_overdue", "complete_by", where=Q(process_state__in=["Pending", "Processing"])),
                index(
                    "run_unfinished",
                    "process_state",
                    "created_at",
                    where=Q(process_state__in=["Pending", "Processing", "Error", "Compensating"]),
                ),
                index("run_session", "session_key", "session_client", "id", where=Q(finished_at__isnull=True, session_key__isnull=False)),
            ],
            constraints=[
                unique("a_submission_becomes_one_run", "key"),
                check(
                    "a_run_is_in_a_known_state",
                    Q(process_state__in=["Pending", "Processing", "Processed", "Error", "Compensating", "Cancelled"]),
                ),
                check(
                    "a_final_run_and_only_a_final_run_has_finished",
                    Q(finished_at__isnull=False, process_state__in=["Processed", "Cancelled"])
                    | ~Q(process_state__in=["Processed", "Cancelled"]) & Q(finished_at__isnull=True),
                ),
                check("a_run_undoes_when_compensating", ~Q(process_state="Compensating") | Q(direction="undo")),
            ],
        ),
        table(
            "StepEvent",
            columns(
                pk=models.CompositePrimaryKey("run_id", "seq", blank=True, editable=False, primary_key=True, serialize=False),
                seq=models.IntegerField(verbose_name="sequence"),
                position=models.SmallIntegerField(null=True, verbose_name="position"),
                direction=models.TextField(null=True, verbose_name="direction"),
                attempt=models.IntegerField(null=True, verbose_name="attempt"),
                from_state=models.TextField(null=True, verbose_name="from"),
                to_state=models.TextField(verbose_name="to"),
                actor=models.TextField(verbose_name="actor"),
                why=models.TextField(null=True, verbose_name="why"),
                at=models.DateTimeField(db_default=Now(), verbose_name="at"),
                run=unindexed_key("supervision.run", related_name="events"),
            ),
            called="event",
        ),
        table(
            "StrayReply",
            columns(
                id=ID,
                direction=models.TextField(verbose_name="direction"),
                position=models.SmallIntegerField(verbose_name="position"),
                attempt=models.IntegerField(verbose_name="attempt"),
                outcome=models.TextField(verbose_name="outcome"),
                detail=models.TextField(db_default="", verbose_name="detail"),
                actor=models.TextField(verbose_name="actor"),
                at=models.DateTimeField(db_default=Now(), verbose_name="at"),
                run=indexed_key("supervision.run", related_name="stray_replies"),
            ),
            plural="stray replies",
        ),
        table(
            "Submission",
            columns(
                id=ID,
                consumed_at=models.DateTimeField(null=True, verbose_name="consumed at"),
                created_at=models.DateTimeField(db_default=Now(), verbose_name="created at"),
                public_id=models.TextField(verbose_name="public id"),
                workflow=models.TextField(db_default="fulfil-order", verbose_name="workflow"),
                payload=models.TextField(verbose_name="payload"),
                client=models.TextField(db_default="", verbose_name="client"),
                client_key=models.TextField(null=True, verbose_name="idempotency key"),
                request_hash=models.TextField(db_default="", verbose_name="request hash"),
                cancel_requested_at=models.DateTimeField(null=True, verbose_name="cancel requested at"),
                cancelled_by=models.TextField(db_default="", verbose_name="cancelled by"),
                cancel_reason=models.TextField(db_default="", verbose_name="reason of the cancellation"),
                deliveries=models.SmallIntegerField(db_default=0, verbose_name="deliveries"),
                reader=models.TextField(null=True, verbose_name="reader"),
                suspected_at=models.DateTimeField(null=True, verbose_name="suspected at"),
                session_key=models.TextField(db_default="", null=True, verbose_name="session"),
            ),
            may=None,
            indexes=[
                index("submission_waiting", "id", where=Q(consumed_at__isnull=True)),
                index(
                    "submission_session_waiting",
                    "client",
                    "session_key",
                    "id",
                    where=Q(consumed_at__isnull=True, session_key__isnull=False),
                ),
            ],
            constraints=[
                unique("a_public_id_names_one_submission", "public_id"),
                unique("a_client_key_names_one_submission", "client", "client_key", where=Q(client_key__isnull=False)),
            ],
        ),
        table(
            "Notification",
            columns(
                id=ID,
                kind=models.TextField(verbose_name="kind"),
                payload=models.JSONField(db_default={}, verbose_name="payload"),
                created_at=models.DateTimeField(db_default=Now(), verbose_name="created at"),
                not_before=models.DateTimeField(db_default=Now(), verbose_name="not before"),
                tries=models.IntegerField(db_default=0, verbose_name="tries"),
                last_error=models.TextField(db_default="", verbose_name="last error"),
                delivered_at=models.DateTimeField(null=True, verbose_name="delivered at"),
                run=unindexed_key("supervision.run", null=True),
                given_up_at=models.DateTimeField(null=True, verbose_name="given up at"),
            ),
            indexes=[
                index("notification_to_fan_out", "id", where=Q(delivered_at__isnull=True, kind="status")),
                index("notification_hook_due", "not_before", where=Q(delivered_at__isnull=True, kind="hook")),
                index("notification_due", "not_before", where=Q(delivered_at__isnull=True, given_up_at__isnull=True) & ~Q(kind="status")),
                index("notification_given_up", "given_up_at", where=Q(given_up_at__isnull=False)),
            ],
        ),
        table(
            "StepState",
            columns(
                pk=models.CompositePrimaryKey(
                    "run_id", "direction", "position", blank=True, editable=False, primary_key=True, serialize=False
                ),
                process_state=models.TextField(choices=STEP_STATES, db_default="Pending", verbose_name="state"),
                locked_by=models.TextField(null=True, verbose_name="locked by"),
                complete_by=models.DateTimeField(null=True, verbose_name="complete by"),
                attempt=models.IntegerField(db_default=0, verbose_name="attempt"),
                seq=models.IntegerField(db_default=0, verbose_name="sequence"),
                effect=models.TextField(
                    choices=[("none", "none"), ("unknown", "unknown"), ("done", "done")], db_default="none", verbose_name="effect"
                ),
                started_at=models.DateTimeField(null=True, verbose_name="started at"),
                finished_at=models.DateTimeField(null=True, verbose_name="finished at"),
                result=models.JSONField(null=True, verbose_name="result"),
                run=unindexed_key("supervision.run", related_name="steps"),
                not_before=models.DateTimeField(null=True, verbose_name="not before"),
                turn_at=models.DateTimeField(null=True, verbose_name="turn"),
                failure_count=models.IntegerField(db_default=0, verbose_name="failure count"),
                dispatch_count=models.IntegerField(db_default=0, verbose_name="dispatch count"),
                generation=models.SmallIntegerField(db_default=1, verbose_name="generation"),
                position=models.SmallIntegerField(verbose_name="position"),
                direction=models.TextField(choices=DIRECTIONS, db_default="do", verbose_name="direction"),
                name=models.TextField(verbose_name="step"),
                agent=models.TextField(verbose_name="agent"),
                idempotency_key=models.TextField(verbose_name="idempotency key"),
                checkpoint=models.JSONField(null=True, verbose_name="checkpoint"),
                last_error=models.TextField(null=True, verbose_name="last error"),
                resource=models.TextField(null=True, verbose_name="resource"),
                resource_version=models.IntegerField(null=True, verbose_name="version of the route"),
                blamed_count=models.SmallIntegerField(null=True, verbose_name="failures held against it"),
                failing_since=models.DateTimeField(null=True, verbose_name="failing since"),
            ),
            called="step",
            indexes=[
                index("step_claimable", "turn_at", where=Q(not_before__isnull=False, process_state="Pending")),
                index("step_starving", "complete_by", where=Q(complete_by__isnull=False, process_state="Pending")),
                index("step_in_error", "name", "run", where=Q(process_state="Error")),
            ],
            constraints=[
                check(
                    "a_step_is_in_a_known_state",
                    Q(process_state__in=["Pending", "Processing", "Processed", "Error", "Skipped", "Cancelled"]),
                ),
                check("a_step_does_or_undoes", Q(direction__in=["do", "undo"])),
                check("a_steps_effect_is_known_by_name", Q(effect__in=["none", "unknown", "done"])),
                check(
                    "a_running_step_has_an_owner_and_a_deadline",
                    Q(complete_by__isnull=False, locked_by__isnull=False, process_state="Processing")
                    | ~Q(process_state="Processing") & Q(locked_by__isnull=True),
                ),
                check("a_processed_step_has_finished", ~Q(process_state="Processed") | Q(finished_at__isnull=False)),
                check("counts_are_not_negative", Q(attempt__gte=0, dispatch_count__gte=0, failure_count__gte=0)),
                unique("a_run_processes_one_step_at_a_time", "run", where=Q(process_state="Processing")),
            ],
        ),
        table(
            "Resource",
            columns(
                id=ID,
                name=models.TextField(unique=True, verbose_name="name"),
                breaker_state=models.TextField(
                    choices=[("closed", "closed"), ("open", "open"), ("half-open", "half-open")],
                    db_default="closed",
                    default="closed",
                    verbose_name="breaker",
                ),
                failures=models.IntegerField(db_default=0, default=0, verbose_name="failures in a row"),
                breaker_threshold=models.PositiveSmallIntegerField(
                    db_default=5, default=5, validators=[MinValueValidator(1)], verbose_name="failures that open it"
                ),
                cool_down_seconds=models.PositiveIntegerField(
                    db_default=5, default=5, validators=[MinValueValidator(1)], verbose_name="cool-down in seconds"
                ),
                probe_limit=models.PositiveSmallIntegerField(
                    db_default=1, default=1, validators=[MinValueValidator(1)], verbose_name="probes at once"
                ),
                probes=models.IntegerField(db_default=0, default=0, verbose_name="probes under way"),
                probes_until=models.DateTimeField(blank=True, null=True, verbose_name="probes given up at"),
                opened_at=models.DateTimeField(blank=True, null=True, verbose_name="opened at"),
                retry_at=models.DateTimeField(blank=True, null=True, verbose_name="tried again at"),
                capacity=models.PositiveIntegerField(
                    blank=True,
                    help_text="Over all workers; empty: no limit.",
                    null=True,
                    validators=[MinValueValidator(1)],
                    verbose_name="calls at once",
                ),
                last_error=models.TextField(blank=True, db_default="", default="", verbose_name="last error"),
                last_error_at=models.DateTimeField(blank=True, null=True, verbose_name="last error at"),
                next_call_at=models.DateTimeField(blank=True, null=True, verbose_name="next call at"),
                paused=models.BooleanField(db_default=False, default=False, verbose_name="paused"),
                rate_per_second=models.FloatField(
                    blank=True,
                    help_text="Empty: no limit.",
                    null=True,
                    validators=[MinValueValidator(0.001)],
                    verbose_name="calls per second",
                ),
                service=models.TextField(blank=True, db_default="", default="", verbose_name="service"),
                settings=models.JSONField(blank=True, db_default={}, default=dict, verbose_name="settings"),
                last_code=models.TextField(blank=True, db_default="", default="", verbose_name="code of the last error"),
                probing=models.JSONField(blank=True, db_default=[], default=list, verbose_name="orders that try it out"),
                successes=models.JSONField(blank=True, db_default=[], default=list, verbose_name="last successes"),
                suspects=models.JSONField(
                    blank=True, db_default=[], default=list, verbose_name="orders that failed since the last success"
                ),
            ),
            may=("view", "change"),
            constraints=[
                check("a_breaker_is_in_a_known_state", Q(breaker_state__in=["closed", "open", "half-open"])),
                check(
                    "a_resource_allows_at_least_something",
                    (Q(capacity__isnull=True) | Q(capacity__gte=1)) & (Q(rate_per_second__isnull=True) | Q(rate_per_second__gt=0)),
                ),
            ],
        ),
        table(
            "CachedResult",
            columns(
                id=ID,
                cache=models.TextField(verbose_name="cache"),
                key=models.TextField(verbose_name="key"),
                value=models.JSONField(null=True, verbose_name="value"),
                fetched_at=models.DateTimeField(null=True, verbose_name="fetched at"),
                refresh_at=models.DateTimeField(null=True, verbose_name="refreshed from"),
                expires_at=models.DateTimeField(null=True, verbose_name="expires at"),
                used_at=models.DateTimeField(db_default=Now(), verbose_name="used at"),
                version=models.PositiveIntegerField(db_default=1, default=1, verbose_name="version"),
                last_error=models.TextField(blank=True, db_default="", default="", verbose_name="last error"),
            ),
            may=("view", "delete"),
            indexes=[index("cached_result_due", "refresh_at")],
            constraints=[unique("a_cache_has_one_value_per_key", "cache", "key")],
        ),
        table(
            "JournalFile",
            columns(
                id=ID,
                key=models.TextField(verbose_name="key"),
                event_type=models.TextField(verbose_name="event type"),
                path=models.TextField(unique=True, verbose_name="path"),
                host=models.TextField(db_default="", verbose_name="host"),
                columns=models.JSONField(db_default=[], default=list, verbose_name="columns"),
                length=models.BigIntegerField(db_default=0, verbose_name="length"),
                entries=models.BigIntegerField(db_default=0, verbose_name="entries"),
                term=models.IntegerField(db_default=0, verbose_name="term"),
                opened_at=models.DateTimeField(db_default=Now(), verbose_name="opened at"),
                closed_at=models.DateTimeField(null=True, verbose_name="closed at"),
            ),
            constraints=[unique("one_open_file_per_event_type", "key", "event_type", where=Q(closed_at__isnull=True))],
        ),
        table(
            "JournalEntry",
            columns(
                id=ID,
                key=models.TextField(verbose_name="key"),
                event_type=models.TextField(verbose_name="event type"),
                event_id=models.TextField(verbose_name="event id"),
                body=models.TextField(verbose_name="body"),
                appended_at=models.DateTimeField(db_default=Now(), verbose_name="appended at"),
                written_at=models.DateTimeField(null=True, verbose_name="written at"),
                failed_at=models.DateTimeField(null=True, verbose_name="failed at"),
                error=models.TextField(db_default="", verbose_name="error"),
                file=unindexed_key("supervision.journalfile", null=True, related_name="+"),
            ),
            plural="journal entries",
            indexes=[
                index("journal_entry_failed", "key", "id", where=Q(failed_at__isnull=False)),
                index("journal_entry_waiting", "key", "id", where=Q(failed_at__isnull=True, written_at__isnull=True)),
            ],
            constraints=[unique("an_event_is_journaled_once", "event_id")],
        ),
        table(
            "Pause",
            columns(
                id=ID,
                scope=models.TextField(
                    choices=[("all", "everything"), ("workflow", "workflow"), ("agent", "agent"), ("order", "order")], verbose_name="scope"
                ),
                name=models.TextField(blank=True, db_default="", default="", verbose_name="name"),
                reason=models.TextField(verbose_name="reason"),
                paused_by=models.TextField(verbose_name="paused by"),
                paused_at=models.DateTimeField(db_default=Now(), verbose_name="paused at"),
                until=models.DateTimeField(blank=True, null=True, verbose_name="until"),
                lifted_at=models.DateTimeField(blank=True, null=True, verbose_name="lifted at"),
                lifted_by=models.TextField(blank=True, db_default="", default="", verbose_name="lifted by"),
                lift_reason=models.TextField(blank=True, db_default="", default="", verbose_name="why lifted"),
                run=unindexed_key("supervision.run", blank=True, null=True, related_name="pauses"),
            ),
            indexes=[index("pause_of_an_order", "run", where=Q(lifted_at__isnull=True, scope="order"))],
            constraints=[unique("one_pause_of_a_thing_at_a_time", "scope", "name", where=Q(lifted_at__isnull=True))],
        ),
        table(
            "ReplyToken",
            columns(
                id=ID,
                token_hash=models.TextField(unique=True, verbose_name="hash of the token"),
                client=models.TextField(verbose_name="client"),
                queue=models.TextField(unique=True, verbose_name="queue"),
                created_at=models.DateTimeField(db_default=Now(), verbose_name="created at"),
                revoked_at=models.DateTimeField(blank=True, null=True, verbose_name="revoked at"),
            ),
        ),
        table(
            "ResourceRoute",
            columns(
                id=ID,
                service=models.TextField(verbose_name="service"),
                partition=models.TextField(verbose_name="partition"),
                resource=models.TextField(verbose_name="resource"),
                version=models.PositiveIntegerField(db_default=1, default=1, verbose_name="version"),
                changed_at=models.DateTimeField(auto_now=True, db_default=Now(), verbose_name="changed at"),
            ),
            called="route",
            may=None,
            constraints=[unique("a_partition_has_one_route", "service", "partition")],
        ),
        table(
            "Slot",
            columns(
                id=ID,
                resource=models.TextField(verbose_name="resource"),
                direction=models.TextField(verbose_name="direction"),
                position=models.SmallIntegerField(verbose_name="position"),
                attempt=models.IntegerField(verbose_name="attempt"),
                holder=models.TextField(verbose_name="holder"),
                taken_at=models.DateTimeField(db_default=Now(), verbose_name="taken at"),
                until=models.DateTimeField(verbose_name="until"),
                run=unindexed_key("supervision.run", related_name="slots"),
            ),
            constraints=[unique("an_attempt_holds_one_slot", "resource", "run", "direction", "position", "attempt")],
        ),
        table(
            "WebhookEndpoint",
            columns(
                id=ID,
                public_id=models.TextField(unique=True, verbose_name="id"),
                client=models.TextField(verbose_name="client"),
                url=models.TextField(verbose_name="address"),
                secret=models.TextField(verbose_name="secret"),
                events=models.JSONField(blank=True, db_default=[], default=list, verbose_name="events"),
                active=models.BooleanField(db_default=True, default=True, verbose_name="active"),
                failures=models.IntegerField(db_default=0, default=0, verbose_name="failures in a row"),
                failing_since=models.DateTimeField(blank=True, null=True, verbose_name="failing since"),
                retry_at=models.DateTimeField(blank=True, null=True, verbose_name="left in peace until"),
                created_at=models.DateTimeField(db_default=Now(), verbose_name="created at"),
                removed_at=models.DateTimeField(blank=True, null=True, verbose_name="removed at"),
            ),
            called="webhook",
            may=("view", "change"),
            indexes=[index("webhook_of_a_client", "client", where=Q(active=True))],
            constraints=[check("a_removed_webhook_is_not_active", Q(active=False) | Q(removed_at__isnull=True))],
        ),
        table(
            "Delivery",
            columns(
                id=ID,
                public_id=models.TextField(unique=True, verbose_name="id"),
                client=models.TextField(verbose_name="client"),
                seq=models.IntegerField(verbose_name="sequence"),
                event=models.TextField(verbose_name="event"),
                message_id=models.TextField(verbose_name="message id"),
                body=models.TextField(verbose_name="body"),
                created_at=models.DateTimeField(db_default=Now(), verbose_name="created at"),
                asked_at=models.DateTimeField(db_default=Now(), verbose_name="asked for at"),
                not_before=models.DateTimeField(db_default=Now(), verbose_name="not before"),
                attempt=models.IntegerField(db_default=0, verbose_name="attempt"),
                tries=models.IntegerField(db_default=0, verbose_name="tries"),
                status_code=models.IntegerField(blank=True, null=True, verbose_name="answer"),
                last_error=models.TextField(blank=True, db_default="", default="", verbose_name="last error"),
                log=models.JSONField(blank=True, db_default=[], default=list, verbose_name="log"),
                delivered_at=models.DateTimeField(blank=True, null=True, verbose_name="delivered at"),
                given_up_at=models.DateTimeField(blank=True, null=True, verbose_name="given up at"),
                run=unindexed_key("supervision.run", related_name="deliveries"),
                reply_token=models.ForeignKey(
                    blank=True,
                    db_index=False,
                    null=True,
                    on_delete=models.PROTECT,
                    related_name="deliveries",
                    to="supervision.replytoken",
                    verbose_name="reply token",
                ),
                endpoint=models.ForeignKey(
                    blank=True,
                    db_index=False,
                    null=True,
                    on_delete=models.PROTECT,
                    related_name="deliveries",
                    to="supervision.webhookendpoint",
                    verbose_name="webhook",
                ),
            ),
            plural="deliveries",
            indexes=[
                index(
                    "delivery_due", "endpoint", "reply_token", "not_before", where=Q(delivered_at__isnull=True, given_up_at__isnull=True)
                ),
                index("delivery_of_a_client", "client", "id"),
            ],
            constraints=[
                unique("a_webhook_hears_an_event_once", "run", "seq", "endpoint"),
                unique("a_reply_queue_hears_an_event_once", "run", "seq", "reply_token"),
                check("a_delivery_is_delivered_or_given_up", Q(delivered_at__isnull=True) | Q(given_up_at__isnull=True)),
                check(
                    "a_delivery_has_one_receiver",
                    Q(endpoint__isnull=False, reply_token__isnull=True) | Q(endpoint__isnull=True, reply_token__isnull=False),
                ),
            ],
        ),
        table(
            "WriterLease",
            columns(
                key=models.TextField(primary_key=True, serialize=False, verbose_name="key"),
                holder=models.TextField(db_default="", verbose_name="holder"),
                term=models.IntegerField(db_default=0, verbose_name="term"),
                until=models.DateTimeField(db_default=Now(), verbose_name="until"),
                flushed_at=models.DateTimeField(null=True, verbose_name="flushed at"),
                last_error=models.TextField(db_default="", verbose_name="last error"),
                failing_since=models.DateTimeField(null=True, verbose_name="failing since"),
            ),
        ),
        table(
            "Receipt",
            columns(
                digest=models.TextField(primary_key=True, serialize=False, verbose_name="digest"),
                deliveries=models.SmallIntegerField(db_default=1, verbose_name="deliveries"),
                seen_at=models.DateTimeField(db_default=Now(), verbose_name="seen at"),
                reader=models.TextField(null=True, verbose_name="reader"),
            ),
        ),
        table(
            "ArchivedRun",
            columns(
                key=models.TextField(primary_key=True, serialize=False, verbose_name="public id"),
                run_id=models.BigIntegerField(unique=True, verbose_name="run"),
                reference=models.TextField(null=True, verbose_name="reference"),
                workflow=models.TextField(verbose_name="workflow"),
                process_state=models.TextField(choices=RUN_STATES, verbose_name="state"),
                created_at=models.DateTimeField(verbose_name="created at"),
                finished_at=models.DateTimeField(verbose_name="finished at"),
                archived_at=models.DateTimeField(db_default=Now(), verbose_name="archived at"),
                body=models.JSONField(verbose_name="body"),
            ),
            indexes=[index("archived_run_by_reference", "reference", where=Q(reference__isnull=False))],
        ),
        table("Audience", columns(id=ID, until=models.DateTimeField(verbose_name="until")), may=()),
        table(
            "Effect",
            columns(
                pk=models.CompositePrimaryKey(
                    "run_id", "direction", "position", "key", "operation", blank=True, editable=False, primary_key=True, serialize=False
                ),
                intended_at=models.DateTimeField(db_default=Now(), verbose_name="intended at"),
                settled_at=models.DateTimeField(null=True, verbose_name="settled at"),
                attempt=models.IntegerField(verbose_name="attempt"),
                position=models.SmallIntegerField(verbose_name="position"),
                generation=models.SmallIntegerField(verbose_name="generation"),
                direction=models.TextField(choices=DIRECTIONS, verbose_name="direction"),
                key=models.TextField(verbose_name="idempotency key"),
                service=models.TextField(verbose_name="service"),
                operation=models.TextField(verbose_name="operation"),
                amount=models.DecimalField(decimal_places=3, max_digits=18, null=True, verbose_name="amount"),
                currency=models.TextField(null=True, verbose_name="currency"),
                external_id=models.TextField(db_default="", verbose_name="external id"),
                outcome=models.TextField(db_default="intended", verbose_name="outcome"),
                actor=models.TextField(verbose_name="actor"),
                run=unindexed_key("supervision.run", related_name="effects"),
            ),
            constraints=[check("an_effects_outcome_is_known_by_name", Q(outcome__in=["intended", "done", "refused", "unknown", "undone"]))],
        ),
        table(
            "WorkflowVersion",
            columns(
                id=ID,
                name=models.TextField(verbose_name="workflow"),
                version=models.SmallIntegerField(verbose_name="version"),
                fingerprint=models.TextField(verbose_name="fingerprint"),
                definition=models.JSONField(verbose_name="definition"),
                registered_at=models.DateTimeField(db_default=Now(), verbose_name="registered at"),
            ),
            may=(),
            constraints=[unique("a_version_of_a_workflow_means_one_plan", "name", "version")],
        ),
        table(
            "Incident",
            columns(
                id=ID,
                kind=models.TextField(verbose_name="kind"),
                cause=models.TextField(verbose_name="cause"),
                title=models.TextField(db_default="", default="", verbose_name="title"),
                resource=models.TextField(db_default="", default="", verbose_name="resource"),
                step=models.TextField(db_default="", default="", verbose_name="step"),
                code=models.TextField(db_default="", default="", verbose_name="code"),
                severity=models.TextField(
                    choices=[("info", "info"), ("warning", "warning"), ("critical", "critical")],
                    db_default="warning",
                    default="warning",
                    verbose_name="severity",
                ),
                orders=models.IntegerField(db_default=0, default=0, verbose_name="orders"),
                opened_at=models.DateTimeField(db_default=Now(), verbose_name="opened at"),
                reopened_at=models.DateTimeField(null=True, verbose_name="returned at"),
                closed_at=models.DateTimeField(null=True, verbose_name="closed at"),
                acknowledged_at=models.DateTimeField(null=True, verbose_name="acknowledged at"),
                acknowledged_by=models.TextField(db_default="", default="", verbose_name="acknowledged by"),
                acknowledge_reason=models.TextField(db_default="", default="", verbose_name="reason of the acknowledgement"),
                notified_at=models.DateTimeField(null=True, verbose_name="notified at"),
                told_severity=models.TextField(db_default="", default="", verbose_name="severity told"),
                told_closed_at=models.DateTimeField(null=True, verbose_name="told of its end at"),
            ),
            indexes=[
                index("incident_closed", "cause", "-closed_at", where=Q(closed_at__isnull=False)),
                index("incident_opened", "-opened_at"),
            ],
            constraints=[
                unique("a_cause_has_one_open_incident", "cause", where=Q(closed_at__isnull=True)),
                check("an_incidents_severity_is_known_by_name", Q(severity__in=["info", "warning", "critical"])),
            ],
        ),
        table(
            "Alert",
            columns(
                id=ID,
                position=models.SmallIntegerField(verbose_name="position"),
                direction=models.TextField(choices=DIRECTIONS, verbose_name="direction"),
                generation=models.SmallIntegerField(verbose_name="generation"),
                kind=models.TextField(
                    choices=[
                        ("error", "Step in error"),
                        ("exhausted", "Attempts exhausted, waiting longer"),
                        ("skipped", "Step given up, order went on"),
                        ("starvation", "No worker picks the step up"),
                        ("lost-dispatch", "Claims that no agent starts"),
                    ],
                    verbose_name="kind",
                ),
                step=models.TextField(db_default="", verbose_name="step"),
                message=models.TextField(db_default="", verbose_name="message"),
                raised_at=models.DateTimeField(db_default=Now(), verbose_name="raised at"),
                acknowledged_at=models.DateTimeField(blank=True, null=True, verbose_name="acknowledged at"),
                acknowledged_by=models.TextField(blank=True, db_default="", verbose_name="acknowledged by"),
                run=indexed_key("supervision.run", related_name="alerts"),
                cause=models.TextField(db_default="", default="", verbose_name="cause"),
                closed_at=models.DateTimeField(null=True, verbose_name="closed at"),
                code=models.TextField(db_default="", default="", verbose_name="code"),
                severity=models.TextField(db_default="warning", default="warning", verbose_name="severity"),
                incident=unindexed_key("supervision.incident", null=True, related_name="alerts", verbose_name="incident"),
            ),
            indexes=[
                index("alert_open", "-raised_at", where=Q(closed_at__isnull=True)),
                index("alert_by_cause", "cause", "run", where=Q(closed_at__isnull=True)),
                index("alert_standing", "id", where=Q(closed_at__isnull=True)),
            ],
            constraints=[
                unique("a_step_has_one_open_alert_of_a_kind", "run", "position", "direction", "kind", where=Q(closed_at__isnull=True))
            ],
        ),
        table(
            "Reconciliation",
            columns(
                service=models.TextField(primary_key=True, serialize=False, verbose_name="service"),
                compared_at=models.DateTimeField(null=True, verbose_name="compared at"),
                failing_since=models.DateTimeField(null=True, verbose_name="failing since"),
                last_error=models.TextField(db_default="", verbose_name="last error"),
            ),
        ),
        table(
            "Finding",
            columns(
                id=ID,
                service=models.TextField(verbose_name="service"),
                kind=models.TextField(verbose_name="kind"),
                order_key=models.TextField(db_default="", verbose_name="order"),
                external_id=models.TextField(db_default="", verbose_name="external id"),
                key=models.TextField(db_default="", verbose_name="idempotency key"),
                run_id=models.BigIntegerField(null=True, verbose_name="run"),
                amount=models.DecimalField(decimal_places=3, max_digits=18, null=True, verbose_name="amount"),
                currency=models.TextField(db_default="", verbose_name="currency"),
                verbs=models.JSONField(db_default=[], verbose_name="verbs"),
                detail=models.TextField(db_default="", verbose_name="detail"),
                found_at=models.DateTimeField(db_default=Now(), verbose_name="found at"),
                seen_at=models.DateTimeField(db_default=Now(), verbose_name="seen at"),
                settling_until=models.DateTimeField(null=True, verbose_name="being settled until"),
                tries=models.IntegerField(db_default=0, verbose_name="tries"),
                last_error=models.TextField(db_default="", verbose_name="last error"),
                closed_at=models.DateTimeField(null=True, verbose_name="closed at"),
                verb=models.TextField(db_default="", verbose_name="settled by"),
                settled_by=models.TextField(db_default="", verbose_name="who settled it"),
                reason=models.TextField(db_default="", verbose_name="reason"),
                outcome=models.TextField(db_default="", verbose_name="outcome"),
            ),
            indexes=[
                index("finding_adopted", "service", "kind", "order_key", "external_id", where=Q(closed_at__isnull=False, verb="adopt"))
            ],
            constraints=[
                unique("a_difference_is_found_once", "service", "kind", "order_key", "external_id", where=Q(closed_at__isnull=True))
            ],
        ),
        table(
            "Closure",
            columns(
                id=ID,
                resource=models.TextField(verbose_name="resource"),
                began_at=models.DateTimeField(db_default=Now(), verbose_name="began at"),
                ended_at=models.DateTimeField(null=True, verbose_name="ended at"),
            ),
            indexes=[index("closure_lately", "resource", "ended_at")],
            constraints=[unique("a_resource_is_closed_once_at_a_time", "resource", where=Q(ended_at__isnull=True))],
        ),
        table(
            "Epoch",
            columns(
                number=models.IntegerField(primary_key=True, serialize=False, verbose_name="number"),
                system_identifier=models.TextField(verbose_name="cluster"),
                timeline=models.IntegerField(verbose_name="timeline"),
                store=models.TextField(verbose_name="database"),
                began_at=models.DateTimeField(db_default=Now(), verbose_name="began at"),
                first_run_id=models.BigIntegerField(verbose_name="first run"),
                first_submission_id=models.BigIntegerField(verbose_name="first submission"),
                reason=models.TextField(verbose_name="reason"),
                by=models.TextField(verbose_name="by"),
            ),
        ),
        *(
            migrations.RunSQL(statement, reverse)
            for statement, reverse in (
                sql.STORAGE,
                sql.FINAL_STATES,
                sql.LIVE_EVENTS,
                sql.STATUS_MESSAGES,
                sql.OUTBOX,
                sql.SESSIONS,
                sql.CLOSURES,
            )
        ),
        migrations.RunPython(create_periodic_tasks, remove_periodic_tasks),
    ]
