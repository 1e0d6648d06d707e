"""The state store's tables: fields, constraints, indexes. Only the room `store` writes runs, steps and events.

Constraints enforce the invariants and are named after what they guarantee; partial indexes are named after the query that
reads them. The hot tables have no foreign keys in the database (one module writes them, and each costs 70 us an order);
`manage.py audit` checks what the keys would have. Their fillfactor and autovacuum settings, the trigger that keeps
Processed final and the one that announces events are in the migrations.
"""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from supervision.models.labels import DIRECTION_LABELS, EFFECT_LABELS, RUN_LABELS, RUN_RIGHTS, STEP_LABELS
from supervision.states import Direction, Effect, ProcessState, RunState

ASLEEP = Q(process_state="Pending", not_before__isnull=False, turn_at__isnull=True)  # a step that waits for a signal or a moment


def _values(enum: type) -> list[str]:
    return [str(member) for member in enum]  # type: ignore[attr-defined]


class Submission(models.Model):
    """An accepted order before it is a run: committed before the caller hears 202. `payload` keeps its exact text.

    session_key: null = of no session; empty = the entry point that accepted it did not determine it. suspected_at: when it
    was found that a transaction that had taken it was rolled back, so it is read alone. deliveries: readings of it alone
    that began and have not ended; reader: the process of the last of them.
    """

    consumed_at = models.DateTimeField(_("consumed at"), null=True)
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    public_id = models.TextField(_("public id"))
    workflow = models.TextField(_("workflow"))
    payload = models.TextField(_("payload"))
    client = models.TextField(_("client"), db_default="")
    client_key = models.TextField(_("idempotency key"), null=True)
    request_hash = models.TextField(_("request hash"), db_default="")
    cancel_requested_at = models.DateTimeField(_("cancel requested at"), null=True)
    cancelled_by = models.TextField(_("cancelled by"), db_default="")
    cancel_reason = models.TextField(_("reason of the cancellation"), db_default="")
    deliveries = models.SmallIntegerField(_("deliveries"), db_default=0)
    reader = models.TextField(_("reader"), null=True)
    suspected_at = models.DateTimeField(_("suspected at"), null=True)
    session_key = models.TextField(_("session"), null=True, db_default="")

    class Meta:
        verbose_name = _("submission")
        verbose_name_plural = _("submissions")
        constraints = [
            # Not `unique=True`: that makes a second index, for LIKE, which no query uses.
            models.UniqueConstraint(name="a_public_id_names_one_submission", fields=["public_id"]),
            models.UniqueConstraint(
                name="a_client_key_names_one_submission", fields=["client", "client_key"], condition=Q(client_key__isnull=False)
            ),
        ]
        indexes = [
            models.Index(name="submission_waiting", fields=["id"], condition=Q(consumed_at__isnull=True)),
            models.Index(
                name="submission_session_waiting",
                fields=["client", "session_key", "id"],
                condition=Q(consumed_at__isnull=True, session_key__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return self.public_id


class Run(models.Model):
    """One order's workflow instance.

    notify: its client wants status messages; a trigger writes them into the outbox, numbered by status_seq.
    session_client: the client of its session; a trigger fills it in if there is a session_key. That of a child run: see `sessions`.
    resume_from: of a run that is undone in order to go on from an earlier step, the position of that step.
    event_seq, open_steps: of a run whose plan branches, the number of its newest event, and how many of its steps are not yet
    Processed or Skipped; null for a list.
    """

    process_state = models.TextField(_("state"), choices=list(RUN_LABELS.items()), db_default=RunState.PENDING.value)
    finished_at = models.DateTimeField(_("finished at"), null=True)
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    complete_by = models.DateTimeField(_("complete by"), null=True)
    workflow = models.TextField(_("workflow"))
    version = models.SmallIntegerField(_("version"), db_default=1)
    key = models.TextField(_("public id"))
    direction = models.TextField(_("direction"), choices=list(DIRECTION_LABELS.items()), db_default=Direction.DO.value)
    priority = models.SmallIntegerField(_("priority"), db_default=0)
    session_key = models.TextField(_("session"), null=True)
    partition = models.TextField(_("partition"), null=True)
    reply_to = models.TextField(_("reply token"), null=True)
    payload = models.JSONField(_("payload"), db_default={})
    cancel_requested_at = models.DateTimeField(_("cancel requested at"), null=True)
    notify = models.BooleanField(_("has receivers"), db_default=False)
    status_seq = models.SmallIntegerField(_("status messages"), db_default=0)
    session_client = models.TextField(_("client of the session"), null=True)
    held_until = models.DateTimeField(_("held time counted until"), null=True)
    event_seq = models.IntegerField(_("newest event"), null=True)
    open_steps = models.SmallIntegerField(_("open steps"), null=True)
    parent_key = models.TextField(_("parent"), null=True)
    resume_from = models.SmallIntegerField(_("goes on from step"), null=True)

    class Meta:
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        default_permissions = ("view",)
        permissions = RUN_RIGHTS
        constraints = [
            models.UniqueConstraint(name="a_submission_becomes_one_run", fields=["key"]),
            models.CheckConstraint(name="a_run_is_in_a_known_state", condition=Q(process_state__in=_values(RunState))),
            models.CheckConstraint(
                name="a_final_run_and_only_a_final_run_has_finished",
                condition=Q(process_state__in=["Processed", "Cancelled"], finished_at__isnull=False)
                | (~Q(process_state__in=["Processed", "Cancelled"]) & Q(finished_at__isnull=True)),
            ),
            models.CheckConstraint(
                name="a_run_undoes_when_compensating",
                condition=~Q(process_state="Compensating") | Q(direction="undo"),
            ),
        ]
        indexes = [
            models.Index(
                name="run_overdue",
                fields=["complete_by"],
                condition=Q(process_state__in=["Pending", "Processing"]),
            ),
            models.Index(
                name="run_unfinished",
                fields=["process_state", "created_at"],
                condition=Q(process_state__in=["Pending", "Processing", "Error", "Compensating"]),
            ),
            # For the charts: read without the table.
            models.Index(
                name="run_finished",
                fields=["finished_at"],
                include=["created_at", "process_state", "parent_key"],
                condition=Q(finished_at__isnull=False),
            ),
            models.Index(
                name="run_cancelled",
                fields=["created_at"],
                condition=Q(process_state="Cancelled"),
            ),
            models.Index(
                name="run_session",
                fields=["session_key", "session_client", "id"],
                condition=Q(session_key__isnull=False, finished_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return f"run {self.key}"


class StepState(models.Model):
    """One step of one run, in one direction.

    not_before: null = its predecessor is not done yet. turn_at: not_before shifted by the run's priority; the claim
    serves the earliest. seq: the number of the run's newest event as far as this row has seen it. resource: which
    one of several the step was routed to, kept for its retries and its undo. failing_since: when its service failed it
    for the first time. blamed_count: how many of its failures were counted since another order's success; null = 0.
    awaits: the signal that the step waits for, or has waited for; empty: it waits for a moment. awaits_until: the end of
    that wait; awaits_attempt: the attempt that began it. While it waits, turn_at is null, and not_before is the moment at
    which the supervisor wakes it.
    after: of a run whose plan branches, the positions of the steps that come before it in its direction; null for a list.
    waits_for: how many of these are not yet done, and one more while the run is in Error; null for a list and for an undo.
    branch: the number of its branch, whose steps run one after another; 0 for a list.

    The columns are sorted by how often they change: an update does not write the columns after its last changed one to the
    WAL again. The same holds for runs and submissions.
    """

    pk = models.CompositePrimaryKey("run_id", "direction", "position")
    process_state = models.TextField(_("state"), choices=list(STEP_LABELS.items()), db_default=ProcessState.PENDING.value)
    locked_by = models.TextField(_("locked by"), null=True)
    complete_by = models.DateTimeField(_("complete by"), null=True)
    attempt = models.IntegerField(_("attempt"), db_default=0)
    seq = models.IntegerField(_("sequence"), db_default=0)
    effect = models.TextField(_("effect"), choices=list(EFFECT_LABELS.items()), db_default=Effect.NONE.value)
    started_at = models.DateTimeField(_("started at"), null=True)
    finished_at = models.DateTimeField(_("finished at"), null=True)
    result = models.JSONField(_("result"), null=True)
    run = models.ForeignKey(Run, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="steps")
    not_before = models.DateTimeField(_("not before"), null=True)
    turn_at = models.DateTimeField(_("turn"), null=True)
    failure_count = models.IntegerField(_("failure count"), db_default=0)
    dispatch_count = models.IntegerField(_("dispatch count"), db_default=0)
    generation = models.SmallIntegerField(_("generation"), db_default=1)
    position = models.SmallIntegerField(_("position"))
    direction = models.TextField(_("direction"), choices=list(DIRECTION_LABELS.items()), db_default=Direction.DO.value)
    name = models.TextField(_("step"))
    agent = models.TextField(_("agent"))
    idempotency_key = models.TextField(_("idempotency key"))
    checkpoint = models.JSONField(_("checkpoint"), null=True)
    last_error = models.TextField(_("last error"), null=True)
    resource = models.TextField(_("resource"), null=True)
    resource_version = models.IntegerField(_("version of the route"), null=True)
    failing_since = models.DateTimeField(_("failing since"), null=True)
    blamed_count = models.SmallIntegerField(_("failures held against it"), null=True)
    awaits = models.TextField(_("awaits the signal"), null=True)
    awaits_until = models.DateTimeField(_("waits until"), null=True)
    awaits_attempt = models.IntegerField(_("attempt that began the wait"), null=True)
    after = ArrayField(models.SmallIntegerField(), verbose_name=_("after"), null=True)
    waits_for = models.SmallIntegerField(_("waits for"), null=True)
    branch = models.SmallIntegerField(_("branch"), db_default=0)

    class Meta:
        verbose_name = _("step")
        verbose_name_plural = _("steps")
        default_permissions = ("view",)
        constraints = [
            models.CheckConstraint(name="a_step_is_in_a_known_state", condition=Q(process_state__in=_values(ProcessState))),
            models.CheckConstraint(name="a_step_does_or_undoes", condition=Q(direction__in=_values(Direction))),
            models.CheckConstraint(name="a_steps_effect_is_known_by_name", condition=Q(effect__in=_values(Effect))),
            models.CheckConstraint(
                name="a_running_step_has_an_owner_and_a_deadline",
                condition=Q(process_state="Processing", locked_by__isnull=False, complete_by__isnull=False)
                | (~Q(process_state="Processing") & Q(locked_by__isnull=True)),
            ),
            models.CheckConstraint(
                name="a_processed_step_has_finished",
                condition=~Q(process_state="Processed") | Q(finished_at__isnull=False),
            ),
            models.CheckConstraint(
                name="counts_are_not_negative",
                condition=Q(failure_count__gte=0, dispatch_count__gte=0, attempt__gte=0),
            ),
            # The sweep reads this index too: few steps run at any time (IN_FLIGHT), and a separate index for the overdue
            # ones would be written five times an order.
            models.UniqueConstraint(
                name="a_branch_processes_one_step_at_a_time",
                fields=["run", "branch"],
                condition=Q(process_state="Processing"),
            ),
        ]
        indexes = [
            models.Index(
                name="step_claimable",
                fields=["turn_at"],
                condition=Q(process_state="Pending", not_before__isnull=False),
            ),
            models.Index(
                name="step_starving",
                fields=["complete_by"],
                condition=Q(process_state="Pending", complete_by__isnull=False),
            ),
            models.Index(name="step_asleep", fields=["not_before"], condition=ASLEEP),
            models.Index(name="step_awaiting", fields=["awaits", "run"], condition=ASLEEP),
            models.Index(name="step_in_error", fields=["name", "run"], condition=Q(process_state="Error")),
            models.Index(name="step_in_error_newest", fields=["run"], condition=Q(process_state="Error")),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.direction})"


class StepEvent(models.Model):
    """Append-only history: one row per transition of a step, or of the run itself where position is null."""

    pk = models.CompositePrimaryKey("run_id", "seq")
    run = models.ForeignKey(Run, on_delete=models.DO_NOTHING, db_constraint=False, db_index=False, related_name="events")
    seq = models.IntegerField(_("sequence"))
    position = models.SmallIntegerField(_("position"), null=True)
    direction = models.TextField(_("direction"), null=True)
    attempt = models.IntegerField(_("attempt"), null=True)
    from_state = models.TextField(_("from"), null=True)
    to_state = models.TextField(_("to"))
    actor = models.TextField(_("actor"))
    why = models.TextField(_("why"), null=True)
    at = models.DateTimeField(_("at"), db_default=Now())

    class Meta:
        verbose_name = _("event")
        verbose_name_plural = _("events")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.run_id}:{self.seq} {self.to_state}"


class StrayReply(models.Model):
    """An answer that came too late or from a claim that was broken. It is kept as evidence and never causes a transition."""

    run = models.ForeignKey(Run, on_delete=models.DO_NOTHING, db_constraint=False, related_name="stray_replies", verbose_name=_("run"))
    direction = models.TextField(_("direction"))
    position = models.SmallIntegerField(_("position"))
    attempt = models.IntegerField(_("attempt"))
    outcome = models.TextField(_("outcome"))
    detail = models.TextField(_("detail"), db_default="")
    actor = models.TextField(_("actor"))
    at = models.DateTimeField(_("at"), db_default=Now())

    class Meta:
        verbose_name = _("stray reply")
        verbose_name_plural = _("stray replies")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.run_id}:{self.position} attempt {self.attempt}"


class DeadLetter(models.Model):
    """A message or submission that could not be used, kept byte for byte with the reason. digest: of the bytes, once they are blanked."""

    source = models.TextField(_("source"))
    body = models.BinaryField(_("body"))
    content_type = models.TextField(_("content type"), db_default="")
    headers = models.JSONField(_("headers"), db_default={})
    delivery = models.JSONField(_("delivery"), db_default={})
    reason = models.TextField(_("reason"))
    deliveries = models.IntegerField(_("deliveries"), db_default=1)
    public_id = models.TextField(_("public id"), null=True, db_index=True)
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    resolved_at = models.DateTimeField(_("resolved at"), null=True)
    resolution = models.TextField(_("resolution"), db_default="")
    blanked_at = models.DateTimeField(_("blanked at"), null=True)
    digest = models.TextField(_("digest"), db_default="", default="")

    class Meta:
        verbose_name = _("dead letter")
        verbose_name_plural = _("dead letters")
        default_permissions = ("view",)
        indexes = [models.Index(name="dead_letter_open", fields=["-created_at"], condition=Q(resolved_at__isnull=True))]

    def __str__(self) -> str:
        return f"{self.source} #{self.pk}"


class LeaderLease(models.Model):
    """The leader and the end of its lease. It saves duplicate work; correctness never depends on it."""

    name = models.TextField(_("name"), primary_key=True)
    holder = models.TextField(_("holder"))
    term = models.IntegerField(_("term"), db_default=1)
    elected_at = models.DateTimeField(_("elected at"), db_default=Now())
    expires_at = models.DateTimeField(_("expires at"))

    class Meta:
        verbose_name = _("leader lease")
        verbose_name_plural = _("leader leases")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.name}: {self.holder} (term {self.term})"


class Heartbeat(models.Model):
    """A process's heartbeat: its incarnation, its role, and when it last did its work."""

    incarnation = models.TextField(_("incarnation"), primary_key=True)
    role = models.TextField(_("role"))
    started_at = models.DateTimeField(_("started at"), db_default=Now())
    seen_at = models.DateTimeField(_("seen at"), db_default=Now())
    detail = models.JSONField(_("detail"), db_default={})

    class Meta:
        verbose_name = _("heartbeat")
        verbose_name_plural = _("heartbeats")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.role} {self.incarnation}"
