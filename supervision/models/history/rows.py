"""Links and batches of the chain over the history. Rows are written once; triggers refuse changes. No page shows them."""

from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class HistoryBatch(models.Model):
    """One batch of links. Its head is a digest of its links and of the previous batch's head, so the newest head stands for all before it.

    number: counts from 1 without a gap. previous: the head of the batch before it; null for the first. links: how many it has.
    """

    number = models.BigIntegerField(primary_key=True)
    made_at = models.DateTimeField(db_default=Now())
    links = models.IntegerField()
    previous = models.BinaryField(null=True)
    head = models.BinaryField()

    class Meta:
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.number} {bytes(self.head).hex()}"


class HistoryLink(models.Model):
    """The digest of a run's events, up to one of them, and of the run's link before it; or of one entry of the operators' log.

    kind: `run` or `entry`. subject: the run's or the entry's id. through: the seq of the newest event; 1 for an entry. newest_at: its
    time. marks: the first four bytes of each event's digest, which tell the event that was changed.
    """

    pk = models.CompositePrimaryKey("kind", "subject", "through")
    kind = models.TextField()
    subject = models.BigIntegerField()
    through = models.IntegerField()
    newest_at = models.DateTimeField()
    batch = models.BigIntegerField()
    digest = models.BinaryField()
    marks = models.BinaryField()

    class Meta:
        default_permissions = ()
        indexes = [models.Index(name="history_link_of_batch", fields=["batch"])]

    def __str__(self) -> str:
        return f"{self.kind} {self.subject} up to {self.through}"
