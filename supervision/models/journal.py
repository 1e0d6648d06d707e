"""The journal: entries that exactly one writer at a time appends to files, and the writer's lease."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class WriterLease(models.Model):
    """The lease to write under this key. term: the fencing token, which rises with every change of the holder.

    last_error, failing_since: why and since when the files cannot be written; empty while they can.
    """

    key = models.TextField(_("key"), primary_key=True)
    holder = models.TextField(_("holder"), db_default="")
    term = models.IntegerField(_("term"), db_default=0)
    until = models.DateTimeField(_("until"), db_default=Now())
    flushed_at = models.DateTimeField(_("flushed at"), null=True)
    last_error = models.TextField(_("last error"), db_default="")
    failing_since = models.DateTimeField(_("failing since"), null=True)

    class Meta:
        verbose_name = _("writer lease")
        verbose_name_plural = _("writer leases")
        default_permissions = ("view",)

    def __str__(self) -> str:
        return f"{self.key}: {self.holder} (term {self.term})"


class JournalFile(models.Model):
    """A file of the journal. length: the bytes that are complete and synced; bytes beyond it were never acknowledged.

    path: below JOURNAL_DIR. host: the only machine that ever writes it. columns: its header line.
    """

    key = models.TextField(_("key"))
    event_type = models.TextField(_("event type"))
    path = models.TextField(_("path"), unique=True)
    host = models.TextField(_("host"), db_default="")
    columns = models.JSONField(_("columns"), db_default=[], default=list)
    length = models.BigIntegerField(_("length"), db_default=0)
    entries = models.BigIntegerField(_("entries"), db_default=0)
    term = models.IntegerField(_("term"), db_default=0)
    opened_at = models.DateTimeField(_("opened at"), db_default=Now())
    closed_at = models.DateTimeField(_("closed at"), null=True)

    class Meta:
        verbose_name = _("journal file")
        verbose_name_plural = _("journal files")
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(name="one_open_file_per_event_type", fields=["key", "event_type"], condition=Q(closed_at__isnull=True))
        ]

    def __str__(self) -> str:
        return self.path


class JournalEntry(models.Model):
    """One event that is written to a file. Written and failed are final; the caller that appended it can wait for that.

    body: a JSON object as text, its names in the order of the file's columns.
    """

    key = models.TextField(_("key"))
    event_type = models.TextField(_("event type"))
    event_id = models.TextField(_("event id"))
    body = models.TextField(_("body"))
    appended_at = models.DateTimeField(_("appended at"), db_default=Now())
    written_at = models.DateTimeField(_("written at"), null=True)
    failed_at = models.DateTimeField(_("failed at"), null=True)
    file = models.ForeignKey(
        JournalFile,
        on_delete=models.DO_NOTHING,
        db_constraint=False,
        db_index=False,
        null=True,
        related_name="+",
        verbose_name=_("journal file"),
    )
    error = models.TextField(_("error"), db_default="")

    class Meta:
        verbose_name = _("journal entry")
        verbose_name_plural = _("journal entries")
        default_permissions = ("view",)
        constraints = [models.UniqueConstraint(name="an_event_is_journaled_once", fields=["event_id"])]
        indexes = [
            models.Index(name="journal_entry_waiting", fields=["key", "id"], condition=Q(written_at__isnull=True, failed_at__isnull=True)),
            models.Index(name="journal_entry_failed", fields=["key", "id"], condition=Q(failed_at__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.event_type} {self.event_id}"
